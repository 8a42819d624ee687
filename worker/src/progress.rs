//! Reports of progress, for the health checks.

use sampler_service::health::Progress;

/// Takes reports of progress.
pub trait ReportProgress: Send + Sync {
    /// A loop has made progress.
    fn report(&self);
}

impl ReportProgress for Progress {
    fn report(&self) {
        self.beat();
    }
}

/// Ignores all reports.
#[derive(Clone, Copy, Debug, Default)]
pub struct IgnoreProgress;

impl ReportProgress for IgnoreProgress {
    fn report(&self) {}
}
