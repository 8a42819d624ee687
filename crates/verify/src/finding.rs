//! Findings: faults, and notices.

use serde::Serialize;

/// The kind of a finding. The first group is wrong; the second, from [`FindingKind::Suspended`] on, is worth
/// knowing, and may be in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FindingKind {
    EventsWithoutSpan,
    /// A span that no event explains.
    SpanWithoutEvents,
    /// A span with another target, start, end or other quantities than its events.
    Differs,
    /// Time that is neither billed nor skipped, or is taken back without being billed before.
    Gap,
    /// Time that is billed twice, or was not used.
    Overlap,
    /// A usage whose duration, timestamp, window, quantities or answer are wrong.
    WrongUsage,
    /// Sampling that is behind by more than its window and an hour.
    Overdue,
    /// What the span says about itself does not fit its usages.
    Proof,
    /// The upstream refuses a usage of the span.
    Suspended,
    /// Time that an operator skipped.
    Skipped,
    /// The same after a post that had no answer: the upstream may count it.
    Unanswered,
    /// What the ledger no longer has: only the span says that it is billed.
    Expired,
    /// Sampling that is behind, or time that is sent again.
    Behind,
}

impl FindingKind {
    /// Whether something is wrong; it is worth knowing otherwise.
    pub fn is_wrong(self) -> bool {
        self < Self::Suspended
    }

    pub fn name(self) -> String {
        let name = serde_json::to_value(self).expect("a kind is written as a text");
        name.as_str().unwrap_or_default().to_owned()
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub kind: FindingKind,
    /// A sentence for people.
    pub detail: String,
    /// None: it is about the span as a whole.
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
}
