//! The documents of operators: operators' actions, the backlog and health.

use sampler_domain::{Timestamp, plain};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::Moment;
use crate::given::Given;

/// The reason of an operator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Reason {
    #[serde(default)]
    #[schema(
        required,
        example = "The plan is mapped now.",
        min_length = 1,
        max_length = 1000
    )]
    pub reason: String,
}

/// How far to skip, and why.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SkipRequest {
    #[serde(default)]
    #[schema(
        required,
        example = "Billed by hand.",
        min_length = 1,
        max_length = 1000
    )]
    pub reason: String,
    /// A boundary of the span's dimension. Without it, the end of the refused interval.
    #[serde(default)]
    #[schema(value_type = Option<Moment>, nullable = false)]
    pub until: Given<Timestamp>,
}

/// What to send again, and why.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ResendRequest {
    #[serde(default)]
    #[schema(
        required,
        example = "The plan is mapped now.",
        min_length = 1,
        max_length = 1000
    )]
    pub reason: String,
    /// Only what is excluded from then on.
    #[serde(default)]
    #[schema(value_type = Option<Moment>, nullable = false)]
    pub from: Given<Timestamp>,
    /// Only what is excluded until then.
    #[serde(default)]
    #[schema(value_type = Option<Moment>, nullable = false)]
    pub to: Given<Timestamp>,
}

/// An operator's action in the audit trail.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Act {
    pub id: String,
    #[schema(value_type = Moment)]
    pub at: Timestamp,
    #[schema(required)]
    pub who: Option<String>,
    /// `cause.resume`, `span.resume`, `span.skip`, `span.resend`, `usage.resend` or `control.set`.
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

/// The program is well.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Healthy {
    pub healthy: bool,
    /// Points that a person should check.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}
