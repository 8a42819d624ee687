//! Reports of progress, for the health checks.

use std::time::Duration;

use sampler_service::health::Progress;

const INTERVAL: Duration = Duration::from_secs(5);

pub trait ReportProgress: Send + Sync {
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
