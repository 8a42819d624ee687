//! The backlog, and how fast it is sampled.

use sampler_domain::{ClosingMonth, Granularities, SUSPENDED_DUE_AT, Span, Timestamp};
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug)]
pub struct BacklogQuery {
    /// The time by which spans are due.
    pub now: Timestamp,
    pub closing: Option<ClosingMonth>,
    pub granularities: Granularities,
}

/// The backlog: spans that wait for the workers.
///
/// A span waits if it is due, or if its usage failed and is tried again later. Suspended spans are
/// counted apart. With very many spans the numbers are estimated from a part of the partitions: a
/// hash decides the partition of a span, so each partition is a fair sample of all. `oldest` and
/// `suspended` are exact all the same.
///
/// It is kept as it is declared here: what another release does not write has a default.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Backlog {
    /// Spans that wait.
    pub due: u64,
    /// When the one that waits longest fell due.
    pub oldest: Option<Timestamp>,
    /// The time that they have to sample, ms: the sum of |min(end, now) − sampled to|.
    pub span_millis: i64,
    /// In about how many intervals.
    pub intervals: u64,
    pub suspended: u64,
    /// Intervals that all workers do in a second, while they have something to do.
    pub rate: f64,
    // Earlier releases take no null for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub closing: Option<ClosingBacklog>,
    /// How long counting took, ms. The pause until the next count grows with it.
    #[serde(default)]
    pub cost: i64,
}

/// The backlog of the month that closes next, without suspended spans.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClosingBacklog {
    /// The first millisecond of the month.
    pub start: Timestamp,
    pub end: Timestamp,
    /// Spans with something left.
    pub spans: u64,
    /// In about how many intervals.
    pub intervals: u64,
}

/// Something that one instance writes for all.
#[derive(Clone, Debug, PartialEq)]
pub struct Published<T> {
    pub value: T,
    /// How long ago it was written, ms, by the store's own clock.
    pub age: i64,
}

/// The time that a span has left to sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remaining {
    /// From here on, whichever way sampling goes.
    pub from: Timestamp,
    /// Up to here.
    pub to: Timestamp,
}

impl Remaining {
    /// The time that a span has left to sample at `now`; none if it is sampled far enough.
    pub fn of(span: &Span, now: Timestamp) -> Self {
        let sampled_to = span.sampled_to();
        let reached = span.end.map_or(now, |end| end.min(now));
        Self {
            from: sampled_to.min(reached),
            to: sampled_to.max(reached),
        }
    }

    /// How long it is, ms.
    pub fn millis(self) -> i64 {
        self.to.since(self.from)
    }

    /// Its part before `time`.
    fn before(self, time: Timestamp) -> Self {
        let to = self.to.min(time).max(self.from);
        Self { to, ..self }
    }

    /// About how many intervals of this length it takes.
    fn intervals(self, length: i64) -> u64 {
        let millis = self.millis().unsigned_abs();
        millis.div_ceil(length.unsigned_abs().max(1))
    }
}

impl Backlog {
    /// Nothing, as far as it is known what is to be counted.
    pub fn nothing(query: &BacklogQuery) -> Self {
        let closing = query.closing.map(|month| ClosingBacklog {
            start: month.start,
            end: month.end,
            spans: 0,
            intervals: 0,
        });
        Self {
            closing,
            ..Self::default()
        }
    }

    /// Counts a span that is not complete and needs a worker at `due_at`.
    pub fn add(&mut self, span: &Span, due_at: Timestamp, query: &BacklogQuery) {
        // A suspended span has failed, too, and waits for no worker.
        let is_failed = span.processing.attempts > 0 && due_at < SUSPENDED_DUE_AT;
        let length = query.granularities.of(&span.target).usual_length();
        let remaining = Remaining::of(span, query.now);
        if due_at <= query.now || is_failed {
            self.due += 1;
            self.span_millis = self.span_millis.saturating_add(remaining.millis());
            self.intervals += remaining.intervals(length).max(1);
            let since = if is_failed {
                fell_due(span).unwrap_or(due_at)
            } else {
                due_at
            };
            self.oldest = Some(self.oldest.map_or(since, |oldest| oldest.min(since)));
        }
        if let (Some(left), Some(month)) = (&mut self.closing, query.closing) {
            let of_month = remaining.before(month.end);
            let is_in_time = due_at <= month.last_due_at().max(query.now) || is_failed;
            if is_in_time && of_month.millis() > 0 {
                left.spans += 1;
                left.intervals += of_month.intervals(length);
            }
        }
    }
}

/// When a span whose usage failed fell due: at the end of the planned interval; or, if that goes
/// backwards, when it was planned.
fn fell_due(span: &Span) -> Option<Timestamp> {
    let planned = span.processing.planned.as_ref()?;
    let is_forward = planned.interval.end > planned.interval.start;
    Some(if is_forward {
        planned.interval.end
    } else {
        planned.planned_at
    })
}
