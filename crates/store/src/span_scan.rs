//! The auditor's interface.

use futures_util::stream::BoxStream;
use sampler_domain::{Id, SpanId, Target};

use crate::StoreError;

/// The key of a span and its entries.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SpanKey {
    /// The span.
    pub id: SpanId,
    /// Its target.
    pub target: Target,
}

/// Keys of spans, page by page. A page is empty if none of its spans can be read. The stream ends
/// after an error.
pub type SpanKeys = BoxStream<'static, Result<Vec<SpanKey>, StoreError>>;

/// Goes through all spans.
pub trait SpanScan: Send + Sync + 'static {
    /// All spans of a partition, from this instance on, in the order of the instances; about `page` of
    /// them at a time. A span that exists during the whole scan is returned once.
    fn spans_of(&self, partition: u32, from: Option<&Id>, page: usize) -> SpanKeys;
}
