//! How to reach the API, for every command that needs it.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use reqwest::header::HeaderValue;
use secrecy::{ExposeSecret, SecretString};
use url::{Host, Url};

use crate::failure::Failure;

/// Holds a token. It is no argument: other users of a machine can read those.
const TOKEN_VARIABLE: &str = "SAMPLER_TOKEN";

/// Where the API is, and the token for it.
#[derive(Debug, Args)]
#[command(next_help_heading = "Connection")]
pub(crate) struct Connection {
    /// The address of the receiver
    #[arg(
        long,
        env = "SAMPLER_URL",
        hide_env_values = true,
        default_value = "http://localhost:7070"
    )]
    pub(crate) url: Url,
    /// A file with the token; otherwise `SAMPLER_TOKEN` holds it, or there is none
    #[arg(
        long,
        env = "SAMPLER_TOKEN_FILE",
        hide_env_values = true,
        value_name = "FILE"
    )]
    token_file: Option<PathBuf>,
}

/// Where a token comes from. A file is read again when its token is refused.
#[derive(Clone, Debug)]
pub(crate) enum Token {
    None,
    Fixed(SecretString),
    File(PathBuf),
}

impl Connection {
    /// The source of the token. Says so where a token would be sent in clear text.
    pub(crate) fn token(&self) -> Result<Token, Failure> {
        if !matches!(self.url.scheme(), "http" | "https") || self.url.host().is_none() {
            let url = &self.url;
            return Err(Failure::Input(format!("{url} is no http or https address")));
        }
        let token = match (&self.token_file, std::env::var(TOKEN_VARIABLE)) {
            (Some(path), _) => Token::File(path.clone()),
            (None, Ok(token)) if !token.is_empty() => Token::Fixed(token.into()),
            (None, _) => Token::None,
        };
        if !matches!(token, Token::None) && self.url.scheme() == "http" && !self.is_loopback() {
            eprintln!("warning: the token is sent without TLS");
        }
        token.header().map(|_| token)
    }

    fn is_loopback(&self) -> bool {
        match self.url.host() {
            Some(Host::Domain(name)) => name == "localhost",
            Some(Host::Ipv4(address)) => address.is_loopback(),
            Some(Host::Ipv6(address)) => address.is_loopback(),
            None => false,
        }
    }
}

impl Token {
    /// The value of the header `Authorization`.
    pub(crate) fn header(&self) -> Result<Option<HeaderValue>, Failure> {
        match self {
            Self::None => Ok(None),
            Self::Fixed(token) => {
                let wrong = || Failure::Input(format!("{TOKEN_VARIABLE} holds no token"));
                bearer(token.expose_secret()).map(Some).ok_or_else(wrong)
            }
            Self::File(path) => from_file(path).map(Some),
        }
    }
}

fn from_file(path: &Path) -> Result<HeaderValue, Failure> {
    let shown = path.display();
    let text = fs::read_to_string(path).map(SecretString::from);
    let text = text.map_err(|error| Failure::Input(format!("{shown}: {error}")))?;
    let header = bearer(text.expose_secret());
    header.ok_or_else(|| Failure::Input(format!("{shown} holds no token")))
}

fn bearer(token: &str) -> Option<HeaderValue> {
    let token = token.trim();
    let is_token = !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic());
    let mut header = HeaderValue::from_str(&format!("Bearer {token}")).ok()?;
    header.set_sensitive(true);
    is_token.then_some(header)
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
