//! The acts of operators on spans and causes.

use async_trait::async_trait;
use sampler_domain::{CauseId, Change, Changed, Resend, Span, Timestamp};

use crate::{EntryKey, StoreError};

/// Carries out acts of operators. Each is in the audit trail before it is asked for here
/// ([`crate::Audit`]).
#[async_trait]
pub trait Acts: Send + Sync + 'static {
    /// Makes a change of a span that an operator asked for, such as [`Change::Resume`], if the span
    /// still is as it was read.
    async fn change_by_operator(
        &self,
        span: &Span,
        change: &Change,
        now: Timestamp,
    ) -> Result<Changed, StoreError>;

    /// Marks the cause, so that workers resume all spans that are suspended under it by then, some
    /// at a time; by the time that a worker finds it, if that is earlier. Returns whether there is such
    /// a cause.
    async fn resume_by_operator(&self, cause: CauseId, by: Timestamp) -> Result<bool, StoreError>;

    /// Has a worker send a usage again ([`Resends::mark_resend`](crate::Resends::mark_resend)). Says
    /// whether its entry is marked by this.
    async fn resend_by_operator(
        &self,
        entry: &EntryKey,
        resend: &Resend,
    ) -> Result<bool, StoreError>;
}
