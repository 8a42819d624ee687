//! The answers of every router, whatever its routes are.

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, HeaderValue,
    STRICT_TRANSPORT_SECURITY, X_CONTENT_TYPE_OPTIONS,
};
use http::{Method, StatusCode};
use metrics::{Counter, Histogram, counter, histogram};
use tokio::time::Instant;
use tower::Service;
use tower::util::MapRequestLayer;
use tracing::Instrument;

use super::request::{self, SERVED, Served};
use crate::problem::{Problem, kinds};

/// The header in which a router in front names the scheme of the client's connection.
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// For a year.
const KEEP_HTTPS: HeaderValue = HeaderValue::from_static("max-age=31536000");

/// Headers of an answer that a browser could show. It must not become a page: with what a client sent in it, or
/// framed by somebody else.
const NO_PAGE: [(HeaderName, HeaderValue); 3] = [
    (
        CONTENT_SECURITY_POLICY,
        HeaderValue::from_static(
            "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        ),
    ),
    (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    (CACHE_CONTROL, HeaderValue::from_static("no-store")),
];

/// A router, complete: paths that it does not know and methods that it does not offer are answered with problem
/// documents, too; requests are counted, timed and traced; and a handler that panics costs one answer, not the
/// connection. Clones are the same.
#[derive(Clone, Debug)]
pub struct Site {
    router: Router,
    answers: Arc<Answers>,
}

impl Site {
    pub fn new(router: Router) -> Self {
        let router = router
            .method_not_allowed_fallback(method_not_allowed)
            .fallback(not_found)
            // The one layer around a request: each costs some allocations.
            .layer(MapRequestLayer::new(request::note_route));
        Self {
            router,
            answers: Arc::default(),
        }
    }

    /// Answers a request.
    pub async fn answer(&self, request: Request) -> Response {
        let began = Instant::now();
        let method = method_name(request.method());
        let proto = request.headers().get(FORWARDED_PROTO);
        let is_https = proto.is_some_and(|it| it.as_bytes().eq_ignore_ascii_case(b"https"));
        let span = request::span(&request, method);
        let served = Served::new(request.headers());
        let answering = async {
            let answering = AssertUnwindSafe(self.router.clone().call(request)).catch_unwind();
            let answer = match answering.instrument(span.clone()).await {
                Ok(Ok(answer)) => answer,
                Ok(Err(never)) => match never {},
                // The panic hook has logged it.
                Err(_) => Problem::internal().into_response(),
            };
            let status = answer.status();
            SERVED.with(|served| {
                request::finish(&span, method, served.route(), status);
                let elapsed = began.elapsed();
                self.answers.count(served.route(), method, status, elapsed);
            });
            protect(answer, is_https)
        };
        SERVED.scope(served, answering).await
    }
}

/// The metrics of answers. Their handles are remembered: to find them by their labels costs more than to count.
#[derive(Debug, Default)]
struct Answers(Mutex<Vec<Series>>);

/// The labels are the route, as the router knows it, the method, if it is one of HTTP's, and the status. So whatever
/// clients send, there are only as many series as routes, methods and statuses.
#[derive(Debug)]
struct Series {
    route: String,
    method: &'static str,
    status: StatusCode,
    requests: Counter,
    seconds: Histogram,
}

impl Answers {
    fn count(&self, route: &str, method: &'static str, status: StatusCode, elapsed: Duration) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_it = |it: &Series| it.status == status && it.method == method && it.route == route;
        let index = all.iter().position(is_it).unwrap_or_else(|| {
            all.push(Series::new(route.to_owned(), method, status));
            all.len() - 1
        });
        all[index].requests.increment(1);
        all[index].seconds.record(elapsed);
    }
}

impl Series {
    fn new(route: String, method: &'static str, status: StatusCode) -> Self {
        let (name, code) = ("sampler_http_requests_total", status.as_str().to_owned());
        Self {
            requests: counter!(name, "route" => route.clone(), "method" => method, "status" => code),
            seconds: histogram!("sampler_http_request_duration_seconds", "route" => route.clone()),
            route,
            method,
            status,
        }
    }
}

/// The name of a method of HTTP. Any other is a word that a client has chosen.
fn method_name(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::PATCH => "PATCH",
        Method::DELETE => "DELETE",
        Method::OPTIONS => "OPTIONS",
        Method::CONNECT => "CONNECT",
        Method::TRACE => "TRACE",
        _ => "other",
    }
}

/// Adds the headers for browsers. One that a handler has set stays: a page needs a policy of its own. Browsers that
/// came over https come over https from now on (RFC 6797).
pub(super) fn protect(mut response: Response, is_https: bool) -> Response {
    let headers = response.headers_mut();
    if is_https {
        headers.insert(STRICT_TRANSPORT_SECURITY, KEEP_HTTPS);
    }
    if headers.contains_key(CONTENT_TYPE) {
        for (name, value) in NO_PAGE {
            headers.entry(name).or_insert(value);
        }
    }
    response
}

pub async fn not_found() -> Problem {
    Problem::new(&kinds::NOT_FOUND, "There is nothing at this address.")
}

/// The router adds `Allow`: it knows what the path offers.
pub(crate) async fn method_not_allowed() -> Problem {
    let detail = "This address does not support the method; the header Allow lists those it does.";
    Problem::new(&kinds::METHOD_NOT_ALLOWED, detail)
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use axum::routing::{any, get, post};
    use http_body_util::BodyExt;
    use serde_json::Value;

    use super::*;
    use crate::metrics::Metrics;

    const REQUESTS: &str = "sampler_http_requests_total";

    fn site() -> Site {
        let page = || async { ([("content-security-policy", "default-src 'self'")], "page") };
        let router = Router::new()
            .route("/two", get(async || "got").post(async || "posted"))
            .route("/page", get(page))
            .route("/empty", get(async || StatusCode::CREATED))
            .route("/things/{id}", get(async || "a thing"))
            .route("/broken", post(async || -> () { panic!("on purpose") }))
            .route("/v1/{*rest}", any(async || StatusCode::UNAUTHORIZED));
        Site::new(router)
    }

    async fn ask(site: &Site, method: &str, path: &str) -> Response {
        let request = Request::builder().method(method).uri(path);
        site.answer(request.body(Body::empty()).unwrap()).await
    }

    async fn problem(response: Response) -> Value {
        let content_type = &response.headers()["content-type"];
        assert_eq!(content_type, "application/problem+json");
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        serde_json::from_slice(&bytes).unwrap()
    }

    #[tokio::test]
    async fn what_the_router_does_not_answer_is_a_problem_that_reveals_nothing() {
        assert_eq!(ask(&site(), "POST", "/two").await.status(), 200);
        for (method, path, status, slug, allow) in [
            ("GET", "/three", 404, "not-found", None),
            (
                "DELETE",
                "/two",
                405,
                "method-not-allowed",
                Some("GET,HEAD,POST"),
            ),
            ("POST", "/broken", 500, "internal", None),
        ] {
            let response = ask(&site(), method, path).await;
            assert_eq!(response.status(), status, "{path}");
            let offered = response.headers().get("allow");
            assert_eq!(offered.map(|value| value.to_str().unwrap()), allow);
            let problem = problem(response).await;
            assert_eq!(problem["type"], format!("/problems/{slug}"));
            assert!(!problem.to_string().contains("purpose"), "{problem}");
        }
    }

    #[tokio::test]
    async fn whatever_a_browser_could_show_is_no_page_and_not_kept() {
        let header = |response: &Response, name: &str| {
            let value = response.headers().get(name)?;
            Some(value.to_str().unwrap().to_owned())
        };
        for (method, path, policy) in [
            ("GET", "/two", Some("default-src 'none'; ")),
            ("GET", "/nowhere", Some("default-src 'none'; ")),
            ("POST", "/broken", Some("default-src 'none'; ")),
            ("GET", "/page", Some("default-src 'self'")),
            ("GET", "/empty", None),
        ] {
            let response = ask(&site(), method, path).await;
            let found = header(&response, "content-security-policy");
            assert_eq!(found.is_some(), policy.is_some(), "{path}");
            let starts = found
                .zip(policy)
                .is_none_or(|(all, part)| all.starts_with(part));
            assert!(starts, "{path}");
            let [sniffing, caching] =
                ["x-content-type-options", "cache-control"].map(|name| header(&response, name));
            assert_eq!(sniffing.as_deref(), policy.map(|_| "nosniff"), "{path}");
            assert_eq!(caching.as_deref(), policy.map(|_| "no-store"), "{path}");
        }
    }

    /// The samples of a metric, without its name.
    fn samples(metrics: &Metrics, name: &str) -> Vec<String> {
        let text = metrics.render();
        let of_metric = text.lines().filter_map(|line| line.strip_prefix(name));
        let mut samples: Vec<_> = of_metric.map(str::to_owned).collect();
        samples.sort_unstable();
        samples
    }

    #[tokio::test]
    async fn a_request_is_counted_and_timed_by_its_route_and_its_answer() {
        let (recorder, metrics) = Metrics::new("sampler-receiver", "1");
        let _counting = metrics::set_default_local_recorder(&recorder);
        let site = site();
        for (method, path) in [
            ("GET", "/things/1"),
            ("GET", "/things/2?a=b"),
            ("PUT", "/things/2"),
            ("POST", "/broken"),
        ] {
            ask(&site, method, path).await;
        }
        let expected = [
            r#"{route="/broken",method="POST",status="500"} 1"#,
            r#"{route="/things/{id}",method="GET",status="200"} 2"#,
            r#"{route="/things/{id}",method="PUT",status="405"} 1"#,
        ];
        assert_eq!(samples(&metrics, REQUESTS), expected);
        let counts = samples(&metrics, "sampler_http_request_duration_seconds_count");
        assert_eq!(
            counts,
            [r#"{route="/broken"} 1"#, r#"{route="/things/{id}"} 3"#]
        );
    }

    #[tokio::test]
    async fn whatever_clients_send_there_are_no_more_series() {
        let (recorder, metrics) = Metrics::new("sampler-receiver", "1");
        let _counting = metrics::set_default_local_recorder(&recorder);
        let site = site();
        for number in 0..500 {
            for path in [
                format!("/{number}"),
                format!("/things/{number}"),
                format!("/things/{number}/more"),
                format!("/v1/{number}/%0A%22"),
                format!("//{number}?{number}"),
            ] {
                ask(&site, &format!("GET{number}"), &path).await;
            }
        }
        let expected = [
            r#"{route="/things/{id}",method="other",status="405"} 500"#,
            r#"{route="/v1/{*rest}",method="other",status="401"} 500"#,
            r#"{route="unknown",method="other",status="404"} 1500"#,
        ];
        assert_eq!(samples(&metrics, REQUESTS), expected);
    }
}
