//! The runs of workers, which posts are named after.

use std::fmt;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// One run of a worker, from its start to its end. A plan names the run that may post its usage, so whoever
/// reads the span knows whether a post may be under way, by no clock and no waiting.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RunId(pub Uuid);

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0.hyphenated(), f)
    }
}

impl fmt::Debug for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
