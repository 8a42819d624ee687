//! Addresses of the console: as a browser has them, and from one page to another.

use http::HeaderMap;
use http::header::HOST;
use sampler_service::oauth::discovery::is_private;
use url::Url;

/// The headers in which a router in front names the scheme of the client's connection, and the
/// prefix of the path that the router has taken away.
const FORWARDED_PROTO: &str = "x-forwarded-proto";
const FORWARDED_PREFIX: &str = "x-forwarded-prefix";

/// The reference from the page at one path to another path, the same below any prefix.
pub(crate) fn relative(from: &str, to: &str) -> String {
    let depth = from.matches('/').count().saturating_sub(1);
    format!("{}{}", "../".repeat(depth), to.trim_start_matches('/'))
}

/// The address of this program, as the browser has it, without a slash at its end.
///
/// It is https, unless it is a plain connection to a loopback: elsewhere a session must not be sent
/// without TLS, so that a router in front is taken to have ended TLS.
pub(crate) fn of_request(headers: &HeaderMap) -> Option<String> {
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
    let is_plain = is_private(&plain) && !is_forwarded_tls;
    let scheme = if is_plain { "http" } else { "https" };
    let origin = Url::parse(&format!("{scheme}://{host}/")).ok()?;
    let origin = origin.as_str().trim_end_matches('/');
    Some(format!("{origin}{}", prefix(headers)))
}

/// Whether the cookies of a request are sent over TLS alone.
pub(crate) fn is_secure(headers: &HeaderMap) -> bool {
    of_request(headers).is_none_or(|address| address.starts_with("https:"))
}

/// The prefix that a router in front has taken away; empty where there is none.
fn prefix(headers: &HeaderMap) -> &str {
    let given = headers.get(FORWARDED_PREFIX);
    let prefix = given.and_then(|it| it.to_str().ok()).unwrap_or_default();
    let prefix = prefix.trim_end_matches('/');
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-._~".contains(&byte);
    let is_path = prefix.starts_with('/') && !prefix.contains("//") && prefix.bytes().all(is_plain);
    if is_path { prefix } else { "" }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn address(host: &str, pairs: &[(&'static str, &'static str)]) -> Option<String> {
        let mut headers = HeaderMap::new();
        headers.insert(HOST, HeaderValue::from_str(host).unwrap());
        for (name, value) in pairs {
            headers.insert(*name, HeaderValue::from_static(value));
        }
        of_request(&headers)
    }

    #[test]
    fn it_is_plain_on_a_loopback_alone() {
        for (host, proto, expected) in [
            ("127.0.0.1:7070", "", "http://127.0.0.1:7070"),
            ("localhost:7070", "http", "http://localhost:7070"),
            ("[::1]:7070", "", "http://[::1]:7070"),
            ("localhost", "https", "https://localhost"),
            ("sampler.example", "", "https://sampler.example"),
            ("sampler.example", "http", "https://sampler.example"),
        ] {
            let address = address(host, &[(FORWARDED_PROTO, proto)]);
            assert_eq!(address.as_deref(), Some(expected));
        }
    }

    #[test]
    fn a_host_that_is_more_than_a_host_is_none() {
        for host in ["a/b", "a@b", "user:word@b", "a?b", "a#b", "a\\b", ""] {
            assert_eq!(address(host, &[]), None, "{host}");
        }
    }

    #[test]
    fn a_router_may_have_taken_away_a_prefix() {
        for (given, prefix) in [
            ("/metering/", "/metering"),
            ("/a/b", "/a/b"),
            ("/", ""),
            ("metering", ""),
            ("//evil.example", ""),
            ("/a?b", ""),
        ] {
            let address = address("a.example", &[(FORWARDED_PREFIX, given)]);
            assert_eq!(address, Some(format!("https://a.example{prefix}")));
        }
    }

    #[test]
    fn a_reference_leads_from_a_page_to_another_below_any_prefix() {
        for (from, to, expected) in [
            ("/console", "/console", "console"),
            ("/console/", "/console", "../console"),
            ("/console/spans/a", "/console/spans", "../../console/spans"),
            ("/", "/console", "console"),
        ] {
            assert_eq!(relative(from, to), expected);
            let base = Url::parse("https://a.example/p").unwrap();
            let page = format!("{}{from}", base.path());
            let there = base.join(&page).unwrap().join(expected).unwrap();
            assert_eq!(there.path(), format!("/p{to}"));
        }
    }
}
