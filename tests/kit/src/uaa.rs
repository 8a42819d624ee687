//! A stand-in for UAA: it gives tokens to clients, shows its keys, and says where both are in each
//! of the ways that there are. Its keys can be changed, and it can fail, hang or be away.

mod key;
mod server;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Result;
use serde_json::{Value, json};

use crate::now_millis;
use crate::serving::{Serving, listen};

pub use key::SigningKey;
use server::router;

/// What follows the address of a UAA in the name of its issuer.
const ISSUER: &str = "/oauth/token";

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

/// A running stand-in. It goes when this value goes.
pub struct StandInUaa {
    shared: Arc<Shared>,
    serving: Serving,
}

/// What the stand-in and its connections share.
#[derive(Debug)]
struct Shared {
    base_url: String,
    state: Mutex<State>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The address that it gives as its own.
    fn known_as(&self) -> String {
        let known_as = self.state().known_as.clone();
        known_as.unwrap_or_else(|| self.base_url.clone())
    }

    /// The issuer that it says it is, and that its tokens name.
    fn issuer(&self) -> Option<String> {
        let behind = self.state().issuer.clone()?;
        Some(self.known_as() + &behind)
    }
}

impl StandInUaa {
    /// Starts serving on the runtime that is running, with one RSA key.
    pub async fn start(discovery: Discovery) -> Result<Self> {
        let (listener, base_url) = listen().await?;
        let shared = Arc::new(Shared {
            base_url,
            state: Mutex::new(State::new(discovery)?),
        });
        let serving = Serving::start(listener, router(Arc::clone(&shared)))?;
        Ok(Self { shared, serving })
    }

    /// Where it is: the `AUTH_SERVER` of the programs.
    pub fn base_url(&self) -> String {
        self.shared.base_url.clone()
    }

    /// Gives another address as its own: that of something in front of it.
    pub fn known_as(&self, url: &str) {
        self.shared.state().known_as = Some(url.to_owned());
    }

    /// The issuer that it is: the `SAMPLER_OIDC_ISSUER` of the programs.
    ///
    /// # Panics
    ///
    /// After [`StandInUaa::names_no_issuer`].
    pub fn issuer(&self) -> String {
        self.shared.issuer().expect("it names an issuer")
    }

    /// Does not say any more which issuer it is: it gives no description of itself, and its tokens
    /// name an issuer that is empty.
    pub fn names_no_issuer(&self) {
        self.shared.state().issuer = None;
    }

    /// A token of another identity zone, which has no keys of its own: it is signed with the same
    /// key, and differs in its issuer alone.
    pub fn token_of_zone(&self, zone: &str, scopes: &[&str]) -> String {
        let issuer = self.issuer().replace("://", &format!("://{zone}."));
        let mut claims = self.shared.state().claims(&issuer, "somebody", scopes);
        claims["zid"] = zone.into();
        self.sign(&claims)
    }

    /// Makes a client known.
    pub fn add_client(&self, id: &str, secret: &str, scopes: &[&str]) {
        let scopes = scopes.iter().map(|&scope| scope.to_owned()).collect();
        let client = (id.to_owned(), secret.to_owned(), scopes);
        self.shared.state().clients.push(client);
    }

    /// Makes a client unknown again.
    pub fn remove_client(&self, id: &str) {
        self.shared.state().clients.retain(|client| client.0 != id);
    }

    /// A token with these scopes, as a client would get it.
    pub fn token(&self, scopes: &[&str]) -> String {
        let issuer = self.shared.issuer().unwrap_or_default();
        let claims = self.shared.state().claims(&issuer, "somebody", scopes);
        self.sign(&claims)
    }

    /// Signs any claims with the newest key.
    pub fn sign(&self, claims: &Value) -> String {
        self.shared.state().sign(claims)
    }

    /// Signs with a new key from now on. The old ones are still shown.
    pub fn rotate(&self) -> Result<()> {
        let key = SigningKey::rsa(&format!("key-{}", crate::unique()))?;
        self.shared.state().keys.push(key);
        Ok(())
    }

    /// Shows only the newest key from now on.
    pub fn withdraw_old_keys(&self) {
        let mut state = self.shared.state();
        let old = state.keys.len() - 1;
        state.keys.drain(..old);
    }

    /// Shows a list of keys that is empty, until the next [`StandInUaa::rotate`].
    pub fn withdraw_all_keys(&self) {
        self.shared.state().keys.clear();
    }

