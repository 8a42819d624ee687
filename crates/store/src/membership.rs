//! Which workers there are, so that they can divide the work.

use async_trait::async_trait;

use crate::StoreError;

/// Knows the workers that are alive.
#[async_trait]
pub trait Membership: Send + Sync + 'static {
    /// Says that `worker` is alive. Returns all that are, by the store's own clock.
    async fn heartbeat(&self, worker: &str) -> Result<Vec<String>, StoreError>;

    /// Says that `worker` is gone.
    async fn leave(&self, worker: &str) -> Result<(), StoreError>;
}
