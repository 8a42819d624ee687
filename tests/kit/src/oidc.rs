//! A certified `OpenID` provider (the npm package `oidc-provider`, in the version that
//! `tests/oidc/package-lock.json` pins) as a child process. It needs Node.js 18 or newer with npm.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use jsonwebtoken::jwk::JwkSet;
use jsonwebtoken::{Algorithm, DecodingKey, Validation, decode, decode_header};
use reqwest::Client;
use serde_json::{Value, json};

use crate::program::{Launch, Program};
use crate::{target_dir, workspace_dir};

/// How long the provider may take for an answer.
const TIMEOUT: Duration = Duration::from_secs(30);

/// What the provider is made of, in `tests/oidc`.
const FILES: [&str; 3] = ["package.json", "package-lock.json", "server.mjs"];

/// A client of the provider: its id, its secret, and its scopes with spaces in between.
pub type OidcClient<'a> = (&'a str, &'a str, &'a str);

/// A running provider. It goes when this value goes.
#[derive(Debug)]
pub struct OidcProvider {
    program: Program,
    folder: PathBuf,
    clients: String,
    http: Client,
}

impl OidcProvider {
    /// Starts a provider that knows these clients, with a key of its own.
    ///
    /// # Errors
    ///
    /// When it is not installed and cannot be, or does not come to listen.
    pub async fn start(clients: &[OidcClient<'_>]) -> Result<Self> {
        let client = |&(id, secret, scope): &OidcClient<'_>| json!({ "client_id": id, "client_secret": secret, "scope": scope });
        let clients = clients.iter().map(client).collect::<Value>().to_string();
        let folder = tokio::task::spawn_blocking(install).await??;
        let program = launch(&folder, &clients, "0").await?;
        Ok(Self {
            program,
            folder,
            clients,
            http: Client::builder().timeout(TIMEOUT).build()?,
        })
    }

    /// Its name in tokens, and where it is.
    pub fn issuer(&self) -> String {
        self.program.base_url()
    }

    /// A token with this scope, meant for `audience`: `urn:abacus` or `urn:sampler`.
    ///
    /// # Errors
    ///
    /// When it gives none.
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
    ///
    /// # Errors
    ///
    /// When the provider is away.
    pub async fn rotate(&self) -> Result<()> {
        let request = self.http.post(format!("{}/rotate", self.issuer()));
        request.send().await?.error_for_status()?;
        Ok(())
    }

    /// Kills it.
    ///
    /// # Errors
    ///
    /// When it cannot be killed.
    pub fn go_away(&self) -> Result<()> {
        self.program.kill()
    }

    /// Starts it again at the same address, with a new key alone.
    ///
    /// # Errors
    ///
    /// When it does not come to listen.
    pub async fn come_back(&mut self) -> Result<()> {
        let (_, port) = self
            .program
            .address()
            .rsplit_once(':')
            .context("its port")?;
        self.program = launch(&self.folder, &self.clients, port).await?;
        Ok(())
    }

    /// What decides as another service would, by a library of its own and the keys of now: whether
    /// a token is one of this provider, meant for `audience`, and with that scope.
    ///
    /// # Errors
    ///
    /// When the keys cannot be had.
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

async fn launch(folder: &Path, clients: &str, port: &str) -> Result<Program> {
    let launch = Launch::new("oidc-provider")
        .path("node")
        .arg(folder.join("server.mjs"))
        .env("CLIENTS", clients)
        .env("PORT", port);
    launch.start().await
}

/// Installs the provider below the target folder, once for all processes of a test run, and again
/// when its files have changed.
fn install() -> Result<PathBuf> {
    let (source, folder) = (
        workspace_dir().join("tests/oidc"),
        target_dir().join("oidc"),
    );
    fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
    let lock = File::create(folder.join("lock")).context("making a lock file")?;
    lock.lock().context("waiting for the lock file")?;
    let mut wanted = String::new();
    for file in FILES {
        let text = fs::read_to_string(source.join(file));
        wanted += &text.with_context(|| format!("reading tests/oidc/{file}"))?;
    }
    let done = folder.join("installed");
    if fs::read_to_string(&done).is_ok_and(|present| present == wanted) {
        return Ok(folder);
    }
    for file in FILES {
        fs::copy(source.join(file), folder.join(file))
            .with_context(|| format!("copying {file}"))?;
    }
    npm_ci(&folder)?;
    // Written last, so that all of it is there.
    fs::write(&done, wanted).context("noting that it is installed")?;
    Ok(folder)
}

fn npm_ci(folder: &Path) -> Result<()> {
    let arguments = [
        "ci",
        "--ignore-scripts",
        "--no-audit",
        "--no-fund",
        "--loglevel=error",
    ];
    let output = Command::new("npm")
        .args(arguments)
        .current_dir(folder)
        .output();
    let output = output.context("starting npm: the tests need Node.js 18 or newer, with npm")?;
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        bail!("npm ci: {}: {}", output.status, errors.trim());
    }
    Ok(())
}
