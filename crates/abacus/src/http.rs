//! The HTTP client towards Abacus, and the one place where its URLs are put together.

use std::error::Error;
use std::time::Duration;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::Client;
use reqwest::redirect::Policy;
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
}

/// The client cannot be set up.
#[derive(Debug, thiserror::Error)]
#[error("the HTTP client cannot be set up")]
pub struct ClientError(#[from] reqwest::Error);

/// A client that keeps its connections, takes no redirects for answers, and never waits for ever.
pub(crate) fn client(options: &AbacusOptions) -> Result<Client, ClientError> {
    Ok(Client::builder()
        .user_agent(concat!("sampler/", env!("CARGO_PKG_VERSION")))
        .timeout(options.timeout)
        .connect_timeout(options.timeout.min(Duration::from_secs(10)))
        .pool_idle_timeout(Duration::from_mins(1))
        .tcp_nodelay(true)
        .redirect(Policy::none())
        .danger_accept_invalid_certs(options.skip_ssl_validation)
        .build()?)
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

/// What went wrong, with its causes, without the URL.
pub(crate) fn describe(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
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
