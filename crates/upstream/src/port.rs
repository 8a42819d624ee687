//! The port to the system that takes usages: what it promises, and two verbs, `post` and `look_up`.

use std::time::Duration;

use async_trait::async_trait;
use sampler_domain::{Contract, Timestamp, Usage};

use crate::answer::{Answer, Load};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Promises {
    /// How long it recognises repeats.
    pub contract: Contract,
    pub lookups: Lookups,
}

/// Which usages can be looked up at an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lookups {
    /// Usages to which it gave a `Location`. It gives a `Location` to repeats, too, and cannot find
    /// those: a usage that is not found may still count.
    ByLocation,
    /// Each one, by its id: what stays unknown is not there.
    ById {
        /// How long after a post it may still not be found.
        settles: Duration,
    },
    Never,
}

impl Lookups {
    /// Whether usages are found by their ids: then the upstream does not have a usage that is not
    /// found.
    pub const fn is_by_id(self) -> bool {
        matches!(self, Self::ById { .. })
    }
}

impl Promises {
    pub const ABACUS: Self = Self {
        contract: Contract::Forever,
        lookups: Lookups::ByLocation,
    };
}

/// The system that takes usages. Each call returns within a time limit, whatever the upstream does. `now`
/// replaces the date of an answer that has none, where a `Retry-After` is a date.
#[async_trait]
pub trait Upstream: Send + Sync + 'static {
    /// What it promises; always the same.
    fn promises(&self) -> Promises;

    /// Posts a usage. A repeat has the same bytes.
    async fn post(&self, usage: &Usage, now: Timestamp) -> Posted;

    /// Asks whether the upstream has a usage, and whether it counts.
    async fn look_up(&self, sought: Sought<'_>, now: Timestamp) -> LookupResult;
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Posted {
    pub answer: Answer,
    /// The `Date` of the answer, to the second; none where a cache may have answered (`Age`).
    pub date: Option<Timestamp>,
    /// The rest of the answer, for the ledger.
    pub details: Details,
}

/// The other parts of an answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Details {
    pub status: Option<u16>,
    /// The `Location` that Abacus gave the usage.
    pub location: Option<String>,
    pub error_name: Option<String>,
    /// Nothing was sent: there was no connection.
    pub unsent: bool,
}

/// A usage that is looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sought<'a> {
    pub usage_guid: &'a str,
    /// The `Location` that the upstream gave it; empty where it gave none.
    pub location: &'a str,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LookupResult {
    pub answer: LookupAnswer,
    pub status: Option<u16>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LookupAnswer {
    /// The upstream has it, and it counts.
    Counts,
    SetAside {
        error: String,
    },
    /// The upstream does not have it, or not yet. With [`Lookups::ByLocation`] so it is for ever where a repeat was
    /// recognised: only the first of two posts has a document.
    NotFound,
    /// The answer is not about this usage, or not clear.
    Mismatch {
        error: String,
    },
    /// Nothing is to be asked for a while (429).
    Wait {
        after: Duration,
    },
    /// There was no answer, or there can be none now.
    Failed {
        /// The wait that the upstream asked for, if any.
        after: Option<Duration>,
        error: String,
    },
}

impl LookupAnswer {
    pub fn load(&self) -> Load {
        match self {
            Self::Wait { .. } | Self::Failed { .. } => Load::Overload,
            Self::Counts | Self::SetAside { .. } | Self::NotFound | Self::Mismatch { .. } => {
                Load::Sustained
            }
        }
    }
}
