//! The connection to the API, for every command that needs it.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use sampler_oauth::discovery::is_private;
use sampler_oauth::http::client;
use sampler_oauth::{CaBundle, Client, ClientCredentials, Discoverer, HttpOptions, TokenServer};
use secrecy::SecretString;
use url::Url;

use crate::config::Config;
use crate::failure::Failure;
use crate::output::warn;
use crate::token::{TOKEN_VARIABLE, Token};

/// The address where neither an option nor `sampler target` says one.
const URL_DEFAULT: &str = "http://localhost:7070";
/// Holds the secret of a client. It is no argument, for the same reason as a token.
pub(crate) const SECRET_VARIABLE: &str = "SAMPLER_CLIENT_SECRET";
/// How long a token server may take.
const TOKEN_LIMIT: Duration = Duration::from_secs(10);

/// Where the API is, and the token for it.
#[derive(Debug, Args)]
#[command(next_help_heading = "Connection")]
pub(crate) struct Connection {
    /// The address of the receiver [default: `sampler target`, or `http://localhost:7070`]
    #[arg(long, env = "SAMPLER_URL", hide_env_values = true)]
    url: Option<Url>,
    /// A file with the token; otherwise it is that of `SAMPLER_TOKEN`, of the client, or of `sampler login`
    #[arg(
        long,
        env = "SAMPLER_TOKEN_FILE",
        hide_env_values = true,
        value_name = "FILE"
    )]
    token_file: Option<PathBuf>,
    #[command(flatten)]
    client: ClientArguments,
}

/// A client of a token server, whose tokens are used. `SAMPLER_CLIENT_SECRET` holds its secret.
#[derive(Debug, Args)]
#[command(next_help_heading = "Connection")]
pub(crate) struct ClientArguments {
    /// A client that gets the token; `SAMPLER_CLIENT_SECRET` holds its secret
    #[arg(
        long,
        env = "SAMPLER_CLIENT_ID",
        hide_env_values = true,
        value_name = "ID"
    )]
    pub(crate) client_id: Option<String>,
    /// The Cloud Foundry API that names the UAA of the client
    #[arg(
        long,
        env = "SAMPLER_CF_API",
        hide_env_values = true,
        value_name = "URL"
    )]
    cf_api: Option<Url>,
    /// The issuer (OIDC) of the client, if it is not the UAA of a Cloud Foundry
    #[arg(
        long,
        env = "SAMPLER_OIDC_ISSUER",
        hide_env_values = true,
        value_name = "URL"
    )]
    oidc_issuer: Option<Url>,
}

impl Connection {
    /// A receiver that nothing is proved to.
    pub(crate) fn to(url: Url) -> Self {
        Self {
            url: Some(url),
            token_file: None,
            client: ClientArguments {
                client_id: None,
                cf_api: None,
                oidc_issuer: None,
            },
        }
    }

    /// The platform that is read, for the one command that reads one. It names the token server of the
    /// client for the receiver, too, unless an issuer does.
    pub(crate) fn platform(&mut self) -> Option<Url> {
        let api = self.client.cf_api.clone();
        if self.client.oidc_issuer.is_some() {
            self.client.cf_api = None;
        }
        api
    }

    /// The address, and the source of the token. Says so where a token would be sent in clear text.
    pub(crate) fn resolve(&self) -> Result<(Url, Token), Failure> {
        let config = Config::read()?;
        let target = config.target.clone();
        let url = match (self.url.clone(), target) {
            (Some(url), _) | (None, Some(url)) => url,
            (None, None) => Url::parse(URL_DEFAULT).expect("a fixed address"),
        };
        if !is_web(&url) {
            return Err(Failure::Input(format!(
                "{url} is not an http or https address"
            )));
        }
        let token = self.token(&config, &url)?;
        token.check()?;
        if !matches!(token, Token::None) && !is_private(&url) {
            warn("the token is sent without TLS");
        }
        Ok((url, token))
    }

    fn token(&self, config: &Config, url: &Url) -> Result<Token, Failure> {
        if let Some(path) = &self.token_file {
            return Ok(Token::File(path.clone()));
        }
        if let Some(token) = variable(TOKEN_VARIABLE) {
            return Ok(Token::Fixed(token, TOKEN_VARIABLE));
        }
        if let Some(id) = &self.client.client_id {
            let secret = variable(SECRET_VARIABLE).ok_or_else(|| {
                Failure::Input(format!("{SECRET_VARIABLE} must hold the secret of {id}"))
            })?;
            let discoverer = self.client.discoverer()?;
            let client = client_of(id, secret);
            return Ok(Token::of(ClientCredentials::new(client, discoverer)));
        }
        // A token is sent nowhere but to the address that it was got for.
        let token = config.token_for(url);
        Ok(token.map_or(Token::None, |token| Token::Fixed(token, "sampler login")))
    }
}

impl ClientArguments {
    /// The token server of the client.
    pub(crate) fn discoverer(&self) -> Result<Discoverer, Failure> {
        let server = match (&self.cf_api, &self.oidc_issuer) {
            (Some(_), Some(_)) => {
                let what = "a client has one token server: --cf-api or --oidc-issuer";
                return Err(Failure::Input(what.to_owned()));
            }
            (Some(api), None) => TokenServer::CloudFoundry(api.clone()),
            (None, Some(issuer)) => TokenServer::Oidc(issuer.clone()),
            (None, None) => {
                let what = "a client needs its token server: --cf-api or --oidc-issuer";
                return Err(Failure::Input(what.to_owned()));
            }
        };
        let address = server.address();
        if !is_web(address) || !is_private(address) {
            let what = format!("{address} is not an https address: the secret could be read");
            return Err(Failure::Input(what));
        }
        let http = client(&HttpOptions {
            timeout: TOKEN_LIMIT,
            skip_ssl_validation: false,
            authorities: CaBundle::default(),
        });
        let http = http.map_err(|error| Failure::Input(error.to_string()))?;
        Ok(Discoverer::new(server, http))
    }
}

/// A client that asks for all the scopes it has.
pub(crate) fn client_of(id: &str, secret: SecretString) -> Client {
    Client {
        id: id.to_owned(),
        secret,
        scope: "",
    }
}

/// Whether it is an address of HTTP, with a host.
pub(crate) fn is_web(url: &Url) -> bool {
    matches!(url.scheme(), "http" | "https") && url.host().is_some()
}

/// A secret of the environment, unless it is empty.
pub(crate) fn variable(name: &str) -> Option<SecretString> {
    let value = std::env::var(name).ok();
    value.filter(|value| !value.is_empty()).map(Into::into)
}
