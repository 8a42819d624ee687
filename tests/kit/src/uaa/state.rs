//! What the stand-in knows.

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
    /// A token.
    Token,
    /// Its keys.
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

/// What the stand-in knows, and what it was asked.
#[derive(Debug)]
pub(super) struct State {
    pub(super) discovery: Discovery,
    /// The address it gives as its own, where that is another.
    pub(super) known_as: Option<String>,
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
        state.rotate()?;
        Ok(state)
    }

    pub(super) fn rotate(&mut self) -> Result<()> {
        self.keys_made += 1;
        let id = format!("key-{}", self.keys_made);
        self.keys.push(SigningKey::rsa(&id)?);
        Ok(())
    }

    pub(super) fn claims(&self, client: &str, scope: &Value) -> Value {
        let now = now_millis() / 1000;
        let life = i64::try_from(self.life.as_secs()).unwrap_or(i64::MAX);
        json!({
            "jti": format!("{}", self.given_out.len()),
            "sub": client,
            "client_id": client,
            "scope": scope,
            "iat": now,
            "exp": now + life,
            "iss": "http://uaa.invalid/oauth/token",
            "aud": ["abacus", client],
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
    pub(super) fn grant(&mut self, id: &str, secret: &str, wanted: &str) -> (u16, Value) {
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
        let claims = self.claims(id, &json!(wanted));
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
