//! The connection to the API, for every command that needs it, and its token.

use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use reqwest::header::HeaderValue;
use sampler_service::oauth::discovery::is_private;
use sampler_service::oauth::http::client;
use sampler_service::oauth::{
    CaBundle, Client, ClientCredentials, Discoverer, HttpOptions, NoToken, TokenServer,
};
use url::Url;

use crate::failure::Failure;
use crate::output::warn;

/// The address where nothing says one.
const URL_DEFAULT: &str = "http://localhost:7070";
/// Hold secrets. These are not arguments: other users of a machine can read those.
const TOKEN_VARIABLE: &str = "SAMPLER_TOKEN";
const SECRET_VARIABLE: &str = "SAMPLER_CLIENT_SECRET";
const PLATFORM_SECRET_VARIABLE: &str = "SAMPLER_CF_CLIENT_SECRET";
/// How long a token server may take.
const TOKEN_LIMIT: Duration = Duration::from_secs(10);

/// Where the API is, and the token for it. An option overrides its variable, which is read where it is needed:
/// clap would show one that is set as if it were required.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Connection")]
pub(crate) struct Connection {
    /// The address of the receiver [env: `SAMPLER_URL`] [default: `http://localhost:7070`]
    #[arg(long, global = true)]
    url: Option<Url>,
    /// A client that gets tokens, where `SAMPLER_TOKEN` is not set [env: `SAMPLER_CLIENT_ID`, `SAMPLER_CLIENT_SECRET`]
    #[arg(long, global = true, value_name = "ID")]
    client_id: Option<String>,
    /// The Cloud Foundry API that names the UAA of the client [env: `SAMPLER_CF_API`]
    #[arg(long, global = true, value_name = "URL")]
    cf_api: Option<Url>,
    /// The issuer (OIDC) of the client, if it is not the UAA of a Cloud Foundry [env: `SAMPLER_OIDC_ISSUER`]
    #[arg(long, global = true, value_name = "URL")]
    oidc_issuer: Option<Url>,
}

/// The source of the token of each request.
#[derive(Debug)]
pub(crate) enum Token {
    None,
    Fixed(HeaderValue),
    Client(Arc<ClientCredentials>),
}

impl Connection {
    /// The platform that is read, for the one command that reads one. It names the token server of the
    /// client for the receiver, too, unless an issuer does.
    pub(crate) fn platform(&mut self) -> Result<Option<Url>, Failure> {
        let api = address(self.cf_api.as_ref(), "SAMPLER_CF_API")?;
        if self.oidc_issuer.is_some() {
            self.cf_api = None;
        }
        Ok(api)
    }

    /// The address, and the source of the token. Says so where a token would be sent in clear text.
    pub(crate) fn resolve(&self) -> Result<(Url, Token), Failure> {
        let url = address(self.url.as_ref(), "SAMPLER_URL")?
            .unwrap_or_else(|| Url::parse(URL_DEFAULT).expect("a fixed address"));
        if !is_web(&url) {
            return Err(input(format!("{url} is not an http or https address")));
        }
        let token = self.token()?;
        if !matches!(token, Token::None) && !is_private(&url) {
            warn("the token is sent without TLS");
        }
        Ok((url, token))
    }

    fn token(&self) -> Result<Token, Failure> {
        if let Some(token) = told(TOKEN_VARIABLE) {
            let token = bearer(&token);
            let what = || input(format!("{TOKEN_VARIABLE} holds no token"));
            return token.map(Token::Fixed).ok_or_else(what);
        }
        let given = self.client_id.clone();
        let Some(id) = given.or_else(|| told("SAMPLER_CLIENT_ID")) else {
            return Ok(Token::None);
        };
        let client = credentials(&id, SECRET_VARIABLE, || self.token_server())?;
        Ok(Token::Client(client))
    }

