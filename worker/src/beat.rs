//! Signs of life, for the health checks.

use sampler_service::health::Progress;

/// Takes note of progress.
pub trait Beat: Send + Sync {
    /// A loop got somewhere.
    fn beat(&self);
}

impl Beat for Progress {
    fn beat(&self) {
        Progress::beat(self);
    }
}

/// Takes no note, where nobody asks.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoBeat;

impl Beat for NoBeat {
    fn beat(&self) {}
}
