//! How far a majority of the database's members is behind.

use async_trait::async_trait;

use crate::StoreError;

/// Knows how well the database keeps up.
#[async_trait]
pub trait Replication: Send + Sync + 'static {
    /// How far a majority of the members is behind the primary, ms; `None` if that is unknown, as
    /// behind a router.
    async fn commit_lag(&self) -> Result<Option<i64>, StoreError>;
}