    /// How long the tokens live that are given out from now on.
    pub fn set_life(&self, life: Duration) {
        self.shared.state().life = life;
    }

    /// Gives out this token to every client from now on.
    pub fn give_out(&self, token: &str) {
        self.shared.state().fixed = Some(token.to_owned());
    }

    /// Lets something go wrong from now on, or nothing more.
    pub fn trouble(&self, trouble: Option<Trouble>) {
        self.shared.state().trouble = trouble;
    }

    /// How often something was asked for, whatever the answer.
    pub fn asked(&self, offer: Offer) -> usize {
        let state = self.shared.state();
        state.asked.iter().filter(|&&asked| asked == offer).count()
    }

    /// All tokens that were given out.
    pub fn given_out(&self) -> Vec<String> {
        self.shared.state().given_out.clone()
    }

    /// The scopes that were asked for, with the clients who did.
    pub fn wanted(&self) -> Vec<(String, String)> {
        self.shared.state().wanted.clone()
    }

    /// Closes all connections, and refuses new ones until [`StandInUaa::come_back`].
    pub async fn go_away(&self) {
        self.serving.go_away().await;
    }

    /// Serves again after [`StandInUaa::go_away`], on the same port.
    pub async fn come_back(&self) -> Result<()> {
        self.serving.come_back().await
    }
}

/// What the stand-in knows, and what it was asked.
#[derive(Debug)]
struct State {
    discovery: Discovery,
    /// The address it gives as its own, where that is another.
    known_as: Option<String>,
    /// What follows its address in the name of its issuer; it does not name one without.
    issuer: Option<String>,
    /// The last one signs.
    keys: Vec<SigningKey>,
    /// Ids, secrets and scopes.
    clients: Vec<(String, String, Vec<String>)>,
    life: Duration,
    fixed: Option<String>,
    trouble: Option<Trouble>,
    asked: Vec<Offer>,
    given_out: Vec<String>,
    wanted: Vec<(String, String)>,
}

impl State {
    fn new(discovery: Discovery) -> Result<Self> {
        Ok(Self {
            discovery,
            known_as: None,
            issuer: Some(ISSUER.to_owned()),
            keys: vec![SigningKey::rsa("key-1")?],
            clients: Vec::new(),
            life: Duration::from_mins(10),
            fixed: None,
            trouble: None,
            asked: Vec::new(),
            given_out: Vec::new(),
            wanted: Vec::new(),
        })
    }

    /// Claims as UAA writes them. Its audiences are the scopes without their last parts, and the
    /// client.
    fn claims(&self, issuer: &str, client: &str, scopes: &[&str]) -> Value {
        let now = now_millis() / 1000;
        let life = i64::try_from(self.life.as_secs()).unwrap_or(i64::MAX);
        let resources = scopes.iter().filter_map(|scope| scope.rsplit_once('.'));
        let mut audiences: BTreeSet<&str> = resources.map(|(resource, _)| resource).collect();
        audiences.insert(client);
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

    fn sign(&self, claims: &Value) -> String {
        let key = self.keys.last().expect("there is always a key");
        let header = json!({ "alg": "RS256", "typ": "JWT", "kid": key.id() });
        key.token("RS256", &header.to_string(), &claims.to_string())
    }

    fn jwks(&self) -> Value {
        let keys: Vec<Value> = self.keys.iter().map(SigningKey::jwk).collect();
        json!({ "keys": keys })
    }

    /// The answer to a client: the status and the document.
    fn grant(&mut self, issuer: &str, id: &str, secret: &str, wanted: &str) -> (u16, Value) {
        self.wanted.push((id.to_owned(), wanted.to_owned()));
        let known = |client: &&(String, String, Vec<String>)| client.0 == id && client.1 == secret;
        let Some((_, _, scopes)) = self.clients.iter().find(known) else {
            return (401, json!({ "error": "unauthorized" }));
        };
        let all = scopes.clone();
        let mut wanted: Vec<&str> = wanted.split_whitespace().collect();
        if wanted.iter().any(|scope| !all.iter().any(|it| it == scope)) {
            return (400, json!({ "error": "invalid_scope" }));
        }
        // A client that asks for no scope gets all of its own.
        if wanted.is_empty() {
            wanted = all.iter().map(String::as_str).collect();
        }
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
