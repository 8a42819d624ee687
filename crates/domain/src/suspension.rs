//! Suspension: a span whose usage the upstream refuses again and again is no longer found by searches,
//! and kept under the cause of the refusal.
//!
//! Ten thousand spans of a plan without a mapping are one cause. One of them is probed now and then;
//! once its usage is accepted, all of them resume. So the work does not depend on how many there are. A
//! cause is no document: it is a field of the spans that are suspended under it.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::target::push_text;
use crate::{Id, Target, Timestamp};

/// The namespace of the ids of causes (UUID version 5).
const NAMESPACE: Uuid = Uuid::from_u128(0x7d0e_4b52_93c1_5f0a_8a6b_1f2c_60d5_9e37);

/// The `due_at` of a suspended span: so late that no search of any release finds the span.
pub const SUSPENDED_DUE_AT: Timestamp = Timestamp::MAX;

/// Why the upstream refuses usages: spans that share it are suspended and resumed together.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cause {
    pub status: Option<u16>,
    /// The name that the upstream gives the error, or else what happened in words.
    pub error: String,
    /// The resource whose usages are refused.
    pub resource_id: Id,
    /// The plan whose usages are refused.
    pub plan_id: Id,
}

/// The id of a cause. It follows from the cause, so all workers derive the same.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct CauseId(Uuid);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Suspension {
    pub cause: CauseId,
    #[serde(rename = "suspended_at")]
    pub since: Timestamp,
}

impl Cause {
    /// The cause of this refusal of a usage for this target.
    pub fn of(target: &Target, status: Option<u16>, error: &str) -> Self {
        Self {
            status,
            error: error.to_owned(),
            resource_id: target.resource_id.clone(),
            plan_id: target.plan_id.clone(),
        }
    }

    pub fn id(&self) -> CauseId {
        let mut name = self.status.unwrap_or(0).to_be_bytes().to_vec();
        push_text(&mut name, &self.error);
        push_text(&mut name, self.resource_id.as_str());
        push_text(&mut name, self.plan_id.as_str());
        CauseId(Uuid::new_v5(&NAMESPACE, &name))
    }
}

impl From<Uuid> for CauseId {
    fn from(id: Uuid) -> Self {
        Self(id)
    }
}

impl From<CauseId> for Uuid {
    fn from(id: CauseId) -> Self {
        id.0
    }
}

impl fmt::Display for CauseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0.hyphenated(), f)
    }
}

impl fmt::Debug for CauseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the id of a cause is a UUID in lower case, with hyphens")]
pub struct CauseIdError;

impl FromStr for CauseId {
    type Err = CauseIdError;

    fn from_str(text: &str) -> Result<Self, CauseIdError> {
        let id = Uuid::try_parse(text).map(Self).map_err(|_| CauseIdError)?;
        if id.to_string() == text {
            Ok(id)
        } else {
            Err(CauseIdError)
        }
    }
}
