//! A stand-in for Abacus: the collector of usages and the provisioning of plans.
//!
//! It says 202 before it has judged, as the real one does: repeats do not count, usages of tomorrow are set
//! aside afterwards, and only a `GET` on the `Location` tells (under that of a repeat there never is
//! anything). Faults can be ordered, and everything it was sent and what it counts can be asked for.

mod fault;
mod schema;
mod server;
mod stand_in;
mod state;
mod sums;

use std::sync::Arc;
use std::time::Duration;

pub use fault::{Fault, FaultKind};
pub use schema::{Measure, Usage};
pub use stand_in::{Dates, StandInAbacus};
pub use state::{Counted, Outcome, Post};
pub use sums::{Amounts, add_amounts};

use crate::now_millis;

/// What the stand-in keeps of what it is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Keep {
    /// Every post and every usage.
    #[default]
    Everything,
    /// Only their number. Bodies are not parsed: this is for benchmarks.
    Count,
}

/// A clock, in ms since epoch.
pub type Clock = Arc<dyn Fn() -> i64 + Send + Sync>;

/// How the stand-in is to behave when no fault is ordered.
#[derive(Clone)]
pub struct Options {
    /// What it takes for the present.
    pub clock: Clock,
    pub keep: Keep,
    /// How long the document of a usage is not found after its post.
    pub confirms_after: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            clock: Arc::new(now_millis),
            keep: Keep::default(),
            confirms_after: Duration::ZERO,
        }
    }
}
