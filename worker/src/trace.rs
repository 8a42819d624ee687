//! The spans of a worker in a trace (not those of the collection): the turn of a span, its steps,
//! and posts. While no traces are exported, each costs one comparison.

use sampler_domain::{ChangeKind, SpanId, Usage};
use sampler_store::TRACE;
use tracing::field::Empty;
use tracing::{Span, trace_span};

/// The trace span of a turn: all that a worker does for one span.
pub(crate) fn of_turn(id: &SpanId) -> Span {
    trace_span!(target: TRACE, "turn", span.id = %id)
}

pub(crate) fn of_change(kind: ChangeKind) -> Span {
    trace_span!(target: TRACE, "change", otel.name = ?kind)
}

/// The writing of an entry of the ledger.
pub(crate) fn of_entry() -> Span {
    trace_span!(target: TRACE, "write_entry")
}

/// A post of a usage. The status of the answer is added later.
pub(crate) fn of_post(usage: &Usage) -> Span {
    trace_span!(
        target: TRACE,
        "post",
        otel.kind = "client",
        usage.id = usage.dedup_id.as_str(),
        http.request.method = "POST",
        http.response.status_code = Empty,
    )
}
