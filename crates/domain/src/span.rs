//! One continuous usage of one target, and how far it has been sampled (section 6 of the paper).

use std::fmt;
use std::ops::Not;

use crate::{
    Again, CauseId, ClientId, Cut, EventId, Excluded, Interval, Measures, RunId, StartEvent,
    StopEvent, Suspension, Target, Timestamp,
};
use serde::{Deserialize, Serialize};

/// The id of a span's document: the `_id` from MongoDB or from its client.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum SpanId {
    ObjectId([u8; 12]),
    Text(String),
}

impl SpanId {
    /// A new id: the time in seconds, then eight random bytes. Ids that are made in order keep
    /// the index on `_id` growing at one end.
    pub fn new(now: Timestamp, random: u64) -> Self {
        let seconds = u32::try_from(now.as_millis() / 1000).unwrap_or(u32::MAX);
        let mut bytes = [0; 12];
        bytes[..4].copy_from_slice(&seconds.to_be_bytes());
        bytes[4..].copy_from_slice(&random.to_be_bytes());
        Self::ObjectId(bytes)
    }
}

impl fmt::Display for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ObjectId(bytes) => f.write_str(&hexadecimal(bytes)),
            Self::Text(text) => f.write_str(text),
        }
    }
}

/// Two digits for each byte. Each answer to a start has an id, and a formatter for each byte is slow.
fn hexadecimal(bytes: &[u8]) -> String {
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 0xF]);
    digits
        .map(|digit| char::from(b"0123456789abcdef"[usize::from(digit)]))
        .collect()
}

impl fmt::Debug for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A span, as figure 6.1 of the paper shows its document.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Span {
    /// The id of the document.
    pub id: SpanId,
    pub target: Target,
    /// How much of it, throughout the span.
    pub measures: Measures,
    pub start: Timestamp,
    pub start_id: Option<EventId>,
    /// The client that reported the start, where tokens are needed.
    pub start_client: Option<ClientId>,
    /// When the usage stopped; none while it runs. Once set it never changes.
    pub end: Option<Timestamp>,
    /// The `id` of the stop event.
    pub end_id: Option<EventId>,
    /// The client that reported the stop, where tokens are needed.
    pub stop_client: Option<ClientId>,
    pub processing: Processing,
}

/// How far a span has been sampled, and what stands in the way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Processing {
    /// Nothing is left to do, until an operator sends something again.
    pub complete: bool,
    /// The last step of `sampled_to`: the interval that was executed, skipped or trimmed; before the first, one of no
    /// length at the start. What is sent again leaves it as it is.
    pub last: Interval,
    /// The interval that is to be executed next, once it is decided.
    pub planned: Option<Planned>,
    /// The lock: each change adds 1, a stop too, and each change but a start and a stop requires the version
    /// that was read.
    pub version: i64,
    /// When the span needs a worker next.
    pub due_at: Timestamp,
    /// How the time of the span was cut, from the first time on: an element more with each plan by another
    /// granularity.
    pub cuts: Vec<Cut>,
    /// Why the planned interval could not be delivered yet.
    pub failure: Option<FailureState>,
    /// The cause that this span probes: if its usage is accepted, all spans of the cause resume.
    pub probe: Option<CauseId>,
    /// What was sampled and does not count upstream, by time.
    pub excluded: Vec<Excluded>,
    /// What is sent again, in this order.
    pub again: Vec<Again>,
}

/// An interval with the id of its usage, both fixed by the plan.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Planned {
    #[serde(flatten)]
    pub interval: Interval,
    /// The `dedup_id` by which the upstream recognises a repeat.
    pub usage_guid: String,
    pub planned_at: Timestamp,
    /// The run that may post its usage; none once a failure has suspended the span.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<RunId>,
    /// A post of its usage had no answer, or another run was named before: the usage may count upstream,
    /// whatever was answered since.
    #[serde(default, skip_serializing_if = "Not::not")]
    pub unanswered: bool,
    /// The latest end of the posts that followed a lookup; none without a lookup.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub posts_end_by: Option<Timestamp>,
}

/// What is kept of the failures of a planned interval.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct FailureState {
    /// Deliveries (posts or lookups) that failed.
    pub attempts: u32,
    /// How many refusals count towards a suspension. A span that is resumed with its cause, or as a probe,
    /// begins where one more suspends it; a span that an operator resumes alone begins at 0.
    pub refusals: u32,
    /// When it failed the last time.
    pub at: Timestamp,
    /// The status of the upstream's last answer, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// The name that the upstream gives the error, or else words for the operator.
    pub error: String,
    #[serde(flatten)]
    pub suspension: Option<Suspension>,
}

impl Span {
    /// The span that a start event opens (section 6.1, figure 6.4), without a client. It first needs a worker
    /// at `due_at`.
    pub fn open(id: SpanId, event: StartEvent, due_at: Timestamp) -> Self {
        Self {
            id,
            target: event.target,
            measures: event.measures,
            start: event.timestamp,
            start_id: event.id,
            start_client: None,
            end: None,
            end_id: None,
            stop_client: None,
            processing: Processing {
                complete: false,
                last: Interval::at(event.timestamp),
                planned: None,
                version: 1,
                due_at,
                cuts: Vec::new(),
                failure: None,
                probe: None,
                excluded: Vec::new(),
                again: Vec::new(),
            },
        }
    }

    pub fn start_event(&self) -> StartEvent {
        StartEvent {
            id: self.start_id.clone(),
            timestamp: self.start,
            target: self.target.clone(),
            measures: self.measures.clone(),
        }
    }

    /// The span that a stop event makes of an open one (section 6.2). It is due by its end.
    #[must_use]
    pub fn ended(mut self, event: &StopEvent, client: Option<ClientId>) -> Self {
        let processing = &mut self.processing;
        processing.version += 1;
        processing.due_at = processing.due_at.min(event.timestamp);
        Self {
            end: Some(event.timestamp),
            end_id: event.id.clone(),
            stop_client: client,
            ..self
        }
    }

    /// The end of the last recorded interval.
    pub fn sampled_to(&self) -> Timestamp {
        self.processing.last.end
    }

    /// What has run and is not sampled yet, ms. Less than nothing where sampling went beyond the end;
    /// an open span may be sampled to the end of its window.
    pub fn unsampled(&self, now: Timestamp) -> i64 {
        match self.end {
            Some(end) => end.since(self.sampled_to()),
            None => now.since(self.sampled_to()).max(0),
        }
    }

    pub fn plans(&self, usage_guid: &str) -> bool {
        let planned = self.processing.planned.as_ref();
        planned.is_some_and(|planned| planned.usage_guid == usage_guid)
    }

    /// Whether the usage of a delivery is not recorded: it is planned, excluded or sent again.
    pub fn has_open(&self, interval: Interval, usage_guid: &str) -> bool {
        let processing = &self.processing;
        let again = processing.again.iter().map(|again| &again.range);
        let mut ranges = processing.excluded.iter().chain(again);
        let holds = |range: &Excluded| range.covers(interval) || range.way_back() == Some(interval);
        self.plans(usage_guid) || ranges.any(holds)
    }

    pub fn suspension(&self) -> Option<Suspension> {
        self.processing.failure.as_ref()?.suspension
    }

    /// Failed deliveries of what is in hand.
    pub fn attempts(&self) -> u32 {
        match self.processing.again.first() {
            Some(again) => again.attempts,
            None => self.processing.failure.as_ref().map_or(0, |it| it.attempts),
        }
    }
}
