//! Which request of the platform a line of the log was written for, and the span of a request in a
//! trace.

use http::{HeaderMap, HeaderName, Request, StatusCode};
use opentelemetry::global;
use opentelemetry::propagation::Extractor;
use sampler_store::TRACE;
use tracing::field::Empty;
use tracing::{Span, error_span, trace_span};
use tracing_opentelemetry::OpenTelemetrySpanExt;

/// W3C Trace Context.
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
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
        let headers = Headers(request.headers());
        let parent = global::get_text_map_propagator(|propagator| propagator.extract(&headers));
        // It fails where the span has begun already, and a span that has just been made has not.
        let _ = span.set_parent(parent);
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

struct Headers<'a>(&'a HeaderMap);

impl Extractor for Headers<'_> {
    fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name)?.to_str().ok()
    }

    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(HeaderName::as_str).collect()
    }
}

/// The trace that the request is a part of. A value in another form is a client's text, which has
/// no place in a log.
fn trace_id(headers: &HeaderMap) -> Option<&str> {
    header(headers, &TRACEPARENT).and_then(trace_of_parent)
}

/// `version-trace-parent-flags`; later versions may have more behind that.
fn trace_of_parent(parent: &str) -> Option<&str> {
    let mut parts = parent.split('-');
    let (version, trace, parent, flags) =
        (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let well_formed = is_hex(version, 2)
        && version != "ff"
        && is_id(trace, 32)
        && is_id(parent, 16)
        && is_hex(flags, 2)
        && (version != "00" || parts.next().is_none());
    well_formed.then_some(trace)
}

fn request_id(headers: &HeaderMap) -> Option<&str> {
    header(headers, &VCAP_REQUEST).filter(|id| is_request_id(id))
}

fn is_request_id(text: &str) -> bool {
    (1..=REQUEST_ID_MAX).contains(&text.len())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

fn header<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h str> {
    headers.get(name)?.to_str().ok()
}

/// Whether a text is an id. An id of zeros only is not valid.
fn is_id(text: &str, length: usize) -> bool {
    is_hex(text, length) && text.bytes().any(|digit| digit != b'0')
}

fn is_hex(text: &str, length: usize) -> bool {
    text.len() == length
        && text
            .bytes()
            .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn headers(fields: &[(HeaderName, &str)]) -> HeaderMap {
        let fields = fields.iter().cloned();
        fields
            .map(|(name, value)| (name, value.parse().unwrap()))
            .collect()
    }

    #[test]
    fn the_trace_is_that_of_the_parent() {
        let trace = |parent: &str| trace_id(&headers(&[(TRACEPARENT, parent)])).map(str::to_owned);
        assert_eq!(trace(PARENT).as_deref(), Some(TRACE));
        assert_eq!(trace("x"), None);
        assert_eq!(trace_id(&HeaderMap::new()), None);
    }

    #[test]
    fn what_is_no_trace_is_not_taken_for_one() {
        for parent in [
            "",
            TRACE,
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        ] {
            assert_eq!(trace_of_parent(parent), None, "{parent}");
        }
        let later = "01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more";
        assert_eq!(trace_of_parent(later), Some(TRACE));
    }

    #[test]
    fn the_id_of_a_request_is_plain_and_short() {
        let id = |value: &str| request_id(&headers(&[(VCAP_REQUEST, value)])).map(str::to_owned);
        let uuid = "0f1a4e5c-7a41-4a5e-5d6c-0a4f7d3b2c1d";
        assert_eq!(id(uuid).as_deref(), Some(uuid));
        for odd in ["", "a b", "a\"b", &"a".repeat(65)] {
            assert_eq!(id(odd), None, "{odd}");
        }
    }
}
