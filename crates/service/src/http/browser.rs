//! Headers for answers that a browser could show.
//!
//! Most answers are no pages. But each can be opened in a browser, where it must not become a page: with
//! what a client sent in it, or framed by somebody else.

use axum::response::Response;
use http::HeaderMap;
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, HeaderValue,
    STRICT_TRANSPORT_SECURITY, X_CONTENT_TYPE_OPTIONS,
};

/// The header in which a router in front names the scheme of the client's connection.
const FORWARDED_PROTO: &str = "x-forwarded-proto";

/// For a year.
const KEEP_HTTPS: HeaderValue = HeaderValue::from_static("max-age=31536000");

const HEADERS: [(HeaderName, HeaderValue); 3] = [
    (
        CONTENT_SECURITY_POLICY,
        HeaderValue::from_static(
            "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        ),
    ),
    (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    (CACHE_CONTROL, HeaderValue::from_static("no-store")),
];

/// Adds the headers to an answer with a body. A header that a handler has set stays: a page needs a
/// policy of its own. Browsers that came over https come over https from now on (RFC 6797).
pub(super) fn protect(mut response: Response, is_https: bool) -> Response {
    let headers = response.headers_mut();
    if is_https {
        headers.insert(STRICT_TRANSPORT_SECURITY, KEEP_HTTPS);
    }
    if headers.contains_key(CONTENT_TYPE) {
        for (name, value) in HEADERS {
            headers.entry(name).or_insert(value);
        }
    }
    response
}

/// Whether a router in front has ended TLS.
pub(super) fn is_forwarded_https(headers: &HeaderMap) -> bool {
    let proto = headers.get(FORWARDED_PROTO);
    proto.is_some_and(|proto| proto.as_bytes().eq_ignore_ascii_case(b"https"))
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::body::Body;
    use axum::extract::Request;
    use axum::routing::get;
    use http::StatusCode;

    use crate::http::{answer, complete};

    async fn headers(path: &str) -> [Option<String>; 3] {
        let page = || async { ([("content-security-policy", "default-src 'self'")], "page") };
        let router = Router::new()
            .route("/text", get(async || "text"))
            .route("/page", get(page))
            .route("/empty", get(async || StatusCode::CREATED))
            .route("/broken", get(async || -> () { panic!("on purpose") }));
        let request = Request::get(path).body(Body::empty()).unwrap();
        let response = answer(complete(router), request).await;
        let header = |name: &str| {
            let value = response.headers().get(name)?;
            Some(value.to_str().unwrap().to_owned())
        };
        let names = [
            "content-security-policy",
            "x-content-type-options",
            "cache-control",
        ];
        names.map(header)
    }

    #[tokio::test]
    async fn whatever_a_browser_could_show_is_no_page_and_not_kept() {
        let rest = ["nosniff", "no-store"].map(|value| Some(value.to_owned()));
        for path in ["/text", "/nowhere", "/broken", "/page"] {
            let [policy, sniffing, caching] = headers(path).await;
            assert_eq!([sniffing, caching], rest, "{path}");
            let policy = policy.unwrap();
            let begin = match path {
                "/page" => "default-src 'self'",
                _ => "default-src 'none'; ",
            };
            assert!(policy.starts_with(begin), "{path}: {policy}");
        }
        assert_eq!(headers("/empty").await, [None, None, None]);
    }
}
