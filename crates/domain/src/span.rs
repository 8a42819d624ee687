//! One continuous usage of one target, and how far it has been sampled (section 6 of the paper).

use std::fmt;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{
    CauseId, ClientId, Cut, EventId, Granularity, Interval, LastError, Measures, Resent,
    StartEvent, StopEvent, Suspension, Target, Timestamp, Uncounted, UncountedReason, usage_guid,
};

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

/// How far a span has been sampled.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Processing {
    /// Nothing is left to do.
    pub complete: bool,
    /// The interval that was executed last; before the first, one of no length at the start.
    pub last: Interval,
    /// The interval that is to be executed next, once it is decided.
    pub planned: Option<Planned>,
    /// Grows with every change of plan; each such change requires the version it was based on.
    pub version: i64,
    /// Deliveries (posts or lookups) that failed since the last execution.
    pub attempts: u32,
    /// How many refusals of the planned interval's usage count towards a suspension. A span that is
    /// resumed with its cause, or as a probe, begins one below the number that suspends; a span that an
    /// operator resumes alone begins at 0.
    pub refusals: u32,
    /// When the upstream first refused the usage of the planned interval.
    pub refused_at: Option<Timestamp>,
    /// Whether a post of the planned interval's usage had no answer, or one that a gateway gives where it
    /// loses the upstream's: it may count upstream, whatever was answered since.
    pub unanswered: bool,
    /// Why the planned interval could not be delivered the last time.
    pub last_error: Option<LastError>,
    pub suspended: Option<Suspension>,
    /// The cause that this span probes: if its usage is accepted, all spans of the cause resume.
    pub probe: Option<CauseId>,
    /// The operator's request to skip the planned interval, if there is one.
    pub skip: Option<Skip>,
    /// The last resend of a usage that `totals` count.
    pub resent: Option<Resent>,
    /// The intervals that were sampled and do not count upstream, in the order in which that became
    /// known; at most [`UNCOUNTED_MAX`](crate::UNCOUNTED_MAX).
    pub uncounted: Vec<Uncounted>,
    /// How the time of the span was cut, from the first time on: an element more with each plan by another
    /// granularity.
    pub cuts: Vec<Cut>,
    /// The sums of the executions.
    pub totals: Totals,
}

/// How long after the last refusal a usage can be skipped, ms: by then no post of it is in flight. A
/// worker begins no post by a read of the span that is older than
/// [`READ_VALID_FOR`](crate::READ_VALID_FOR) and the length of a search, and a post ends after
/// `SAMPLER_POST_TIMEOUT`. The rest is for the writes of the suspension (`check_skip` in
/// `worker/src/settings.rs`).
pub const SKIP_DELAY: i64 = 5 * 60_000;

/// An operator skips the planned interval of a span: its usage is no longer posted. The interval
/// counts as sampled once the ledger says that it is skipped.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Skip {
    /// The usage of the planned interval.
    pub usage_guid: String,
    /// When that was asked for.
    pub at: Timestamp,
    /// A worker carries it out no earlier: by then no post of the usage is in flight.
    pub not_before: Timestamp,
    /// The action in the audit trail.
    pub act: Uuid,
}

/// The sums of a span's executions. They prove what was billed, also after the entries of its
/// usages have expired.
///
/// The change that records an execution also changes the totals. At any time `sampled_to - since`,
/// the time used, is `billed + skipped`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Totals {
    /// From where on executions are counted: the start, or for a span that another program has
    /// sampled, how far it had got.
    pub since: Timestamp,
    /// The version of the span at which the first of the counted usages was planned; none before
    /// one is counted. The entries of the others have higher ones.
    pub first_version: Option<i64>,
    /// Signed durations of the usages that the upstream accepted, also of those that it set aside later,
    /// and of what was withheld of these, ms.
    pub billed: i64,
    /// Signed durations of the usages that were skipped, ms.
    pub skipped: i64,
    /// The part of `skipped` that may count upstream all the same, because a post had no answer, ms.
    pub unanswered: i64,
    /// How many usages were not skipped.
    pub usages: u64,
}

impl Totals {
    /// The totals of a span that is sampled up to `since`, by whomever.
    pub const fn from(since: Timestamp) -> Self {
        Self {
            since,
            first_version: None,
            billed: 0,
            skipped: 0,
            unanswered: 0,
            usages: 0,
        }
    }

    /// Counts a usage that was planned at `version`, and was skipped or not. An interval of no length
    /// has none.
    fn count(&mut self, interval: Interval, version: i64, skipped: Option<UncountedReason>) {
        if interval.is_empty() {
            return;
        }
        self.first_version.get_or_insert(version);
        match skipped {
            None => {
                self.billed += interval.duration();
                self.usages += 1;
            }
            Some(reason) => self.skip(interval.duration(), reason),
        }
    }

    /// Adds the signed duration of a skipped usage, ms.
    fn skip(&mut self, duration: i64, reason: UncountedReason) {
        self.skipped += duration;
        if reason.is_unanswered() {
            self.unanswered += duration;
        }
    }

