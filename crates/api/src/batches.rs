//! The answers to batches.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::Problem;

/// The answer to a batch.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Batch {
    pub accepted: usize,
    pub replayed: usize,
    pub refused: usize,
    pub failed: usize,
    pub results: Vec<BatchResult>,
}

/// The answer to one event of a batch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct BatchResult {
    pub index: usize,
    pub status: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub replayed: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub span: Option<String>,
    /// Seconds, as in `Retry-After`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub retry_after: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub problem: Option<Problem>,
}
