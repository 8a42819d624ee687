//! The port to the system that takes usages: what it promises, and two verbs, `post` and `find`.

use std::time::Duration;

use async_trait::async_trait;
use sampler_domain::{Contract, Timestamp, Usage};

use crate::answer::Answer;

/// What an upstream promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Promises {
    /// How long it recognises repeats.
    pub contract: Contract,
    /// Which usages can be found again.
    pub finds: Finds,
}

/// Which usages an upstream can find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finds {
    /// Usages to which it gave a `Location`. It gives a `Location` to repeats, too, and cannot find
    /// those: a usage that is not found may still count.
    ByLocation,
    /// Each one, by its id: what stays unknown is not there.
    ById {
        /// How long after a post it may still not be found.
        settles: Duration,
    },
    /// None.
    Never,
}

impl Finds {
    /// Whether usages are found by their ids: then the upstream does not have a usage that is not
    /// found.
    pub const fn is_by_id(self) -> bool {
        matches!(self, Self::ById { .. })
    }
}

impl Promises {
    /// What Abacus promises.
    pub const ABACUS: Self = Self {
        contract: Contract::Forever,
        finds: Finds::ByLocation,
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

    /// Asks for a usage.
    async fn find(&self, sought: Sought<'_>, now: Timestamp) -> Found;

    /// Asks for the time only.
    ///
    /// # Errors
    /// If there is no answer: the reason, for the operator.
    async fn probe(&self) -> Result<AnswerDate, String>;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerDate {
    NoAnswer,
    /// The answer has no valid date.
    Undated,
    /// The answer has this date, to the second.
    At(Timestamp),
}

impl AnswerDate {
    /// The date of the answer, or else `now`.
    pub fn or(self, now: Timestamp) -> Timestamp {
        match self {
            Self::At(date) => date,
            Self::NoAnswer | Self::Undated => now,
        }
    }
}

/// The result of posting a usage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Posted {
    /// The meaning of the answer for the usage.
    pub answer: Answer,
    pub dated: AnswerDate,
    /// The rest of the answer, for the ledger.
    pub details: Details,
}

/// The other parts of an answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Details {
    pub status: Option<u16>,
    /// The `Location` that Abacus gave the usage.
    pub location: Option<String>,
    /// The name of the error in its body.
    pub error_name: Option<String>,
    /// Nothing was sent: there was no connection.
    pub unsent: bool,
}

/// A usage that is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sought<'a> {
    pub usage_guid: &'a str,
    /// The `Location` that the upstream gave it; empty where it gave none.
    pub location: &'a str,
}

/// The result of asking for a usage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The meaning of the answer.
    pub answer: FindAnswer,
    pub status: Option<u16>,
}

/// The meaning of an upstream's answer to a find.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FindAnswer {
    /// It is there, and counts.
    Counts,
    SetAside {
        error: String,
    },
    /// It is not there, or not yet. With [`Finds::ByLocation`] so it is for ever where a repeat was
    /// recognised: only the first of two posts has a document.
    Unknown,
    /// The answer is not about this usage, or not clear.
    Mismatch {
        /// The error, in words.
        error: String,
    },
    /// Nothing is to be asked for a while (429).
    Wait {
        /// How long.
        after: Duration,
    },
    /// There was no answer, or there can be none now.
    Failed {
        /// The wait that the upstream asked for, if any.
        after: Option<Duration>,
        /// The failure, in words.
        error: String,
    },
}
