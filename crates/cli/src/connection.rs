//! The connection to the API, for every command that needs it.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use sampler_service::oauth::discovery::is_private;
use sampler_service::oauth::http::client;
use sampler_service::oauth::{
    CaBundle, Client, ClientCredentials, Discoverer, HttpOptions, TokenServer,
};
use secrecy::SecretString;
use url::{Host, Url};

use crate::failure::Failure;
use crate::output::warn;
use crate::token::{TOKEN_VARIABLE, Token};

/// The address where nothing says one.
const URL_DEFAULT: &str = "http://localhost:7070";
/// The variables beside the options of the same names.
const URL_VARIABLE: &str = "SAMPLER_URL";
const CF_API_VARIABLE: &str = "SAMPLER_CF_API";
const TOKEN_FILE_VARIABLE: &str = "SAMPLER_TOKEN_FILE";
/// Holds the secret of a client. It is not an argument, for the same reason as a token.
const SECRET_VARIABLE: &str = "SAMPLER_CLIENT_SECRET";
/// How long a token server may take.
const TOKEN_LIMIT: Duration = Duration::from_secs(10);

/// Where the API is, and the token for it. An option may precede or follow the command, and overrides
/// its variable, which is read where it is needed: clap would show one that is set as if it were
/// required.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Connection")]
pub(crate) struct Connection {
    /// The address of the receiver [env: `SAMPLER_URL`] [default: `http://localhost:7070`]
    #[arg(long, global = true)]
    url: Option<Url>,
    /// A file with the token; otherwise it is that of `SAMPLER_TOKEN`, or of the client [env: `SAMPLER_TOKEN_FILE`]
    #[arg(long, global = true, value_name = "FILE")]
    token_file: Option<PathBuf>,
    #[command(flatten)]
    client: ClientArguments,
}

/// A client of a token server, whose tokens are used. `SAMPLER_CLIENT_SECRET` holds its secret.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Connection")]
struct ClientArguments {
    /// A client that gets the token; `SAMPLER_CLIENT_SECRET` holds its secret [env: `SAMPLER_CLIENT_ID`]
    #[arg(long, global = true, value_name = "ID")]
    client_id: Option<String>,
    /// The Cloud Foundry API that names the UAA of the client [env: `SAMPLER_CF_API`]
    #[arg(long, global = true, value_name = "URL")]
    cf_api: Option<Url>,
    /// The issuer (OIDC) of the client, if it is not the UAA of a Cloud Foundry [env: `SAMPLER_OIDC_ISSUER`]
    #[arg(long, global = true, value_name = "URL")]
    oidc_issuer: Option<Url>,
}

impl Connection {
    /// The platform that is read, for the one command that reads one. It names the token server of the
    /// client for the receiver, too, unless an issuer does.
    pub(crate) fn platform(&mut self) -> Result<Option<Url>, Failure> {
        let api = address(self.client.cf_api.as_ref(), CF_API_VARIABLE)?;
        if self.client.oidc_issuer.is_some() {
            self.client.cf_api = None;
        }
        Ok(api)
    }

    /// The address, and the source of the token. Says so where a token would be sent in clear text.
    pub(crate) fn resolve(&self) -> Result<(Url, Token), Failure> {
        let url = address(self.url.as_ref(), URL_VARIABLE)?
            .unwrap_or_else(|| Url::parse(URL_DEFAULT).expect("a fixed address"));
        if !is_web(&url) {
            return Err(Failure::Input(format!(
                "{url} is not an http or https address"
            )));
        }
        let token = self.token()?;
        token.check()?;
        if !matches!(token, Token::None) && !is_private(&url) {
            warn("the token is sent without TLS");
        }
        Ok((url, token))
    }

    fn token(&self) -> Result<Token, Failure> {
        let file = self.token_file.clone();
        if let Some(path) = file.or_else(|| told(TOKEN_FILE_VARIABLE).map(PathBuf::from)) {
            return Ok(Token::File(path));
        }
        if let Some(token) = variable(TOKEN_VARIABLE) {
            return Ok(Token::Fixed(token));
        }
        let given = self.client.client_id.clone();
        let Some(id) = given.or_else(|| told("SAMPLER_CLIENT_ID")) else {
            return Ok(Token::None);
        };
        let secret = variable(SECRET_VARIABLE).ok_or_else(|| {
            Failure::Input(format!("{SECRET_VARIABLE} must hold the secret of {id}"))
        })?;
        let discoverer = self.client.discoverer()?;
        let client = client_of(&id, secret);
        Ok(Token::of(ClientCredentials::new(client, discoverer)))
    }
}

impl ClientArguments {
    /// The token server of the client.
    fn discoverer(&self) -> Result<Discoverer, Failure> {
        let server = self.server()?;
        let http = secret_client(server.address(), TOKEN_LIMIT)?;
        Ok(Discoverer::new(server, http))
    }

    fn server(&self) -> Result<TokenServer, Failure> {
        // An option for the one comes before the variable of the other.
        match (&self.cf_api, &self.oidc_issuer) {
            (Some(_), Some(_)) => {
                let what = "a client has one token server: --cf-api or --oidc-issuer";
                return Err(Failure::Input(what.to_owned()));
            }
            (None, Some(issuer)) => return Ok(TokenServer::Oidc(issuer.clone())),
            (_, None) => {}
        }
        if let Some(api) = address(self.cf_api.as_ref(), CF_API_VARIABLE)? {
            return Ok(TokenServer::CloudFoundry(api));
        }
        let issuer = address(None, "SAMPLER_OIDC_ISSUER")?;
        issuer.map(TokenServer::Oidc).ok_or_else(|| {
            let what = "a client needs its token server: --cf-api or --oidc-issuer";
            Failure::Input(what.to_owned())
        })
    }
}

/// The address of an option, or else of a variable.
fn address(given: Option<&Url>, variable: &str) -> Result<Option<Url>, Failure> {
    let told = match given {
        Some(_) => None,
        None => told(variable),
    };
    let Some(text) = told else {
        return Ok(given.cloned());
    };
    let url = Url::parse(&text)
        .map_err(|error| Failure::Input(format!("{variable} is {text:?}: {error}")));
    url.map(Some)
}

/// The HTTP client for an address that a secret is sent to.
pub(crate) fn secret_client(address: &Url, timeout: Duration) -> Result<reqwest::Client, Failure> {
    if !is_web(address) || !is_private(address) {
        let what = format!("{address} is not an https address: the secret could be read");
        return Err(Failure::Input(what));
    }
    client(&HttpOptions {
        timeout,
        skip_ssl_validation: false,
        authorities: CaBundle::default(),
    })
    .map_err(|error| Failure::Input(error.to_string()))
}

/// A client that asks for all the scopes it has.
pub(crate) fn client_of(id: &str, secret: SecretString) -> Client {
    Client {
        id: id.to_owned(),
        secret,
        scope: String::new(),
        audience: None,
    }
}

/// Whether it is an address of this machine.
pub(crate) fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

/// Whether it is an address of HTTP, with a host.
fn is_web(url: &Url) -> bool {
    matches!(url.scheme(), "http" | "https") && url.host().is_some()
}

/// A secret of the environment, unless it is empty.
pub(crate) fn variable(name: &str) -> Option<SecretString> {
    told(name).map(Into::into)
}

/// A variable of the environment, unless it is empty.
fn told(name: &str) -> Option<String> {
    let value = std::env::var(name).ok();
    value.filter(|value| !value.is_empty())
}
