//! A stand-in for UAA: it gives tokens to clients, shows its keys, and says where both are in each
//! of the ways that there are. Its keys can be changed, and it can fail, hang or be away.

mod key;
mod server;
mod state;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use hyper::server::conn::http1;
use serde_json::Value;
use tokio::net::TcpListener;

use crate::serving::Serving;

pub use key::SigningKey;
use server::answer;
use state::State;
pub use state::{Discovery, Offer, Trouble};

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
        let listener = TcpListener::bind("127.0.0.1:0").await;
        let listener = listener.context("listening")?;
        let address = listener.local_addr().context("the address")?;
        let shared = Arc::new(Shared {
            base_url: format!("http://{address}"),
            state: Mutex::new(State::new(discovery)?),
        });
        let seen = Arc::clone(&shared);
        let serving = Serving::start(listener, http1::Builder::new(), move |request| {
            answer(Arc::clone(&seen), request)
        })?;
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
        let key = self.make_key()?;
        self.sign_with(key);
        Ok(())
    }

    /// Makes a key that nobody knows yet. That takes a while.
    pub fn make_key(&self) -> Result<SigningKey> {
        let name = self.shared.state().next_key_name();
        SigningKey::rsa(&name)
    }

    /// Signs with this key from now on, and shows it beside the older ones.
    pub fn sign_with(&self, key: SigningKey) {
        self.shared.state().keys.push(key);
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
