//! What is known of the request that a task serves: its ids, its route, and who sends it. So a line of the log can
//! tell them, and no span is made for a request whose traces nobody collects.

use std::cell::OnceCell;

use axum::body::Body;
use axum::extract::MatchedPath;
use http::{HeaderMap, HeaderName, HeaderValue, Request, StatusCode};
use opentelemetry::Context;
use opentelemetry::propagation::TextMapPropagator;
use opentelemetry::trace::TraceContextExt;
use opentelemetry_http::HeaderExtractor;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use sampler_domain::ClientId;
use sampler_store::TRACE;
use tracing::field::Empty;
use tracing::{Span, info, trace_span};
use tracing_opentelemetry::OpenTelemetrySpanExt;

use crate::problem::Problem;

/// The parent of the request in its trace (W3C Trace Context).
const PARENT: HeaderName = HeaderName::from_static("traceparent");

/// The header in which the router of Cloud Foundry names the request.
const VCAP_REQUEST: HeaderName = HeaderName::from_static("x-vcap-request-id");

/// The longest id of a request, in bytes; Cloud Foundry's has 36.
const REQUEST_ID_MAX: usize = 64;

/// The route of a path that the program does not serve.
const UNKNOWN: &str = "unknown";

tokio::task_local! {
    pub(super) static SERVED: Served;
}

/// A request that is being served.
pub(super) struct Served {
    parent: Option<HeaderValue>,
    id: Option<HeaderValue>,
    route: OnceCell<MatchedPath>,
    /// The client that its token names, once the token was found good.
    client: OnceCell<Option<ClientId>>,
}

impl Served {
    pub(super) fn new(headers: &HeaderMap) -> Self {
        Self {
            parent: headers.get(PARENT).cloned(),
            id: headers.get(VCAP_REQUEST).cloned(),
            route: OnceCell::new(),
            client: OnceCell::new(),
        }
    }

    pub(super) fn route(&self) -> &str {
        self.route.get().map_or(UNKNOWN, MatchedPath::as_str)
    }

    /// The trace that the request is a part of, in its own form whatever a client sends.
    fn trace_id(&self) -> Option<String> {
        let parent = self.parent.clone()?;
        let context = parent_in(&HeaderMap::from_iter([(PARENT, parent)]));
        let span = context.span();
        let context = span.span_context();
        context.is_valid().then(|| context.trace_id().to_string())
    }

    fn request_id(&self) -> Option<String> {
        let id = self.id.as_ref()?.to_str().ok()?;
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        let is_id = (1..=REQUEST_ID_MAX).contains(&id.len()) && id.bytes().all(is_plain);
        is_id.then(|| id.to_owned())
    }
}

/// The ids of the request, by their names in the log; `None` where no request is served.
pub(crate) fn ids() -> Option<[(&'static str, Option<String>); 2]> {
    let ids = |served: &Served| {
        [
            ("trace_id", served.trace_id()),
            ("request_id", served.request_id()),
        ]
    };
    SERVED.try_with(ids).ok()
}

/// Keeps the route that the router has found.
pub(super) fn note_route(request: Request<Body>) -> Request<Body> {
    if let Some(route) = request.extensions().get::<MatchedPath>() {
        let _ = SERVED.try_with(|served| served.route.set(route.clone()));
    }
    request
}

/// Keeps who sends the request. From now on a problem that answers it is logged.
pub(crate) fn note_client(client: Option<&ClientId>) {
    let _ = SERVED.try_with(|served| served.client.set(client.cloned()));
}

/// Logs the problem that answers the request, if its token was good.
pub(crate) fn log_answer(problem: &Problem) {
    let _ = SERVED.try_with(|served| {
        if let Some(client) = served.client.get() {
            log_refusal(served.route(), client.as_ref(), problem);
        }
    });
}

/// Logs that a request, or one of its events, is refused.
pub fn log_refusal(request: &str, client: Option<&ClientId>, problem: &Problem) {
    let (kind, status) = (problem.kind().slug, problem.status().as_u16());
    let client = client.map(ClientId::as_str);
    let detail = problem.detail();
    info!(request, client, problem = kind, status, detail, "refused");
}

/// The span of a request, in the trace that its `traceparent` names; disabled where traces are not exported. Its
/// names are those of OpenTelemetry's conventions.
pub(super) fn span<B>(request: &Request<B>, method: &'static str) -> Span {
    let span = trace_span!(
        target: TRACE,
        "request",
        otel.name = Empty,
        otel.kind = "server",
        otel.status_code = Empty,
        http.request.method = method,
        http.route = Empty,
        http.response.status_code = Empty,
    );
    if !span.is_disabled() {
        // It fails where the span has begun already, and a span that has just been made has not.
        let _ = span.set_parent(parent_in(request.headers()));
    }
    span
}

/// Notes in the span of a request what is known at its end.
pub(super) fn finish(span: &Span, method: &str, route: &str, status: StatusCode) {
    if span.is_disabled() {
        return;
    }
    span.record("otel.name", format!("{method} {route}"));
    span.record("http.route", route);
    // A number of any other type becomes a text in the trace.
    span.record("http.response.status_code", i64::from(status.as_u16()));
    if status.is_server_error() {
        span.record("otel.status_code", "ERROR");
    }
}

fn parent_in(headers: &HeaderMap) -> Context {
    TraceContextPropagator::new().extract(&HeaderExtractor(headers))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

    fn served(name: HeaderName, value: &str) -> Served {
        Served::new(&HeaderMap::from_iter([(name, value.parse().unwrap())]))
    }

    #[test]
    fn the_trace_is_that_of_the_parent() {
        let trace = |parent: &str| served(PARENT, parent).trace_id();
        for parent in [
            format!("00-{TRACE}-00f067aa0ba902b7-01"),
            format!("00-{TRACE}-00f067aa0ba902b7-03"),
            format!("01-{TRACE}-00f067aa0ba902b7-01-more"),
        ] {
            assert_eq!(trace(&parent).as_deref(), Some(TRACE), "{parent}");
        }
        for parent in [
            String::new(),
            "x".to_owned(),
            TRACE.to_owned(),
            format!("00-{}-00f067aa0ba902b7-01", "0".repeat(32)),
            format!("00-{}-00f067aa0ba902b7-01", TRACE.to_uppercase()),
            format!("00-{TRACE}-00f067aa0ba902b7-01-more"),
            format!("ff-{TRACE}-00f067aa0ba902b7-01"),
        ] {
            assert_eq!(trace(&parent), None, "{parent}");
        }
        assert_eq!(Served::new(&HeaderMap::new()).trace_id(), None);
    }

    #[test]
    fn the_id_of_a_request_is_plain_and_short() {
        let id = |value: &str| served(VCAP_REQUEST, value).request_id();
        let uuid = "0f1a4e5c-7a41-4a5e-5d6c-0a4f7d3b2c1d";
        assert_eq!(id(uuid).as_deref(), Some(uuid));
        for odd in ["", "a b", "a\"b", &"a".repeat(65)] {
            assert_eq!(id(odd), None, "{odd}");
        }
    }
}
