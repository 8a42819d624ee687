//! Reads one span by its id.

use bson::doc;
use bson::raw::RawDocument;

use sampler_domain::{Span, SpanId, Target};
use sampler_store::StoreError;

use crate::MongoStore;
use crate::document::{Unreadable, id_from_bson, id_to_bson};
use crate::resolve::{of_target, readable};
use crate::unreadable::{Identity, decoded, name_of};

pub(crate) async fn read(
    store: &MongoStore,
    id: &SpanId,
    target: &Target,
) -> Result<Option<Span>, StoreError> {
    let mut filter = of_target(target);
    filter.insert("_id", id_to_bson(id));
    let options = store.link.find_options(1, doc! {}, "_id_");
    let found = store.link.fetch(filter, options).await?;
    found.first().map(readable).transpose()
}

impl MongoStore {
    /// Whether an unreadable document must be logged now.
    pub(crate) fn is_news(&self, of: &'static str, raw: &RawDocument) -> bool {
        self.link.logged.is_news(of, &name_of(raw))
    }
}

/// The id of a span, even if the rest of the document is unreadable.
pub(crate) fn span_id(raw: &RawDocument) -> Result<SpanId, Unreadable> {
    let id = Identity::of(raw).map(|id| decoded(&id.filter()));
    let id = id.transpose()?.unwrap_or_default();
    id_from_bson(id.get("_id"))
}
