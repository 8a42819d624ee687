//! Programs of Node.js that tests need, in the versions that a `package-lock.json` pins: a certified `OpenID` provider
//! (`tests/oidc`), and what drives a real Chromium (`tests/console`). They need Node.js 18 or newer, with npm. Debian's
//! package `chromium` has the browser; `SAMPLER_CHROMIUM` names another.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use jsonwebtoken::jwk::JwkSet;
use jsonwebtoken::{Algorithm, DecodingKey, Validation, decode, decode_header};
use reqwest::Client;
use serde_json::{Value, json};
use tokio::process::Command;
use tokio::time::timeout;

use crate::program::{Launch, Program};
use crate::{target_dir, workspace_dir};

/// Names the browser.
const VARIABLE: &str = "SAMPLER_CHROMIUM";

/// What browsers are called.
const BROWSERS: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];

/// How long a visit may take.
const VISIT_LIMIT: Duration = Duration::from_mins(3);

/// How long the provider may take for an answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);

/// Where a program on any port of the loopback is returned to by the provider.
const REDIRECT: &str = "http://127.0.0.1/console/callback";

/// Installs what these files of a folder of the repository describe into a folder below the target folder, once for all
/// processes of a test run, and again when the files have changed.
async fn install(source: &str, files: &[&str], name: &str) -> Result<PathBuf> {
    let (from, folder) = (workspace_dir().join(source), target_dir().join(name));
    fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
    let lock = File::create(folder.join("lock")).context("making a lock file")?;
    let waiting = lock.try_clone()?;
    tokio::task::spawn_blocking(move || waiting.lock())
        .await?
        .context("waiting for the lock file")?;
    let mut wanted = String::new();
    for file in files {
        let text = fs::read_to_string(from.join(file));
        wanted += &text.with_context(|| format!("reading {source}/{file}"))?;
    }
    let done = folder.join("installed");
    if fs::read_to_string(&done).is_ok_and(|present| present == wanted) {
        return Ok(folder);
    }
    for file in files {
        fs::copy(from.join(file), folder.join(file)).with_context(|| format!("copying {file}"))?;
    }
    npm_ci(&folder).await?;
    // Written last, so that all of it is there.
    fs::write(&done, wanted).context("noting that it is installed")?;
    drop(lock);
    Ok(folder)
}

async fn npm_ci(folder: &Path) -> Result<()> {
    let line = "ci --ignore-scripts --no-audit --no-fund --loglevel=error";
    let output = Command::new("npm")
        .args(line.split(' '))
        .current_dir(folder)
        .output()
        .await;
    let output = output.context("starting npm: the tests need Node.js 18 or newer, with npm")?;
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        bail!("npm ci: {}: {}", output.status, errors.trim());
    }
    Ok(())
}

/// Visits a console as people do, with what the visit needs to know. Pictures are written to `target/console`.
pub async fn visit(name: &str, known: &Value) -> Result<()> {
    let browser = browser().with_context(|| {
        format!("no Chromium: install Debian's package chromium, or set {VARIABLE}")
    })?;
    let files = [
        "package.json",
        "package-lock.json",
        "visit.mjs",
        "browser.mjs",
    ];
    let folder = install("tests/console", &files, "console-browser").await?;
    let pictures = target_dir().join("console");
    fs::create_dir_all(&pictures).context("making a folder for pictures")?;
    let visiting = Command::new("node")
        .arg(folder.join("visit.mjs"))
        .arg(name)
        .env("KNOWN", known.to_string())
        .env("BROWSER", browser)
        .env("PICTURES", pictures)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = timeout(VISIT_LIMIT, visiting).await;
    let output = output
        .context("the visit takes too long")?
        .context("starting node")?;
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        bail!("the visit {name}:\n{errors}");
    }
    Ok(())
}

fn browser() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os(VARIABLE) {
        return Some(named.into());
    }
    let path = std::env::var_os("PATH")?;
    let folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let all = BROWSERS
        .iter()
        .flat_map(|name| folders.iter().map(move |it| it.join(name)));
    all.into_iter().find(|path| path.is_file())
}

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
        let clients: Value = clients.iter().map(client).collect();
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
        let files = ["package.json", "package-lock.json", "server.mjs"];
        let folder = install("tests/oidc", &files, "oidc").await?;
        let launch = Launch::new("oidc-provider")
            .path("node")
            .arg(folder.join("server.mjs"))
            .env("PORT", "0")
            .env("CLIENTS", clients.to_string())
            .env("PEOPLE", people.to_string())
            .env("TOKEN_SECONDS", seconds.to_string());
        Ok(Self {
            program: launch.start().await?,
            http: Client::builder().timeout(ANSWER_LIMIT).build()?,
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
        let token = answer["access_token"].as_str().map(str::to_owned);
        token.with_context(|| format!("no token: {answer}"))
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
            let claims = claims(token, &keys, &rules).unwrap_or_default();
            let scopes = claims["scope"].as_str().unwrap_or_default();
            scopes.split(' ').any(|one| one == scope)
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
