//! Reports of progress, for the health checks.

use std::time::Duration;

use sampler_service::health::Progress;

/// The longest wait of a loop between two reports.
const INTERVAL: Duration = Duration::from_secs(5);

/// Takes reports of progress.
pub trait ReportProgress: Send + Sync {
    /// A loop has made progress.
    fn report(&self);

    /// How long a loop may wait before its next report.
    fn interval(&self) -> Duration {
        INTERVAL
    }
}

impl ReportProgress for Progress {
    fn report(&self) {
        self.beat();
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub struct IgnoreProgress;

impl ReportProgress for IgnoreProgress {
    fn report(&self) {}

    fn interval(&self) -> Duration {
        Duration::MAX
    }
}
