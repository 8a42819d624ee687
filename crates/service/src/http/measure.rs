//! The number and the times of requests, and the span of each in a trace.
//!
//! The labels of a metric are the route, as the router knows it, the method, if it is one of HTTP's,
//! and the status. So whatever clients send, there are only as many series as routes, methods and
//! statuses.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::extract::{MatchedPath, Request};
use axum::response::Response;
use http::{Method, StatusCode};
use pin_project_lite::pin_project;
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use sampler_metrics::{Histogram, Registry};
use tokio::time::Instant;
use tower::{Layer, Service};
use tracing::instrument::Instrumented;
use tracing::{Instrument, Span};

use super::trace;

sampler_metrics::metrics! {
    pub METRICS;

    /// Requests that were answered
    HTTP_REQUESTS = "sampler_http_requests_total", Counter,
        route: Bounded(
            "the path as the API documents it, such as `/v1/spans/{id}`; `unknown` for any other \
             path, `none` for a request that no route has seen"
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

/// The route of a request that is answered before its path is read.
const NONE: &str = "none";

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

    /// Counts a request that was answered before its path was read.
    pub(super) fn count_unrouted(&self, method: &Method, status: StatusCode) {
        self.count(Route::Word(NONE), method_name(method), status);
    }

    fn count(&self, route: Route, method: &'static str, status: StatusCode) {
        let labels = OfRequest {
            route,
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
    Word(&'static str),
}

impl Route {
    fn of<B>(request: &Request<B>) -> Self {
        let matched = request.extensions().get::<MatchedPath>();
        matched.map_or(Self::Word(UNKNOWN), |path| Self::Matched(path.clone()))
    }

    fn as_str(&self) -> &str {
        match self {
            Self::Matched(path) => path.as_str(),
            Self::Word(word) => word,
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

impl<S> Layer<S> for HttpMetrics {
    type Service = Measured<S>;

    fn layer(&self, inner: S) -> Measured<S> {
        let metrics = self.clone();
        Measured { inner, metrics }
    }
}

/// A route whose requests are counted and timed.
#[derive(Clone, Debug)]
pub struct Measured<S> {
    inner: S,
    metrics: HttpMetrics,
}

impl<S, B> Service<Request<B>> for Measured<S>
where
    S: Service<Request<B>, Response = Response>,
{
    type Response = Response;
    type Error = S::Error;
    type Future = Measuring<Instrumented<S::Future>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (route, method) = (Route::of(&request), method_name(request.method()));
        let span = trace::request_span(&request, method, route.as_str());
        let measurement = Measurement {
            metrics: self.metrics.clone(),
            route,
            method,
            span: span.clone(),
            began: Instant::now(),
            is_answering: false,
        };
        let inner = self.inner.call(request).instrument(span);
        Measuring { inner, measurement }
    }
}

pin_project! {
    /// A request that is being answered.
    pub struct Measuring<F> {
        #[pin]
        inner: F,
        measurement: Measurement,
    }
}

impl<F, E> Future for Measuring<F>
where
    F: Future<Output = Result<Response, E>>,
{
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        this.measurement.is_answering = true;
        let polled = this.inner.poll(context);
        this.measurement.is_answering = false;
        let answered = ready!(polled);
        if let Ok(answer) = &answered {
            this.measurement.note(answer.status());
        }
        Poll::Ready(answered)
    }
}

/// The measurement of a request, from before its answer. A client that goes away before that has no
/// answer, and is not counted.
struct Measurement {
    metrics: HttpMetrics,
    route: Route,
    method: &'static str,
    span: Span,
    began: Instant,
    /// Whether the handler has control. It still has where it has panicked.
    is_answering: bool,
}

impl Measurement {
    fn note(&self, status: StatusCode) {
        let (metrics, route) = (&self.metrics, self.route.clone());
        let seconds = self.began.elapsed().as_secs_f64();
        let of_route = OfRoute { route };
        metrics.seconds.get_or_create(&of_route).observe(seconds);
        metrics.count(of_route.route, self.method, status);
        trace::note_answer(&self.span, status);
    }
}

impl Drop for Measurement {
    /// The panic of a handler is answered 500 further out.
    fn drop(&mut self) {
        if self.is_answering {
            self.note(StatusCode::INTERNAL_SERVER_ERROR);
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::body::Body;
    use axum::routing::{any, get, post};

    use super::super::{answer, with_fallbacks};
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
            let router = with_fallbacks(router).layer(metrics);
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
