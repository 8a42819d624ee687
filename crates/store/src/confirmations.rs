//! Usages that the upstream has accepted and not confirmed yet.

use std::sync::Arc;

use sampler_domain::{CauseId, Entry, EntryState, Interval, Question, SpanId, Target, Timestamp};

/// The query for usages that the upstream is to be asked about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnconfirmedQuery {
    pub partitions: Arc<[u32]>,
    /// By when they are to be asked for.
    pub now: Timestamp,
    /// Only usages of the month that begins then (UTC); none for those of any month.
    pub month: Option<Timestamp>,
    pub limit: usize,
}

/// An accepted usage, with all that a question to the upstream needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unconfirmed {
    /// The `dedup_id` of the usage.
    pub usage_guid: String,
    pub span: SpanId,
    pub target: Target,
    pub interval: Interval,
    /// The `Location` that Abacus gave it.
    pub location: String,
    /// When the upstream is asked about it, and until when.
    pub ask: Question,
}

impl Unconfirmed {
    /// The question for the usage of an entry; `None` if the upstream is not to be asked for it.
    pub fn of(entry: &Entry) -> Option<Self> {
        let is_accepted = entry.state == EntryState::Accepted;
        let ask = entry.question.filter(|_| is_accepted)?;
        Some(Self {
            usage_guid: entry.usage_guid.clone(),
            span: entry.span.clone(),
            target: entry.target.clone(),
            interval: entry.interval,
            location: entry.location.clone().unwrap_or_default(),
            ask,
        })
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Confirmation {
    Counted {
        /// When that was seen.
        at: Timestamp,
    },
    /// It was set aside. The span knows that already, so that a late stop does not take it back
    /// ([`Change::SetAside`](sampler_domain::Change::SetAside)).
    SetAside {
        /// When that was seen.
        at: Timestamp,
        error: String,
        /// The cause that it is kept under.
        cause: CauseId,
    },
    /// The upstream does not have it yet, or gave no answer.
    AskAgain {
        /// When it is asked next.
        at: Timestamp,
    },
    /// The upstream does not have it. It becomes set aside once its span says so
    /// ([`Question::is_missing`](sampler_domain::Question::is_missing)).
    Missing {
        /// When that is tried again, if it is not done.
        at: Timestamp,
    },
    /// It is no longer asked for. The usage stays accepted.
    GivenUp,
}
