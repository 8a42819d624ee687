//! Which of the failures that come again every few seconds reach the log.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// The least time between two lines about one failure.
const INTERVAL: Duration = Duration::from_mins(1);

/// Admits the first report of a failure, and one a minute while it lasts. While the database is away,
/// each instance asks it every few seconds: further lines would say nothing new.
#[derive(Debug, Default)]
pub struct ReportLimits(Mutex<HashMap<&'static str, Instant>>);

impl ReportLimits {
    /// Whether a failure with this code is reported now.
    pub fn admits(&self, code: &'static str) -> bool {
        let mut reported = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_recent = |at: &Instant| at.elapsed() < INTERVAL;
        if reported.get(code).is_some_and(is_recent) {
            return false;
        }
        reported.insert(code, Instant::now());
        true
    }
}
