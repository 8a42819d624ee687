//! The one constructor of HTTP clients, and what reads their answers.

use std::path::Path;
use std::time::Duration;

use reqwest::redirect::Policy;
use reqwest::{Certificate, NoProxy, Proxy};
use sampler_domain::text::error_chain;

/// What is never asked through a proxy, besides what `NO_PROXY` names.
const LOOPBACK: &str = "localhost,127.0.0.0/8,::1";

/// Certificate authorities that are trusted besides the system's.
#[derive(Clone, Debug, Default)]
pub struct CaBundle(Vec<Certificate>);

impl CaBundle {
    /// Reads a file of certificates, one PEM after the other. None where it cannot be read, or has none.
    pub fn read(path: &Path) -> Option<Self> {
        let file = std::fs::read(path).ok()?;
        let certificates = Certificate::from_pem_bundle(&file).ok()?;
        (!certificates.is_empty()).then_some(Self(certificates))
    }
}

/// A certificate or the address of a proxy is invalid.
#[derive(Debug, thiserror::Error)]
#[error("the HTTP client cannot be set up")]
pub struct TlsError(#[from] reqwest::Error);

#[derive(Clone, Debug)]
pub struct HttpOptions {
    /// How long one request may take, from connecting to the end of the answer.
    pub timeout: Duration,
    /// Whether any certificate is accepted, for test landscapes.
    pub skip_ssl_validation: bool,
    /// Certificate authorities to trust besides the system's.
    pub authorities: CaBundle,
}

/// Creates a client that keeps its connections, follows no redirects, and has time limits. Proxies are
/// those of the environment, as curl reads it; a loopback address is never asked through one.
pub fn client(options: &HttpOptions) -> Result<reqwest::Client, TlsError> {
    client_with(options, |name| std::env::var(name).ok())
}

/// The same with the environment as an argument.
fn client_with(
    options: &HttpOptions,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<reqwest::Client, TlsError> {
    let builder = reqwest::Client::builder()
        .user_agent(concat!("sampler/", env!("CARGO_PKG_VERSION")))
        .timeout(options.timeout)
        .connect_timeout(options.timeout.min(Duration::from_secs(10)))
        .pool_idle_timeout(Duration::from_mins(1))
        .tcp_nodelay(true)
        .redirect(Policy::none())
        .tls_certs_merge(options.authorities.0.iter().cloned())
        .tls_danger_accept_invalid_certs(options.skip_ssl_validation)
        .no_proxy();
    let proxies = proxies(variable)?.into_iter();
    let builder = proxies.fold(builder, reqwest::ClientBuilder::proxy);
    Ok(builder.build()?)
}

/// The proxies that the environment names, the more particular ones first.
fn proxies(variable: impl Fn(&str) -> Option<String>) -> reqwest::Result<Vec<Proxy>> {
    let set = |upper: &str| {
        let value = variable(&upper.to_ascii_lowercase()).or_else(|| variable(upper));
        value.filter(|value| !value.trim().is_empty())
    };
    let unproxied = match set("NO_PROXY") {
        Some(hosts) => format!("{hosts},{LOOPBACK}"),
        None => LOOPBACK.to_owned(),
    };
    let named = [
        set("HTTPS_PROXY").map(Proxy::https),
        set("HTTP_PROXY").map(Proxy::http),
        set("ALL_PROXY").map(Proxy::all),
    ];
    let proxies = named.into_iter().flatten();
    proxies
        .map(|proxy| Ok(proxy?.no_proxy(NoProxy::from_string(&unproxied))))
        .collect()
}

/// The body of an answer; none where it is longer than `len_max` bytes.
pub async fn read_body(
    mut response: reqwest::Response,
    len_max: usize,
) -> reqwest::Result<Option<Vec<u8>>> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        if body.len() + chunk.len() > len_max {
            return Ok(None);
        }
        body.extend_from_slice(&chunk);
    }
    Ok(Some(body))
}

/// An error with its causes, without the URL.
pub fn describe(error: reqwest::Error) -> String {
    error_chain(&error.without_url())
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    const ANSWER: &[u8] = b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n";

    /// Accepts one connection and answers it. Returns the first line of the request.
    async fn serve_one(listener: TcpListener) -> String {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut head = vec![0; 4096];
        let length = stream.read(&mut head).await.unwrap();
        stream.write_all(ANSWER).await.unwrap();
        let head = String::from_utf8_lossy(&head[..length]).into_owned();
        head.lines().next().unwrap_or_default().to_owned()
    }

    async fn listen() -> (TcpListener, u16) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        (listener, port)
    }

    fn client_behind(variables: &[(&str, &str)]) -> reqwest::Client {
        let options = HttpOptions {
            timeout: Duration::from_secs(10),
            skip_ssl_validation: false,
            authorities: CaBundle::default(),
        };
        let value_of = |name: &str| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        client_with(&options, value_of).unwrap()
    }

    #[tokio::test]
    async fn a_loopback_address_is_asked_without_the_proxy() {
        let (listener, port) = listen().await;
        let serving = tokio::spawn(serve_one(listener));
        // Nothing listens there: a request that goes there fails.
        let client = client_behind(&[("HTTP_PROXY", "http://127.0.0.1:1"), ("NO_PROXY", "other")]);
        let answer = client.get(format!("http://127.0.0.1:{port}/path")).send();
        assert_eq!(answer.await.unwrap().status(), 204);
        assert_eq!(serving.await.unwrap(), "GET /path HTTP/1.1");
    }

    #[tokio::test]
    async fn other_addresses_are_asked_through_the_proxy_unless_they_are_named() {
        let (listener, port) = listen().await;
        let serving = tokio::spawn(serve_one(listener));
        let proxy = format!("http://127.0.0.1:{port}");
        let variables = [("all_proxy", proxy.as_str()), ("no_proxy", "named.invalid")];
        let client = client_behind(&variables);
        let named = client.get("http://named.invalid/").send().await;
        assert!(named.is_err(), "it has no address, and no proxy");
        let answer = client.get("http://other.invalid/path").send().await;
        assert_eq!(answer.unwrap().status(), 204);
        let line = serving.await.unwrap();
        assert_eq!(line, "GET http://other.invalid/path HTTP/1.1");
    }
}
