//! Under which address a request came: the one that a browser is sent back to.

use http::HeaderMap;
use http::header::HOST;
use sampler_oauth::discovery::is_private;
use url::Url;

/// The header in which a router in front names the scheme of the client's connection.
const FORWARDED_PROTO: &str = "x-forwarded-proto";

/// The address of this program, as the browser has it.
///
/// It is https, unless it is a plain connection to a loopback: elsewhere a session must not be sent
/// without TLS, so that a router in front is taken to have ended TLS.
pub(crate) fn of_request(headers: &HeaderMap) -> Option<Url> {
    let host = headers.get(HOST)?.to_str().ok()?;
    let plain = Url::parse(&format!("http://{host}/")).ok()?;
    // A host with a path, or a name and a password, is not a host.
    let is_host = plain.path() == "/" && plain.username().is_empty() && plain.query().is_none();
    if !is_host || plain.password().is_some() || host.contains(['/', '?', '#', '@', '\\']) {
        return None;
    }
    let is_forwarded_tls = headers
        .get(FORWARDED_PROTO)
        .is_some_and(|proto| proto.as_bytes().eq_ignore_ascii_case(b"https"));
    if is_private(&plain) && !is_forwarded_tls {
        return Some(plain);
    }
    Url::parse(&format!("https://{host}/")).ok()
}

/// Whether the cookies of a request are sent over TLS alone.
pub(crate) fn is_secure(headers: &HeaderMap) -> bool {
    of_request(headers).is_none_or(|address| address.scheme() == "https")
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn address(host: &str, proto: Option<&'static str>) -> Option<String> {
        let mut headers = HeaderMap::new();
        headers.insert(HOST, HeaderValue::from_str(host).unwrap());
        if let Some(proto) = proto {
            headers.insert(FORWARDED_PROTO, HeaderValue::from_static(proto));
        }
        of_request(&headers).map(|url| url.to_string())
    }

    #[test]
    fn it_is_plain_on_a_loopback_alone() {
        for (host, proto, expected) in [
            ("127.0.0.1:7070", None, "http://127.0.0.1:7070/"),
            ("localhost:7070", Some("http"), "http://localhost:7070/"),
            ("[::1]:7070", None, "http://[::1]:7070/"),
            ("localhost", Some("https"), "https://localhost/"),
            ("sampler.example", None, "https://sampler.example/"),
            ("sampler.example", Some("http"), "https://sampler.example/"),
        ] {
            assert_eq!(address(host, proto).as_deref(), Some(expected));
        }
    }

    #[test]
    fn a_host_that_is_more_than_a_host_is_none() {
        for host in ["a/b", "a@b", "user:word@b", "a?b", "a#b", "a\\b", ""] {
            assert_eq!(address(host, None), None, "{host}");
        }
    }
}
