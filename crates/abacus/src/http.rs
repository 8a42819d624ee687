//! How requests to Abacus are sent, and the one place where its URLs are put together.

use std::sync::Arc;
use std::time::Duration;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::header::AUTHORIZATION;
use reqwest::{Client, RequestBuilder, Response, StatusCode};
use sampler_oauth::http::describe;
use sampler_oauth::{CaBundle, ClientCredentials, HttpOptions, TlsError};
use url::Url;

/// All that RFC 3986 does not call unreserved.
const PATH_SEGMENT: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// How to reach one of Abacus's services.
#[derive(Clone, Debug)]
pub struct AbacusOptions {
    /// Where the service is; paths are appended to this.
    pub url: Url,
    /// How long one request may take, from connecting to the end of the answer.
    pub timeout: Duration,
    /// Whether any certificate will do. For landscapes that have no better.
    pub skip_ssl_validation: bool,
    /// Whom to trust besides the system's authorities.
    pub authorities: CaBundle,
    /// Where the tokens come from that requests carry; without it they carry none.
    pub tokens: Option<Arc<ClientCredentials>>,
}

/// The client cannot be set up.
#[derive(Debug, thiserror::Error)]
#[error("the HTTP client cannot be set up")]
pub struct ClientError(#[from] TlsError);

/// Sends requests, each with the token of the moment.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    client: Client,
    tokens: Option<Arc<ClientCredentials>>,
}

impl Caller {
    pub(crate) fn new(options: &AbacusOptions) -> Result<Self, ClientError> {
        let client = sampler_oauth::http::client(&HttpOptions {
            timeout: options.timeout,
            skip_ssl_validation: options.skip_ssl_validation,
            authorities: options.authorities.clone(),
        })?;
        Ok(Self {
            client,
            tokens: options.tokens.clone(),
        })
    }

    pub(crate) fn post(&self, url: Url) -> RequestBuilder {
        self.client.post(url)
    }

    /// A request without a token, for what is open to all.
    pub(crate) fn get(&self, url: Url) -> RequestBuilder {
        self.client.get(url)
    }

    /// Sends a request. Where its token is refused it is sent once more with a new one: tokens can
    /// be revoked, and keys be changed, before their time. The error is one for the log.
    pub(crate) async fn send(&self, request: RequestBuilder) -> Result<Response, String> {
        let Some(tokens) = &self.tokens else {
            return request.send().await.map_err(describe);
        };
        let again = request.try_clone();
        let token = tokens.token().await.map_err(|error| error.to_string())?;
        let request = request.header(AUTHORIZATION, token.header());
        let response = request.send().await.map_err(describe)?;
        if response.status() != StatusCode::UNAUTHORIZED {
            return Ok(response);
        }
        match again {
            Some(again) if tokens.refused(&token) => {
                let token = tokens.token().await.map_err(|error| error.to_string())?;
                let again = again.header(AUTHORIZATION, token.header());
                again.send().await.map_err(describe)
            }
            Some(_) | None => Ok(response),
        }
    }
}

/// `base` with path segments appended, each percent-encoded.
///
/// A segment `.` or `..` is a step in the path however it is encoded (the URL standard has it so):
/// whoever takes such names from outside must refuse them.
pub(crate) fn join(base: &Url, segments: &[&str]) -> Url {
    let mut path = base.path().trim_end_matches('/').to_owned();
    for segment in segments {
        path.push('/');
        path.extend(utf8_percent_encode(segment, PATH_SEGMENT));
    }
    let mut url = base.clone();
    url.set_path(&path);
    url
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_encoded_and_slashes_do_not_double() {
        let join = |base: &str, segments: &[&str]| {
            super::join(&Url::parse(base).unwrap(), segments).to_string()
        };
        assert_eq!(join("http://a:1", &["v1", "x"]), "http://a:1/v1/x");
        assert_eq!(join("http://a:1/base/", &["v1"]), "http://a:1/base/v1");
        let odd = join("http://a", &["a/b?c#d e", "é%", "~-._"]);
        assert_eq!(odd, "http://a/a%2Fb%3Fc%23d%20e/%C3%A9%25/~-._");
    }
}
