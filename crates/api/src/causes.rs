//! The causes of suspended spans.

use sampler_domain::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::Moment;

/// A cause of suspended spans.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[allow(clippy::struct_field_names, reason = "these are the names of the API")]
pub struct Cause {
    #[schema(example = "0b7c7f6e-3a06-5a7e-9d15-6d2f3b8a6a52")]
    pub cause: String,
    #[schema(required)]
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

/// How many spans are resumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Resumed {
    pub resumed: u64,
}
