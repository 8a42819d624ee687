//! Which request of the platform a line of the log was written for, and the span of a request in a
//! trace.

use http::{HeaderMap, HeaderName, Request, StatusCode};
use opentelemetry::Context;
use opentelemetry::propagation::TextMapPropagator;
use opentelemetry::trace::TraceContextExt;
use opentelemetry_http::HeaderExtractor;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use sampler_store::TRACE;
use tracing::field::Empty;
use tracing::{Span, error_span, trace_span};
use tracing_opentelemetry::OpenTelemetrySpanExt;

/// The header in which the router of Cloud Foundry names the request.
const VCAP_REQUEST: HeaderName = HeaderName::from_static("x-vcap-request-id");

/// The longest id of a request, in bytes; Cloud Foundry's has 36.
const REQUEST_ID_MAX: usize = 64;

/// The name of the span that has the ids of a request. By it, the log knows the lines that a request caused.
pub(crate) const REQUEST_SPAN: &str = "http";

/// The ids of a request, for each line that is logged while it is served. They have the highest level,
/// so that the lines have them however little is logged.
pub(super) fn ids(headers: &HeaderMap) -> Span {
    let (trace_id, request_id) = (trace_id(headers), request_id(headers));
    error_span!(REQUEST_SPAN, trace_id, request_id)
}

/// The span of a request, in the trace that its `traceparent` names; none where traces are not
/// exported. Its names are those of OpenTelemetry's conventions.
pub(super) fn request_span<B>(request: &Request<B>, method: &'static str, route: &str) -> Span {
    let span = trace_span!(
        target: TRACE,
        "request",
        otel.name = Empty,
        otel.kind = "server",
        otel.status_code = Empty,
        http.request.method = method,
        http.route = route,
        http.response.status_code = Empty,
    );
    if !span.is_disabled() {
        span.record("otel.name", format!("{method} {route}"));
        // It fails where the span has begun already, and a span that has just been made has not.
        let _ = span.set_parent(parent(request.headers()));
    }
    span
}

pub(super) fn note_answer(span: &Span, status: StatusCode) {
    if span.is_disabled() {
        return;
    }
    // A number of any other type becomes a text in the trace.
    span.record("http.response.status_code", i64::from(status.as_u16()));
    if status.is_server_error() {
        span.record("otel.status_code", "ERROR");
    }
}

/// The span of the sender that its `traceparent` names (W3C Trace Context).
fn parent(headers: &HeaderMap) -> Context {
    TraceContextPropagator::new().extract(&HeaderExtractor(headers))
}

/// The trace that the request is a part of, in its own form whatever a client sends.
fn trace_id(headers: &HeaderMap) -> Option<String> {
    let parent = headers
        .contains_key("traceparent")
        .then(|| parent(headers))?;
    let span = parent.span();
    let context = span.span_context();
    context.is_valid().then(|| context.trace_id().to_string())
}

fn request_id(headers: &HeaderMap) -> Option<&str> {
    let id = headers.get(VCAP_REQUEST)?.to_str().ok()?;
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    let is_id = (1..=REQUEST_ID_MAX).contains(&id.len()) && id.bytes().all(is_plain);
    is_id.then_some(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

    fn headers(name: &'static str, value: &str) -> HeaderMap {
        [(HeaderName::from_static(name), value.parse().unwrap())]
            .into_iter()
            .collect()
    }

    #[test]
    fn the_trace_is_that_of_the_parent() {
        let trace = |parent: &str| trace_id(&headers("traceparent", parent));
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
        assert_eq!(trace_id(&HeaderMap::new()), None);
    }

    #[test]
    fn the_id_of_a_request_is_plain_and_short() {
        let id = |value: &str| request_id(&headers("x-vcap-request-id", value)).map(str::to_owned);
        let uuid = "0f1a4e5c-7a41-4a5e-5d6c-0a4f7d3b2c1d";
        assert_eq!(id(uuid).as_deref(), Some(uuid));
        for odd in ["", "a b", "a\"b", &"a".repeat(65)] {
            assert_eq!(id(odd), None, "{odd}");
        }
    }
}
