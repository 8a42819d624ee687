//! Reading spans without changing any.

use async_trait::async_trait;
use sampler_domain::{Span, SpanId};

use crate::StoreError;

/// Some of all spans.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Page {
    /// Spans.
    pub spans: Vec<Span>,
    /// How many documents are no spans that could be read.
    pub unreadable: u64,
    /// The last id that was read, if there may be more behind it.
    pub next: Option<SpanId>,
}

/// All spans, page by page. It can change none.
#[async_trait]
pub trait Reading: Send + Sync + 'static {
    /// Up to `limit` spans behind the id `after`, in an order of the store's own; each span that
    /// is there all the while is on one page. Only what a majority has.
    async fn page(&self, after: Option<&SpanId>, limit: usize) -> Result<Page, StoreError>;
}
