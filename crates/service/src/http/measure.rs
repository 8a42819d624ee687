//! The number and the times of requests, and the span of each in a trace.
//!
//! The labels of a metric are the route, as the router knows it, the method, if it is one of HTTP's,
//! and the status. So whatever clients send, there are only as many series as routes, methods and
//! statuses.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;
use http::{Method, StatusCode};
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use sampler_metrics::{Histogram, Registry};
use tokio::time::Instant;
use tracing::Instrument;

use super::{browser, trace};
use crate::problem::Problem;

sampler_metrics::metrics! {
    pub METRICS;

    /// Requests that were answered
    HTTP_REQUESTS = "sampler_http_requests_total", Counter,
        route: Bounded(
            "the path as the API documents it, such as `/v1/spans/{id}`; `unknown` for any other path"
        ),
        method: Bounded("the methods of HTTP; `other` for any other word"),
        status: Bounded("the statuses that the program answers");

    /// The time from the head of a request to the head of its answer
    HTTP_REQUEST_DURATION_SECONDS = "sampler_http_request_duration_seconds", Histogram(REQUEST_SECONDS),
        route: Bounded("as above");
}

/// From half a millisecond, for what a receiver answers from memory, to the longest wait for a turn
/// and for the database.
const REQUEST_SECONDS: &[f64] = &[
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
];

/// The route of a path that the program does not serve.
const UNKNOWN: &str = "unknown";

/// Counts and times requests. Clones count into the same metrics.
#[derive(Clone, Debug)]
pub struct HttpMetrics {
    requests: Family<OfRequest, Counter>,
    seconds: Family<OfRoute, Histogram, fn() -> Histogram>,
}

impl Default for HttpMetrics {
    fn default() -> Self {
        Self {
            requests: Family::default(),
            seconds: Family::new_with_constructor(|| HTTP_REQUEST_DURATION_SECONDS.histogram()),
        }
    }
}

impl HttpMetrics {
    pub fn register(&self, registry: &mut Registry) {
        registry.register(&HTTP_REQUESTS, self.requests.clone());
        registry.register(&HTTP_REQUEST_DURATION_SECONDS, self.seconds.clone());
    }

    fn note(&self, route: Route, method: &'static str, status: StatusCode, elapsed: Duration) {
        let of_route = OfRoute { route };
        let seconds = self.seconds.get_or_create(&of_route);
        seconds.observe(elapsed.as_secs_f64());
        let labels = OfRequest {
            route: of_route.route,
            method,
            status: status.as_u16(),
        };
        self.requests.get_or_create(&labels).inc();
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

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfRequest {
    route: Route,
    method: &'static str,
    status: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfRoute {
    route: Route,
}

/// A route, as a label.
#[derive(Clone, Debug)]
enum Route {
    Matched(MatchedPath),
    Unknown,
}

impl Route {
    fn of<B>(request: &Request<B>) -> Self {
        let matched = request.extensions().get::<MatchedPath>();
        matched.map_or(Self::Unknown, |path| Self::Matched(path.clone()))
    }

    fn as_str(&self) -> &str {
        match self {
            Self::Matched(path) => path.as_str(),
            Self::Unknown => UNKNOWN,
        }
    }
}

impl PartialEq for Route {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for Route {}

impl std::hash::Hash for Route {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}

impl EncodeLabelValue for Route {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> std::fmt::Result {
        self.as_str().encode(encoder)
    }
}

/// Answers a request, counts and times it, and traces it. Each line that is logged for it has the ids that it came
/// with. A handler that panics is answered 500: the panic hook has logged it.
pub(super) async fn observe(
    State(metrics): State<HttpMetrics>,
    request: Request,
    next: Next,
) -> Response {
    let began = Instant::now();
    let (route, method) = (Route::of(&request), method_name(request.method()));
    let is_https = browser::is_forwarded_https(request.headers());
    let ids = trace::ids(request.headers());
    // Within the span of the ids: the log knows by that one which lines a request caused.
    let span = ids.in_scope(|| trace::request_span(&request, method, route.as_str()));
    let answering = AssertUnwindSafe(next.run(request)).catch_unwind();
    let answered = answering.instrument(span.clone()).instrument(ids).await;
    let answer = answered.unwrap_or_else(|_| Problem::internal().into_response());
    trace::note_answer(&span, answer.status());
    metrics.note(route, method, answer.status(), began.elapsed());
    browser::protect(answer, is_https)
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::body::Body;
    use axum::routing::{any, get, post};

    use super::super::{answer, complete};
    use super::*;

    struct World {
        router: Router,
        registry: Registry,
    }

    impl World {
        fn new() -> Self {
            let metrics = HttpMetrics::default();
            let mut registry = Registry::new("sampler-receiver", "1");
            metrics.register(&mut registry);
            let router = Router::new()
                .route("/things/{id}", get(async || "a thing"))
                .route("/broken", post(async || -> () { panic!("on purpose") }))
                .route("/v1/{*rest}", any(async || StatusCode::UNAUTHORIZED));
            let router = complete(router, metrics);
            Self { router, registry }
        }

        async fn send(&self, method: &str, path: &str) {
            let request = Request::builder().method(method).uri(path);
            let request = request.body(Body::empty()).unwrap();
            answer(self.router.clone(), request).await;
        }

        /// The samples of a metric, without its name.
        fn samples(&self, name: &str) -> Vec<String> {
            let text = self.registry.encode().unwrap();
            let of_metric = text.lines().filter_map(|line| line.strip_prefix(name));
            let mut samples: Vec<_> = of_metric.map(str::to_owned).collect();
            samples.sort_unstable();
            samples
        }
    }

    const REQUESTS: &str = "sampler_http_requests_total";

    #[tokio::test]
    async fn a_request_is_counted_and_timed_by_its_route() {
        let world = World::new();
        world.send("GET", "/things/1").await;
        world.send("GET", "/things/2?a=b").await;
        world.send("PUT", "/things/2").await;
        let expected = [
            r#"{route="/things/{id}",method="GET",status="200"} 2"#,
            r#"{route="/things/{id}",method="PUT",status="405"} 1"#,
        ];
        assert_eq!(world.samples(REQUESTS), expected);
        let count = world.samples("sampler_http_request_duration_seconds_count");
        assert_eq!(count, [r#"{route="/things/{id}"} 3"#]);
    }

    #[tokio::test]
    async fn a_panic_is_counted_as_what_it_is_answered_with() {
        let world = World::new();
        world.send("POST", "/broken").await;
        let expected = [r#"{route="/broken",method="POST",status="500"} 1"#];
        assert_eq!(world.samples(REQUESTS), expected);
    }

    #[tokio::test]
    async fn whatever_clients_send_there_are_no_more_series() {
        let world = World::new();
        for number in 0..500 {
            for path in [
                format!("/{number}"),
                format!("/things/{number}"),
                format!("/things/{number}/more"),
                format!("/v1/{number}/%0A%22"),
                format!("//{number}?{number}"),
            ] {
                world.send(&format!("GET{number}"), &path).await;
            }
        }
        let expected = [
            r#"{route="/things/{id}",method="other",status="405"} 500"#,
            r#"{route="/v1/{*rest}",method="other",status="401"} 500"#,
            r#"{route="unknown",method="other",status="404"} 1500"#,
        ];
        assert_eq!(world.samples(REQUESTS), expected);
    }
}
