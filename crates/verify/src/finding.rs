//! Findings: faults, and notes.

use serde::Serialize;

/// The kind of a finding. The first group is wrong; the second, from [`FindingKind::Behind`] on, is worth
/// knowing, and may be in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FindingKind {
    /// The provider's events do not go together.
    EventsContradict,
    /// A span that no event explains.
    SpanWithoutEvents,
    EventsWithoutSpan,
    /// A target other than the event's.
    Target,
    /// A start other than the event's.
    Start,
    /// Quantities other than the event's.
    Quantities,
    /// An end other than the event's.
    End,
    /// The state of a span does not fit its end or its sampling.
    State,
    UsageTwice,
    /// A usage of another span.
    OtherSpan,
    /// A usage whose duration is not end minus start.
    Duration,
    /// A usage that was posted with other quantities than those of its event, or another duration.
    UsageQuantities,
    /// A usage without length.
    EmptyInterval,
    /// A usage that Abacus counts outside of its interval.
    Timestamp,
    /// A usage that is in two windows.
    CrossesBoundary,
    /// A usage that does not begin where the one before ended.
    NotAdjacent,
    /// A usage that is not accepted, with others behind it, or other than the planned one.
    Planned,
    UnknownState,
    /// A usage that counts as accepted, with an answer that refuses it.
    NotAccepted,
    /// A usage that Abacus took and does not count.
    SetAside,
    /// Usages that are not there, and cannot have expired.
    EntriesMissing,
    /// Usages that end elsewhere than the span says.
    SampledTo,
    /// A proof that says other than the usages.
    Proof,
    /// Time that is billed twice or not at all.
    Difference,
    /// Sampling that is behind by more than its window and an hour.
    Overdue,
    /// Sampling that is behind.
    Behind,
    /// Usages of the future.
    Ahead,
    /// Usages that have expired: only the proof covers them.
    Expired,
    /// A span whose first part the original Sampler has billed.
    TakenOver,
    /// A usage that an operator skipped.
    Skipped,
    /// The same after a post that had no answer: the upstream may count it.
    Unanswered,
    /// A usage that Abacus refuses.
    Refused,
    /// A span that waits for an operator.
    Suspended,
    /// A usage that is accepted, and not noted on its span yet.
    NotNotedYet,
    /// A span that was removed while it was read.
    Removed,
}

impl FindingKind {
    /// Whether something is wrong; it is worth knowing otherwise.
    pub fn is_wrong(self) -> bool {
        self < Self::Behind
    }

    pub fn name(self) -> String {
        serde_json::to_value(self)
            .ok()
            .and_then(|name| name.as_str().map(str::to_owned))
            .expect("a kind is written as a text")
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub kind: FindingKind,
    /// A sentence for people.
    pub detail: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<String>,
}

impl Finding {
    /// A finding about a span as a whole.
    pub fn new(kind: FindingKind, detail: impl Into<String>) -> Self {
        Self {
            kind,
            detail: detail.into(),
            usage: None,
        }
    }

    pub(crate) fn about(usage: &str, kind: FindingKind, detail: impl Into<String>) -> Self {
        Self {
            usage: Some(usage.to_owned()),
            ..Self::new(kind, detail)
        }
    }
}
