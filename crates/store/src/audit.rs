//! The audit trail: each operator's action, recorded before it is carried out.
//!
//! First the record is written, with the state that the action is to produce. Then the action is
//! carried out, as one atomic change. Then the outcome is recorded. A program that dies in
//! between leaves a record whose outcome is [`ActOutcome::Asked`]: the action was asked for. Where
//! the answer of the database was lost, the outcome is [`ActOutcome::Unknown`]. The span shows what is so, and
//! an action that was done is not done again. So every action that was done is in the trail.

use sampler_domain::{ClientId, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

/// An operator's action.
#[derive(Clone, Debug, PartialEq)]
pub struct AuditRecord {
    pub id: Uuid,
    /// When it was asked for, by the clock of the receiver.
    pub at: Timestamp,
    /// The client or the user that asked for it; none where no tokens are needed.
    pub who: Option<ClientId>,
    /// The kind of the action, such as `span.skip`.
    pub act: String,
    /// The address of its subject, such as `/v1/spans/6b00`.
    pub subject: String,
    /// The id of the span, if the action is about a span.
    pub span: Option<String>,
    /// Why, in the operator's words.
    pub reason: String,
    /// The subject before the action; null if there was none.
    pub before: Value,
    /// The subject as the action is to make it.
    pub after: Value,
    pub outcome: ActOutcome,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ActOutcome {
    /// It was asked for. How it ended is not recorded yet.
    Asked,
    Done,
    /// It was not done: the subject had changed meanwhile, or the store refused or could not be
    /// reached.
    Refused,
    /// The store gave no final answer: it may be done or not.
    Unknown,
}

sampler_domain::named! {
    pub ActOutcome: Asked = "asked", Done = "done", Refused = "refused", Unknown = "unknown"
}

/// The position of a record in the trail: its time, then its id. Neither ever changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct AuditPosition {
    /// When the action was asked for.
    pub at: Timestamp,
    pub id: Uuid,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditQuery {
    /// Only actions at this time or later.
    pub from: Option<Timestamp>,
    /// Only actions before this time.
    pub to: Option<Timestamp>,
    /// Only actions of this client or user.
    pub who: Option<ClientId>,
    /// Only actions on this span.
    pub span: Option<String>,
    /// Only records behind this one.
    pub after: Option<AuditPosition>,
    pub limit: usize,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct AuditPage {
    /// The records, the newest first.
    pub records: Vec<AuditRecord>,
    /// The last of them, if there may be more behind it.
    pub next: Option<AuditPosition>,
}

impl AuditRecord {
    pub fn position(&self) -> AuditPosition {
        AuditPosition {
            at: self.at,
            id: self.id,
        }
    }
}
