//! Where the token of a request comes from.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use reqwest::header::HeaderValue;
use sampler_service::oauth::{AccessToken, ClientCredentials};
use secrecy::{ExposeSecret, SecretString};

use crate::failure::Failure;

/// Holds a token. It is not an argument: other users of a machine can read those.
pub(crate) const TOKEN_VARIABLE: &str = "SAMPLER_TOKEN";

/// Where a token comes from.
#[derive(Debug)]
pub(crate) enum Token {
    None,
    /// That of the variable.
    Fixed(SecretString),
    /// A file is read for each request: another program may renew the token in it.
    File(PathBuf),
    Credentials(Credentials),
}

/// A client of the token server.
#[derive(Debug)]
pub(crate) struct Credentials {
    source: Arc<ClientCredentials>,
    last: Mutex<Option<AccessToken>>,
}

impl Token {
    pub(crate) fn of(source: Arc<ClientCredentials>) -> Self {
        Self::Credentials(Credentials {
            source,
            last: Mutex::default(),
        })
    }

    /// Looks at what is there, before anything is sent.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        match self {
            Self::None | Self::Credentials(_) => Ok(()),
            Self::Fixed(token) => fixed(token).map(|_| ()),
            Self::File(path) => from_file(path).map(|_| ()),
        }
    }

    /// The value of the header `Authorization`.
    pub(crate) async fn header(&self) -> Result<Option<HeaderValue>, Failure> {
        match self {
            Self::None => Ok(None),
            Self::Fixed(token) => fixed(token).map(Some),
            Self::File(path) => from_file(path).map(Some),
            Self::Credentials(credentials) => credentials.header().await.map(Some),
        }
    }

    /// Whether another token may be had after this one was refused.
    pub(crate) fn may_be_renewed(&self) -> bool {
        match self {
            Self::None | Self::Fixed(..) => false,
            Self::File(_) => true,
            Self::Credentials(credentials) => {
                let last = credentials
                    .last
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner);
                last.as_ref()
                    .is_some_and(|token| credentials.source.refused(token))
            }
        }
    }
}

impl Credentials {
    async fn header(&self) -> Result<HeaderValue, Failure> {
        let token = self
            .source
            .token()
            .await
            .map_err(|error| Failure::Input(error.to_string()))?;
        let header = token.header();
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(token);
        Ok(header)
    }
}

fn fixed(token: &SecretString) -> Result<HeaderValue, Failure> {
    let header = bearer(token.expose_secret());
    header.ok_or_else(|| Failure::Input(format!("{TOKEN_VARIABLE} holds no token")))
}

fn from_file(path: &Path) -> Result<HeaderValue, Failure> {
    let shown = path.display();
    let text = fs::read_to_string(path)
        .map(SecretString::from)
        .map_err(|error| Failure::Input(format!("{shown}: {error}")))?;
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
