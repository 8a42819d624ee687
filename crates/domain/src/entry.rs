//! An entry of the ledger: one usage that the upstream has accepted.

use serde::{Deserialize, Serialize};

use crate::{Delivery, Granularity, Interval, Measures, Policy, Span, SpanId, Target, Timestamp};

/// The upstream's answer that it has a usage.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Acceptance {
    pub at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// The `Location` that Abacus gave the usage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub location: Option<String>,
}

/// An entry of the ledger. It is written once, after the acceptance and before that is recorded on the span,
/// and never changes. The span may be gone before its entries.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Entry {
    /// The `dedup_id` of the usage: the id of the entry.
    pub usage_guid: String,
    pub span: SpanId,
    pub target: Target,
    pub measures: Measures,
    pub interval: Interval,
    /// By what the interval was cut.
    pub dimension: Granularity,
    /// Whether the usage was sent again: then its entry is younger than those of the time around it.
    pub is_again: bool,
    pub acceptance: Acceptance,
}

impl Entry {
    /// The entry of a usage that the upstream has.
    pub fn new(span: &Span, delivery: &Delivery, acceptance: Acceptance, policy: &Policy) -> Self {
        Self {
            usage_guid: delivery.usage_guid.clone(),
            span: span.id.clone(),
            target: span.target.clone(),
            measures: span.measures.clone(),
            interval: delivery.interval,
            dimension: span.granularity_of(delivery.interval, policy),
            is_again: delivery.is_again,
            acceptance,
        }
    }
}
