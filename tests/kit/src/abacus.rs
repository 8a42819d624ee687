//! A stand-in for Abacus: the collector of usages and the provisioning of plans.
//!
//! It says 202 before it has judged, as the real one does: repeats, usages of tomorrow and usages of
//! closed months are set aside afterwards, and only a `GET` on the `Location` tells (under that of a
//! repeat there never is anything). Faults can be
//! ordered, and everything it was sent and what it counts can be asked for.

mod fault;
mod schema;
mod server;
mod stand_in;
mod state;
mod sums;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

pub use fault::{Endpoint, Fault, FaultKind};
pub use schema::{Measure, Usage};
pub use stand_in::{Dates, StandInAbacus};
pub use state::{Counted, Mapping, Outcome, Post};
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
    /// Its port; 0 is any free one.
    pub port: u16,
    /// What it takes for the present.
    pub clock: Clock,
    pub keep: Keep,
    /// Whether usages that end after today (UTC) are set aside.
    pub refuses_future: bool,
    /// How long after its end a month is closed, and later usages of it set aside. `None`: never.
    pub month_slack: Option<Duration>,
    /// How long the document of a usage is not found after its post.
    pub confirms_after: Duration,
    /// Whether a usage is refused unless all three mappings of its plan were posted.
    pub requires_mappings: bool,
    /// The token it wants to see. `None`: it does not look.
    pub bearer: Option<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            port: 0,
            clock: Arc::new(now_millis),
            keep: Keep::default(),
            refuses_future: true,
            month_slack: None,
            confirms_after: Duration::ZERO,
            requires_mappings: false,
            bearer: None,
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("port", &self.port)
            .field("keep", &self.keep)
            .field("refuses_future", &self.refuses_future)
            .field("month_slack", &self.month_slack)
            .field("confirms_after", &self.confirms_after)
            .field("requires_mappings", &self.requires_mappings)
            .finish_non_exhaustive()
    }
}
