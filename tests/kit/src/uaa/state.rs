//! What the stand-in knows.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::Result;
use serde_json::{Value, json};

use super::key::SigningKey;
use crate::now_millis;

/// How the stand-in says where everything is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Discovery {
    /// As `token_endpoint` at `/v2/info`.
    Info,
    /// In the links of the root, as newer Cloud Foundries do.
    Root,
    /// In the links of the root, where only the login server is named.
    Login,
}

/// What the stand-in can be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offer {
    /// Where everything is.
    Discovery,
    Token,
    Keys,
}

/// What can go wrong with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// Every answer is of this status.
    Status(u16),
    /// There is no answer.
    Hang,
    /// Answers are not what they should be.
    Nonsense,
}

/// What follows the address of a UAA in the name of its issuer.
pub(super) const ISSUER: &str = "/oauth/token";

/// What the stand-in knows, and what it was asked.
#[derive(Debug)]
pub(super) struct State {
    pub(super) discovery: Discovery,
    /// The address it gives as its own, where that is another.
    pub(super) known_as: Option<String>,
    /// What follows its address in the name of its issuer; it does not name one without.
    pub(super) issuer: Option<String>,
    /// The last one signs.
    pub(super) keys: Vec<SigningKey>,
    /// Ids, secrets and scopes.
    pub(super) clients: Vec<(String, String, Vec<String>)>,
    pub(super) life: Duration,
    pub(super) fixed: Option<String>,
    pub(super) trouble: Option<Trouble>,
    pub(super) asked: Vec<Offer>,
    pub(super) given_out: Vec<String>,
    pub(super) wanted: Vec<(String, String)>,
    keys_made: usize,
}

impl State {
    pub(super) fn new(discovery: Discovery) -> Result<Self> {
        let mut state = Self {
            discovery,
            known_as: None,
            issuer: Some(ISSUER.to_owned()),
            keys: Vec::new(),
            clients: Vec::new(),
            life: Duration::from_mins(10),
            fixed: None,
            trouble: None,
            asked: Vec::new(),
            given_out: Vec::new(),
            wanted: Vec::new(),
            keys_made: 0,
        };
        let key = SigningKey::rsa(&state.next_key_name())?;
        state.keys.push(key);
        Ok(state)
    }

    pub(super) fn next_key_name(&mut self) -> String {
        self.keys_made += 1;
        format!("key-{}", self.keys_made)
    }

    /// Claims as UAA writes them. Its audiences are the scopes without their last parts, and the
    /// client.
    pub(super) fn claims(&self, issuer: &str, client: &str, scopes: &[&str]) -> Value {
        let now = now_millis() / 1000;
        let life = i64::try_from(self.life.as_secs()).unwrap_or(i64::MAX);
        let resource = |scope: &&str| {
            scope
                .rsplit_once('.')
                .map(|(resource, _)| resource.to_owned())
        };
        let mut audiences: BTreeSet<String> = scopes.iter().filter_map(resource).collect();
        audiences.insert(client.to_owned());
        json!({
            "jti": format!("{}", self.given_out.len()),
            "sub": client,
            "authorities": scopes,
            "scope": scopes,
            "client_id": client,
            "cid": client,
            "azp": client,
            "grant_type": "client_credentials",
            "rev_sig": "9fcb4d37",
            "iat": now,
            "exp": now + life,
            "iss": issuer,
            "zid": "uaa",
            "aud": audiences,
        })
    }

    pub(super) fn sign(&self, claims: &Value) -> String {
        let key = self.keys.last().expect("there is always a key");
        let header = json!({ "alg": "RS256", "typ": "JWT", "kid": key.id() });
        key.token("RS256", &header.to_string(), &claims.to_string())
    }

    pub(super) fn jwks(&self) -> Value {
        let keys: Vec<Value> = self.keys.iter().map(SigningKey::jwk).collect();
        json!({ "keys": keys })
    }

    /// The answer to a client: the status and the document.
    pub(super) fn grant(
        &mut self,
        issuer: &str,
        id: &str,
        secret: &str,
        wanted: &str,
    ) -> (u16, Value) {
        self.wanted.push((id.to_owned(), wanted.to_owned()));
        let known = |client: &&(String, String, Vec<String>)| client.0 == id && client.1 == secret;
        let Some((_, _, scopes)) = self.clients.iter().find(known) else {
            return (401, json!({ "error": "unauthorized" }));
        };
        let wanted: Vec<&str> = wanted
            .split(' ')
            .filter(|scope| !scope.is_empty())
            .collect();
        if !wanted
            .iter()
            .all(|&scope| scopes.iter().any(|it| it == scope))
        {
            return (400, json!({ "error": "invalid_scope" }));
        }
        // Who asks for none gets all.
        let all = scopes.clone();
        let wanted = if wanted.is_empty() {
            all.iter().map(String::as_str).collect()
        } else {
            wanted
        };
        let claims = self.claims(issuer, id, &wanted);
        let token = self.fixed.clone().unwrap_or_else(|| self.sign(&claims));
        self.given_out.push(token.clone());
        let answer = json!({
            "access_token": token,
            "token_type": "bearer",
            "expires_in": self.life.as_secs(),
            "scope": wanted.join(" "),
        });
        (200, answer)
    }
}
