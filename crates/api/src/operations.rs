//! The documents of operators: operators' actions, the backlog, instances and health.

use sampler_domain::{Timestamp, plain};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::Moment;

/// The reason of an operator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Reason {
    #[schema(example = "The plan is mapped now.", min_length = 1, max_length = 1000)]
    pub reason: String,
}

/// The usage to skip, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SkipRequest {
    #[schema(example = "Billed by hand.", min_length = 1, max_length = 1000)]
    pub reason: String,
    /// The `usage_id` of what is planned.
    #[schema(example = "ad1f2853-43e0-5cbf-b4f7-39fd0d67600c")]
    pub usage_id: String,
}

/// An operator's action in the audit trail.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Act {
    pub id: String,
    #[schema(value_type = Moment)]
    pub at: Timestamp,
    #[schema(required)]
    pub who: Option<String>,
    /// `cause.resume`, `span.resume`, `span.skip`, `usage.resend` or `control.set`.
    #[schema(example = "span.resume")]
    pub act: String,
    /// The address of what was acted on.
    pub subject: String,
    pub reason: String,
    /// What the action saw.
    pub before: Value,
    /// What it was to make.
    pub after: Value,
    pub outcome: String,
}

/// The backlog.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Backlog {
    pub due: u64,
    /// Whether more spans are due than could be counted.
    pub at_least: bool,
    #[schema(value_type = Option<Moment>, required)]
    pub oldest: Option<Timestamp>,
    pub suspended: u64,
    /// Usages per second.
    #[serde(serialize_with = "plain")]
    pub rate: f64,
    #[schema(required)]
    pub closing: Option<Closing>,
}

/// The backlog of the month that closes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Closing {
    #[schema(example = "2026-10")]
    pub month: String,
    pub left: u64,
    #[schema(value_type = Moment)]
    pub closes_at: Timestamp,
}

/// The state of an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum InstanceState {
    /// All its health probes pass.
    Up,
    /// Some of its health probes fail.
    Unhealthy,
    /// It was asked to stop, and finishes the work in progress.
    Stopping,
    /// It was not seen for 20 s: it was killed, or cannot reach the database.
    Stale,
}

impl InstanceState {
    pub fn name(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Unhealthy => "unhealthy",
            Self::Stopping => "stopping",
            Self::Stale => "stale",
        }
    }
}

/// An instance of one of the programs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[allow(clippy::struct_field_names, reason = "these are the names of the API")]
pub struct Instance {
    #[schema(example = "worker")]
    pub program: String,
    /// The name of this run.
    pub instance: String,
    /// The number of the instance on its platform (`CF_INSTANCE_INDEX`), where that has numbers.
    #[schema(required)]
    pub index: Option<String>,
    /// Null of a release that does not report it.
    #[schema(required)]
    pub version: Option<String>,
    /// By the clock of the instance.
    #[schema(value_type = Option<Moment>, required)]
    pub started_at: Option<Timestamp>,
    /// By the clock of the database.
    #[schema(value_type = Moment)]
    pub seen_at: Timestamp,
    pub state: InstanceState,
    /// The names of the health probes that fail.
    pub failing: Vec<String>,
    /// The names of the active health warnings.
    pub warnings: Vec<String>,
    /// Of a worker: how many of the 64 partitions it owns.
    #[schema(required)]
    pub partitions: Option<u32>,
    /// Of a worker: why it pauses sampling. `operator`, `replication-lag`, `commit-time`; empty while
    /// it samples.
    pub paused_by: Vec<String>,
    /// Of a worker: the upstream to which it posts usages, and its host. Null of a release that does not
    /// report it.
    #[serde(default)]
    #[schema(required, example = "cloudevents at meter.example.com")]
    pub upstream: Option<String>,
    /// Of a worker: how many usages of its spans it has recorded since midnight (UTC), or since it began if
    /// that is later. Null of a release that does not report it.
    #[serde(default)]
    #[schema(required)]
    pub usages_today: Option<u64>,
    /// Of a receiver: how far into the past it takes events, ms.
    #[schema(required)]
    pub slack: Option<i64>,
    /// Of a receiver: the recent events. Null of a release that does not report it.
    #[serde(default)]
    #[schema(required)]
    pub intake: Option<Intake>,
}

/// The events that a receiver has answered of late.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Intake {
    /// Events of the last whole minute that are kept.
    pub kept: u32,
    /// Events of this minute that were refused.
    pub refused: u32,
    /// When the last event came, whatever its answer.
    #[schema(value_type = Option<Moment>, required)]
    pub last_at: Option<Timestamp>,
}

/// The program is well.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Healthy {
    pub healthy: bool,
    /// Points that a person should check.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}
