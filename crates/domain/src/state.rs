//! The states by which people search for spans, and the test whether a span ran at some time.

use crate::{Span, Timestamp, named};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SpanState {
    /// It has no end yet.
    Open,
    /// It has an end, and is not sampled up to it yet, or something of it is sent again.
    Stopped,
    /// It is sampled up to its end.
    Complete,
    /// The upstream refused its usage again and again. It waits until a probe of its cause is accepted,
    /// or an operator resumes it or skips its usage.
    Suspended,
}

named! {
    pub SpanState: Open = "open", Stopped = "stopped", Complete = "complete", Suspended = "suspended"
}

impl Span {
    /// The state of the span. A suspended span may have an end or not.
    pub fn state(&self) -> SpanState {
        match self.end {
            _ if self.processing.complete => SpanState::Complete,
            _ if self.suspension().is_some() => SpanState::Suspended,
            Some(_) => SpanState::Stopped,
            None => SpanState::Open,
        }
    }

    /// Whether the span has some time in common with `[from, to)`. `None` means no bound. A span of no
    /// length counts if it is within.
    pub fn overlaps(&self, from: Option<Timestamp>, to: Option<Timestamp>) -> bool {
        from.is_none_or(|from| self.start >= from || self.end.is_none_or(|end| end > from))
            && to.is_none_or(|to| self.start < to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FailureState, Id, Measures, SpanId, StartEvent, Suspension, Target};

    fn span(start: i64, end: Option<i64>) -> Span {
        let event = StartEvent {
            id: Some(Id::from_store("id")),
            timestamp: Timestamp::clamped(start),
            target: Target::from_store([""; 6]),
            measures: Measures::from_store(Vec::new()),
        };
        let mut span = Span::open(SpanId::Text(String::new()), event, Timestamp::MIN);
        span.end = end.map(Timestamp::clamped);
        span
    }

    #[test]
    fn a_state_is_what_its_name_says() {
        for state in SpanState::ALL {
            assert_eq!(SpanState::from_name(state.name()), Some(state));
        }
        assert_eq!(SpanState::from_name("Open"), None);
        let mut stopped = span(1, Some(2));
        assert_eq!(span(1, None).state(), SpanState::Open);
        assert_eq!(stopped.state(), SpanState::Stopped);
        stopped.processing.failure = Some(FailureState {
            attempts: 3,
            refusals: 3,
            at: Timestamp::clamped(3),
            status: Some(422),
            error: "unprocessable".to_owned(),
            suspension: Some(Suspension {
                cause: "00000000-0000-0000-0000-000000000000".parse().unwrap(),
                since: Timestamp::clamped(3),
            }),
        });
        assert_eq!(stopped.state(), SpanState::Suspended);
        stopped.processing.complete = true;
        assert_eq!(stopped.state(), SpanState::Complete);
    }

    #[test]
    fn a_span_overlaps_what_it_has_time_in_common_with() {
        let at = |millis: i64| Some(Timestamp::clamped(millis));
        let overlaps = |span: &Span, from, to| span.overlaps(from, to);
        let hour = span(10, Some(20));
        assert!(overlaps(&hour, None, None));
        assert!(overlaps(&hour, at(19), at(30)) && overlaps(&hour, at(0), at(11)));
        assert!(!overlaps(&hour, at(20), None) && !overlaps(&hour, None, at(10)));
        let open = span(10, None);
        assert!(overlaps(&open, at(1_000), None) && !overlaps(&open, at(0), at(10)));
        let empty = span(10, Some(10));
        assert!(overlaps(&empty, at(10), at(11)));
        assert!(!overlaps(&empty, at(9), at(10)) && !overlaps(&empty, at(11), None));
    }
}
