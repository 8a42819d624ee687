//! For which host a request is.
//!
//! A server that needs no tokens and listens on a loopback serves programs of this machine, and browsers
//! are among them. A page of a stranger can have its name lead to 127.0.0.1 (DNS rebinding): its requests
//! are of its own origin then, and only `Host` distinguishes them from others.

use std::net::IpAddr;

use http::uri::Authority;
use http::{HeaderMap, header};

/// The name of this machine (RFC 6761), and the end of others.
const LOCALHOST: &str = "localhost";

/// Whether a request is for this machine. One without a host comes from no browser.
pub(super) fn is_this_machine(headers: &HeaderMap) -> bool {
    let Some(host) = headers.get(header::HOST) else {
        return true;
    };
    let authority = Authority::try_from(host.as_bytes());
    authority.is_ok_and(|authority| is_loopback(authority.host()))
}

fn is_loopback(host: &str) -> bool {
    let inner = host
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    if let Ok(address) = inner.unwrap_or(host).parse::<IpAddr>() {
        return address.is_loopback();
    }
    host.to_ascii_lowercase()
        .strip_suffix(LOCALHOST)
        .is_some_and(|before| before.is_empty() || before.ends_with('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_these_names_and_no_others() {
        for host in [
            "localhost",
            "LocalHost",
            "a.localhost",
            "127.0.0.1",
            "127.1.2.3",
            "[::1]",
        ] {
            assert!(is_loopback(host), "{host}");
        }
        for host in [
            "evil.example",
            "evillocalhost",
            "localhost.evil.example",
            "10.0.0.1",
            "127.0.0.1.evil.example",
            "[::2]",
            "",
        ] {
            assert!(!is_loopback(host), "{host}");
        }
    }
}
