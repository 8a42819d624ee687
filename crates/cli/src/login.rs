//! `target`, `login` and `logout`: the receiver and the token of later commands.

use std::io::{self, BufRead, IsTerminal};
use std::process::ExitCode;

use clap::Args;
use sampler_oauth::ClientCredentials;
use secrecy::SecretString;
use serde_json::json;
use url::Url;

use crate::api::{Api, Request};
use crate::config::{Config, Login};
use crate::connection::{Connection, SECRET_VARIABLE, client_of, is_web, variable};
use crate::failure::Failure;
use crate::output::print;
use crate::show::print_json;

/// In bytes.
const SECRET_LEN_MAX: u64 = 16 << 10;

/// Shows or sets the receiver that commands talk to
#[derive(Debug, Args)]
#[command(after_help = "\
The address is remembered in $XDG_CONFIG_HOME/sampler/config.json. A new address ends the login at
the one before. --url and SAMPLER_URL come before it.

Examples:
  sampler target
  sampler target https://sampler.example.com")]
pub(crate) struct TargetArguments {
    /// The address of the receiver
    #[arg(value_name = "URL")]
    address: Option<Url>,
    /// Does not check whether the receiver answers
    #[arg(long)]
    unchecked: bool,
    #[command(flatten)]
    shape: Shape,
}

/// The form of the output.
#[derive(Debug, Args)]
struct Shape {
    /// Prints one JSON document
    #[arg(long)]
    json: bool,
}

/// Gets a token by client credentials, for later commands
#[derive(Debug, Args)]
#[command(after_help = "\
SAMPLER_CLIENT_SECRET holds the secret of the client, or it is read from standard input. The secret is
not remembered. The token is, in a file that only you may read, until `sampler logout`; it is sent to no
other address. When it has ended, log in again. Scripts set SAMPLER_CLIENT_ID and SAMPLER_CLIENT_SECRET
instead, and need no login.

Examples:
  sampler login --cf-api https://api.example.com --client-id support
  sampler login --oidc-issuer https://id.example.com --client-id support < secret")]
pub(crate) struct LoginArguments {
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    shape: Shape,
}

/// Forgets the token of `sampler login`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sampler logout")]
pub(crate) struct LogoutArguments {
    #[command(flatten)]
    shape: Shape,
}

pub(crate) async fn target(arguments: TargetArguments) -> Result<ExitCode, Failure> {
    let mut config = Config::read()?;
    let Some(url) = arguments.address else {
        return show(&config, &arguments.shape);
    };
    if !is_web(&url) {
        return Err(Failure::Input(format!(
            "{url} is not an http or https address"
        )));
    }
    if !arguments.unchecked {
        let api = Api::new(&Connection::to(url.clone()))?;
        api.call(&Request::get(&["healthz", "live"])).await?;
    }
    config.login = config.login.filter(|login| login.target == url);
    config.target = Some(url);
    config.write()?;
    show(&config, &arguments.shape)
}

fn show(config: &Config, shape: &Shape) -> Result<ExitCode, Failure> {
    let Some(url) = &config.target else {
        let what = "no target is set: sampler target URL sets it";
        return Err(Failure::Input(what.to_owned()));
    };
    let client = config.login.as_ref().map(|login| &login.client_id);
    if shape.json {
        print_json(&json!({ "target": url.as_str(), "client_id": client }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let login = client.map_or_else(String::new, |id| format!(", logged in as {id}"));
    print(&format!("{url}{login}\n"))?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) async fn login(arguments: LoginArguments) -> Result<ExitCode, Failure> {
    let mut config = Config::read()?;
    let Connection { client, .. } = &arguments.connection;
    let target = arguments
        .connection
        .url()?
        .or_else(|| config.target.clone());
    let target = target.ok_or_else(|| missing("the address: --url, or `sampler target` before"))?;
    let id = client.id();
    let id = id.as_ref().ok_or_else(|| missing("--client-id"))?;
    let discoverer = client.discoverer()?;
    let secret = match variable(SECRET_VARIABLE) {
        Some(secret) => secret,
        None => read_secret(id)?,
    };
    let token = ClientCredentials::new(client_of(id, secret), discoverer)
        .token()
        .await
        .map_err(|error| Failure::Input(error.to_string()))?;
    let header = token.header();
    let value = header
        .to_str()
        .unwrap_or_default()
        .strip_prefix("Bearer ")
        .unwrap_or_default();
    config.login = Some(Login {
        target: target.clone(),
        client_id: id.clone(),
        token: value.into(),
    });
    config.target = Some(target);
    config.write()?;
    show(&config, &arguments.shape)
}

fn missing(what: &str) -> Failure {
    Failure::Input(format!("{what} is missing"))
}

/// Reads a secret, which a terminal does not show.
fn read_secret(id: &str) -> Result<SecretString, Failure> {
    let input = io::stdin();
    let secret = if input.is_terminal() {
        rpassword::prompt_password(format!("Secret of {id}: "))
    } else {
        let mut line = String::new();
        let mut limited = io::Read::take(input.lock(), SECRET_LEN_MAX);
        limited.read_line(&mut line).map(|_| line)
    };
    let line = secret.map_err(|error| Failure::Input(format!("the secret: {error}")))?;
    let secret = line.trim_end_matches(['\r', '\n']);
    if secret.is_empty() {
        let what = format!("{SECRET_VARIABLE} or standard input must hold the secret of {id}");
        return Err(Failure::Input(what));
    }
    Ok(secret.into())
}

pub(crate) fn logout(arguments: &LogoutArguments) -> Result<ExitCode, Failure> {
    let mut config = Config::read()?;
    if config.login.take().is_some() {
        config.write()?;
    }
    if arguments.shape.json {
        let target = config.target.as_ref().map(Url::as_str);
        print_json(&json!({ "target": target, "client_id": null }))?;
    }
    Ok(ExitCode::SUCCESS)
}
