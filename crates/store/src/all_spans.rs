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
pub trait AllSpans: Send + Sync + 'static {
    /// Up to `limit` spans after the id `after`, in an order of the store's own. A span that exists
    /// during the whole scan is on exactly one page. With majority read concern.
    async fn page(&self, after: Option<&SpanId>, limit: usize) -> Result<Page, StoreError>;
}
