//! The documents of operators: actions, causes of suspended spans, the backlog and health.

use sampler_domain::{Timestamp, plain};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::Moment;
use crate::given::given;

/// The reason of an operator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Reason {
    #[schema(example = "The plan is mapped now.", max_length = 1000)]
    pub reason: String,
}

/// How far to skip, and why.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SkipRequest {
    #[schema(example = "Billed by hand.", max_length = 1000)]
    pub reason: String,
    /// A boundary of the span's dimension. Without it, the end of the refused interval.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<Moment>, nullable = false)]
    pub until: Option<Value>,
}

/// What to send again, and why.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ResendRequest {
    #[schema(example = "The plan is mapped now.", max_length = 1000)]
    pub reason: String,
    /// Only what is excluded from then on.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<Moment>, nullable = false)]
    pub from: Option<Value>,
    /// Only what is excluded until then.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<Moment>, nullable = false)]
    pub to: Option<Value>,
}

/// How many spans are resumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Resumed {
    pub resumed: u64,
}

/// A cause of suspended spans.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[allow(clippy::struct_field_names, reason = "these are the names of the API")]
pub struct Cause {
    #[schema(example = "0b7c7f6e-3a06-5a7e-9d15-6d2f3b8a6a52")]
    pub cause: String,
    pub status: Option<u16>,
    pub error: String,
    pub resource_id: String,
    pub plan_id: String,
    pub spans: u64,
    #[schema(value_type = Moment)]
    pub since: Timestamp,
}

impl Cause {
    /// The most spans that are counted: there may be more.
    pub const COUNTED_MAX: u64 = 100_000;
}

/// An operator's action in the audit trail.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Act {
    pub id: String,
    #[schema(value_type = Moment)]
    pub at: Timestamp,
    pub who: Option<String>,
    /// `cause.resume`, `span.resume`, `span.skip`, `span.resend`, `usage.resend` or `control.set`.
    #[schema(example = "span.resume")]
    pub act: String,
    /// The address of what was acted on.
    pub subject: String,
    pub reason: String,
    /// The state before the action.
    pub before: Value,
    /// The intended state.
    pub after: Value,
    pub outcome: String,
}

/// The backlog.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Backlog {
    pub due: u64,
    /// Whether more spans are due than could be counted.
    pub at_least: bool,
    #[schema(value_type = Option<Moment>)]
    pub oldest: Option<Timestamp>,
    pub suspended: u64,
    /// Usages per second.
    #[serde(serialize_with = "plain")]
    pub rate: f64,
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