    /// Counts a skipped usage as billed.
    pub(crate) fn unskip(&mut self, duration: i64, reason: UncountedReason) {
        self.skip(-duration, reason);
        self.billed += duration;
        self.usages += 1;
    }
}

/// An interval with the id of its usage, both fixed by the plan.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Planned {
    pub interval: Interval,
    /// The `dedup_id` by which the upstream recognises a repeat.
    pub usage_guid: String,
    pub planned_at: Timestamp,
    /// By what an interval that leads forwards was cut; none where the original Sampler has planned it.
    pub granularity: Option<Granularity>,
    /// The latest end of the posts that followed a lookup ([`Change::NotFound`](crate::Change::NotFound));
    /// none without a lookup.
    pub posts_end_by: Option<Timestamp>,
    /// Set where the interval takes back what does not count upstream: then its usage is not posted,
    /// and its entry gets the state of what it takes back.
    pub withheld: Option<UncountedReason>,
}

impl Planned {
    /// Decides on an interval for `span`, and whether its usage is posted.
    pub fn new(span: &Span, interval: Interval, now: Timestamp) -> Self {
        Self {
            interval,
            usage_guid: usage_guid(span, interval),
            planned_at: now,
            granularity: None,
            posts_end_by: None,
            withheld: span.withholds(interval),
        }
    }
}

impl Span {
    /// The span that a start event opens (section 6.1, figure 6.4), without a client.
    pub fn open(id: SpanId, event: StartEvent) -> Self {
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
                attempts: 0,
                refusals: 0,
                refused_at: None,
                unanswered: false,
                last_error: None,
                suspended: None,
                probe: None,
                skip: None,
                resent: None,
                uncounted: Vec::new(),
                cuts: Vec::new(),
                totals: Totals::from(event.timestamp),
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

    /// The span that a stop event makes of an open one (section 6.2).
    #[must_use]
    pub fn ended(self, event: &StopEvent, client: Option<ClientId>) -> Self {
        Self {
            end: Some(event.timestamp),
            end_id: event.id.clone(),
            stop_client: client,
            ..self
        }
    }

    /// The end of the last recorded interval: billed and skipped add up to this time minus
    /// [`Totals::since`].
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

    /// Sampled time that is neither billed nor skipped, ms. Anything but 0 is a fault.
    pub fn difference(&self) -> i64 {
        let Totals {
            since,
            billed,
            skipped,
            ..
        } = &self.processing.totals;
        self.sampled_to().since(*since) - billed - skipped
    }

    /// The span after its planned interval was executed, before anything else is planned.
    ///
    /// # Panics
    /// Where nothing is planned: nothing can have been executed then.
    #[must_use]
    pub fn executed(&self) -> Self {
        self.sampled(false)
    }

    /// The same after its planned interval was skipped.
    ///
    /// # Panics
    /// Where nothing is planned.
    #[must_use]
    pub fn skipped(&self) -> Self {
        self.sampled(true)
    }

    fn sampled(&self, is_skipped: bool) -> Self {
        let mut span = self.clone();
        let planned = span
            .processing
            .planned
            .take()
            .expect("only what is planned is executed");
        let processing = &mut span.processing;
        let skipped = is_skipped.then_some(planned.withheld.unwrap_or(UncountedReason::Skipped {
            unanswered: processing.unanswered,
        }));
        processing
            .totals
            .count(planned.interval, processing.version, skipped);
        processing.last = planned.interval;
        processing.version += 1;
        processing.attempts = 0;
        processing.refusals = 0;
        processing.refused_at = None;
        processing.unanswered = false;
        processing.last_error = None;
        processing.suspended = None;
        processing.probe = None;
        processing.skip = None;
        if let Some(reason) = skipped {
            span.add_uncounted(Uncounted {
                interval: planned.interval,
                reason,
            });
        }
        span
    }

    pub fn plans(&self, usage_guid: &str) -> bool {
        let planned = self.processing.planned.as_ref();
        planned.is_some_and(|planned| planned.usage_guid == usage_guid)
    }

    /// The request to skip the planned interval, if there is one.
    pub fn to_be_skipped(&self) -> Option<&Skip> {
        let planned = self.processing.planned.as_ref()?;
        let skip = self.processing.skip.as_ref();
        skip.filter(|skip| skip.usage_guid == planned.usage_guid)
    }

    /// Whether one more refusal suspends the span, if `suspend_after` of its planned interval do.
    pub fn is_suspended_by_refusal(&self, suspend_after: u32) -> bool {
        self.processing.refusals.saturating_add(1) >= suspend_after
    }

    /// The span after it was resumed: it is tried again, and `refusals` refusals count already.
    /// With `is_probe`, an acceptance resumes all spans of its cause.
    #[must_use]
    pub fn resumed(&self, refusals: u32, is_probe: bool) -> Self {
        let mut span = self.clone();
        let processing = &mut span.processing;
        let suspension = processing.suspended.take();
        processing.refusals = refusals;
        processing.probe = suspension.map(|it| it.cause).filter(|_| is_probe);
        span
    }
}
