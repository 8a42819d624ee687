//! What is known of the request that a task serves: its ids, its route, and who sends it. So a line of the log can
//! tell them, and no span is made for a request whose traces nobody collects.

use std::cell::OnceCell;

use axum::extract::{MatchedPath, Request};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
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

/// The longest id, in bytes; that of Cloud Foundry has 36, that of a trace 32.
const ID_MAX: usize = 64;

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

    /// The trace that the request is a part of.
    fn trace_id(&self) -> Option<String> {
        let parent = self.parent.as_ref()?.to_str().ok()?;
        let id = parent.split('-').nth(1)?;
        let is_id = id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
        (is_id && id.bytes().any(|byte| byte != b'0')).then(|| id.to_owned())
    }

    fn request_id(&self) -> Option<String> {
        plain(self.id.as_ref()?.to_str().ok()?)
    }
}

/// An id, if it is plain and short: a client may have sent anything in its place.
fn plain(id: &str) -> Option<String> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    let is_id = (1..=ID_MAX).contains(&id.len()) && id.bytes().all(is_plain);
    is_id.then(|| id.to_owned())
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
pub(super) fn note_route(request: Request) -> Request {
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
pub(super) fn span(request: &Request, method: &'static str) -> Span {
    let span = trace_span!(
        target: TRACE,
        "request",
        otel.kind = "server",
        otel.status_code = Empty,
        http.request.method = method,
        http.route = Empty,
        http.response.status_code = Empty,
    );
    if !span.is_disabled() {
        let parent = TraceContextPropagator::new().extract(&HeaderExtractor(request.headers()));
        // It fails where the span has begun already, and a span that has just been made has not.
        let _ = span.set_parent(parent);
    }
    span
}

/// Notes in the span of a request what is known at its end.
pub(super) fn finish(span: &Span, method: &str, route: &str, status: StatusCode) {
    if span.is_disabled() {
        return;
    }
    // A name that is recorded counts only until the span begins.
    let name = format!("{method} {route}");
    span.context().span().update_name(name);
    span.record("http.route", route);
    // A number of any other type becomes a text in the trace.
    span.record("http.response.status_code", i64::from(status.as_u16()));
    if status.is_server_error() {
        span.record("otel.status_code", "ERROR");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_plain_and_short() {
        let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
        let uuid = "0f1a4e5c-7a41-4a5e-5d6c-0a4f7d3b2c1d";
        let parent = format!("00-{trace}-00f067aa0ba902b7-01");
        for (parent, id, expected) in [
            (parent.as_str(), uuid, [Some(trace), Some(uuid)]),
            ("00--01", "", [None, None]),
            ("x-hello-y", "a b", [None, None]),
            (
                "00-00000000000000000000000000000000-01",
                "a\"b",
                [None, None],
            ),
            ("", &"a".repeat(65), [None, None]),
        ] {
            let parent = (PARENT, parent.parse().unwrap());
            let id = (VCAP_REQUEST, id.parse().unwrap());
            let served = Served::new(&HeaderMap::from_iter([parent, id]));
            let ids = [served.trace_id(), served.request_id()];
            assert_eq!(ids.each_ref().map(Option::as_deref), expected);
        }
    }
}