    /// The token server of the client. An option for the one comes before the variable of the other.
    fn token_server(&self) -> Result<TokenServer, Failure> {
        let one = "a client has one token server: --cf-api or --oidc-issuer";
        match (&self.cf_api, &self.oidc_issuer) {
            (Some(_), Some(_)) => Err(input(one)),
            (Some(api), None) => Ok(TokenServer::CloudFoundry(api.clone())),
            (None, Some(issuer)) => Ok(TokenServer::Oidc(issuer.clone())),
            (None, None) => {
                let api = address(None, "SAMPLER_CF_API")?.map(TokenServer::CloudFoundry);
                let issuer = address(None, "SAMPLER_OIDC_ISSUER")?.map(TokenServer::Oidc);
                api.or(issuer).ok_or_else(|| input(one))
            }
        }
    }
}

impl Token {
    /// The value of the header `Authorization`.
    pub(crate) async fn header(&self) -> Result<Option<HeaderValue>, NoToken> {
        match self {
            Self::None => Ok(None),
            Self::Fixed(token) => Ok(Some(token.clone())),
            Self::Client(client) => Ok(Some(client.token().await?.header())),
        }
    }

    /// Drops a token that was refused. Returns whether another attempt makes sense.
    pub(crate) async fn renew(&self) -> bool {
        let Self::Client(client) = self else {
            return false;
        };
        let token = client.token().await;
        token.is_ok_and(|token| {
            client.refused(&token);
            true
        })
    }
}

fn bearer(token: &str) -> Option<HeaderValue> {
    let token = token.trim();
    let is_token = !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic());
    let mut header = HeaderValue::from_str(&format!("Bearer {token}")).ok()?;
    header.set_sensitive(true);
    is_token.then_some(header)
}

/// The address of an option, or else of a variable. It is told in errors, so it must hold no secret.
fn address(given: Option<&Url>, variable: &str) -> Result<Option<Url>, Failure> {
    let parsed = |text: String| {
        Url::parse(&text).map_err(|error| input(format!("{variable} is no address: {error}")))
    };
    let url = match given {
        Some(url) => Some(url.clone()),
        None => told(variable).map(parsed).transpose()?,
    };
    if let Some(url) = &url
        && (!url.username().is_empty() || url.password().is_some())
    {
        let what = "an address must not have a user or a password in it";
        return Err(input(what));
    }
    Ok(url)
}

/// A client with a time limit. A loopback address is never asked through a proxy, and no redirect is followed,
/// which could lead the token elsewhere.
pub(crate) fn http(timeout: Duration) -> Result<reqwest::Client, Failure> {
    client(&HttpOptions {
        timeout,
        skip_ssl_validation: false,
        authorities: CaBundle::default(),
    })
    .map_err(|error| input(error.to_string()))
}

/// The client of a platform that is read, whose secret is in a variable of its own.
pub(crate) fn client_of_platform(api: &Url, id: &str) -> Result<Arc<ClientCredentials>, Failure> {
    let server = || Ok(TokenServer::CloudFoundry(api.clone()));
    credentials(id, PLATFORM_SECRET_VARIABLE, server)
}

/// A client that asks for all the scopes it has. Its secret is in a variable.
fn credentials(
    id: &str,
    variable: &str,
    server: impl FnOnce() -> Result<TokenServer, Failure>,
) -> Result<Arc<ClientCredentials>, Failure> {
    let what = || input(format!("{variable} must hold the secret of {id}"));
    let secret = told(variable).ok_or_else(what)?;
    let server = server()?;
    let address = server.address();
    if !is_web(address) || !is_private(address) {
        let what = format!("{address} is not an https address: the secret could be read");
        return Err(input(what));
    }
    Ok(ClientCredentials::new(Client {
        id: id.to_owned(),
        secret: secret.into(),
        scope: String::new(),
        audience: None,
        server: Discoverer::new(server, http(TOKEN_LIMIT)?, None),
    }))
}

fn input(what: impl Into<String>) -> Failure {
    Failure::Input(what.into())
}

/// Whether it is an address of HTTP, with a host.
fn is_web(url: &Url) -> bool {
    matches!(url.scheme(), "http" | "https") && url.host().is_some()
}

/// A variable of the environment, unless it is empty.
fn told(name: &str) -> Option<String> {
    let value = std::env::var(name).ok();
    value.filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_one_word() {
        assert_eq!(bearer(" a.b-c\n").unwrap(), "Bearer a.b-c");
        for wrong in ["", "\n", "a b", "a\u{e9}"] {
            assert!(bearer(wrong).is_none(), "{wrong:?}");
        }
    }
}
