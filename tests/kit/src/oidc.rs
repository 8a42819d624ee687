//! A certified `OpenID` provider (the npm package `oidc-provider`, in the version that
//! `tests/oidc/package-lock.json` pins) as a child process. It needs Node.js 18 or newer with npm.

use std::time::Duration;

use anyhow::{Context, Result};
use jsonwebtoken::jwk::JwkSet;
use jsonwebtoken::{Algorithm, DecodingKey, Validation, decode, decode_header};
use reqwest::Client;
use serde_json::{Value, json};

use crate::npm;
use crate::program::{Launch, Program};

/// How long the provider may take for an answer.
const TIMEOUT: Duration = Duration::from_secs(30);

/// What the provider is made of, in `tests/oidc`.
const FILES: [&str; 3] = ["package.json", "package-lock.json", "server.mjs"];

/// Where a program on any port of the loopback is returned to by the provider.
const REDIRECT: &str = "http://127.0.0.1/console/callback";

/// A client of the provider: its id, its secret, and its scopes with spaces in between.
pub type OidcClient<'a> = (&'a str, &'a str, &'a str);

/// A running provider. It goes when this value goes.
#[derive(Debug)]
pub struct OidcProvider {
    program: Program,
    http: Client,
}

impl OidcProvider {
    /// Starts a provider that knows these clients, with a key of its own.
    pub async fn start(clients: &[OidcClient<'_>]) -> Result<Self> {
        let client = |&(id, secret, scope): &OidcClient<'_>| json!({ "client_id": id, "client_secret": secret, "scope": scope });
        let clients = clients.iter().map(client).collect::<Value>();
        Self::with(&clients, &json!({}), 300).await
    }

    /// Starts a provider at which people sign in through this client. Anybody may, with any
    /// password, and gets the scopes that were asked for, or those that `people` says for the name.
    /// Access tokens are valid for so many seconds.
    pub async fn for_people(
        (id, secret, scope): OidcClient<'_>,
        people: &Value,
        seconds: u32,
    ) -> Result<Self> {
        let client = json!({
            "client_id": id, "client_secret": secret, "scope": scope, "redirect_uris": [REDIRECT],
        });
        Self::with(&json!([client]), people, seconds).await
    }

    async fn with(clients: &Value, people: &Value, seconds: u32) -> Result<Self> {
        let installing = || npm::install("tests/oidc", &FILES, "oidc");
        let folder = tokio::task::spawn_blocking(installing).await??;
        let launch = Launch::new("oidc-provider")
            .path("node")
            .arg(folder.join("server.mjs"))
            .env("PORT", "0")
            .env("CLIENTS", clients.to_string())
            .env("PEOPLE", people.to_string())
            .env("TOKEN_SECONDS", seconds.to_string());
        Ok(Self {
            program: launch.start().await?,
            http: Client::builder().timeout(TIMEOUT).build()?,
        })
    }

    /// Its name in tokens, and where it is.
    pub fn issuer(&self) -> String {
        self.program.base_url()
    }

    /// A token with this scope, meant for `audience`: `urn:abacus` or `urn:sampler`.
    pub async fn token(&self, client: (&str, &str), scope: &str, audience: &str) -> Result<String> {
        let form = [
            ("grant_type", "client_credentials"),
            ("client_id", client.0),
            ("client_secret", client.1),
            ("scope", scope),
            ("resource", audience),
        ];
        let body = form.map(|(name, value)| format!("{name}={}", percent(value)));
        let request = self.http.post(format!("{}/token", self.issuer()));
        let request = request.header("content-type", "application/x-www-form-urlencoded");
        let answer: Value = request.body(body.join("&")).send().await?.json().await?;
        let token = answer["access_token"].as_str();
        Ok(token
            .with_context(|| format!("no token: {answer}"))?
            .to_owned())
    }

    /// A new key signs from now on. The one before stays published, older ones do not.
    pub async fn rotate(&self) -> Result<()> {
        let request = self.http.post(format!("{}/rotate", self.issuer()));
        request.send().await?.error_for_status()?;
        Ok(())
    }

    /// What decides as another service would, by a library of its own and the keys of now: whether
    /// a token is one of this provider, meant for `audience`, and with that scope.
    pub async fn check(
        &self,
        audience: &str,
        scope: &'static str,
    ) -> Result<impl Fn(&str) -> bool + Send + Sync + use<>> {
        let keys = self.http.get(format!("{}/jwks", self.issuer()));
        let keys: JwkSet = keys.send().await?.json().await?;
        let mut rules = Validation::new(Algorithm::RS256);
        rules.set_audience(&[audience]);
        rules.set_issuer(&[self.issuer()]);
        Ok(move |token: &str| {
            let scopes = claims(token, &keys, &rules).map(|claims| claims["scope"].clone());
            scopes.is_some_and(|scopes| {
                scopes
                    .as_str()
                    .is_some_and(|all| all.split(' ').any(|one| one == scope))
            })
        })
    }
}

fn claims(token: &str, keys: &JwkSet, rules: &Validation) -> Option<Value> {
    let kid = decode_header(token).ok()?.kid?;
    let key = DecodingKey::from_jwk(keys.find(&kid)?).ok()?;
    let token = decode::<Value>(token, &key, rules).ok()?;
    Some(token.claims)
}

fn percent(text: &str) -> String {
    percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string()
}
