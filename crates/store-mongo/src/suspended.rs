//! Causes as operators see them: with the numbers of their spans and of the usages that were set aside.
//!
//! The numbers are not stored. They are counted in indexes, up to a bound.

use bson::{Document, doc};
use futures_util::TryStreamExt;
use mongodb::options::FindOptions;
use sampler_domain::{CauseId, Id};
use sampler_store::{CauseKey, CausePage, CauseQuery, KeptCause, StoreError, SuspendedCause};

use crate::MongoStore;
use crate::call::{CallError, hint};
use crate::document::moment;
use crate::index;

impl MongoStore {
    pub(crate) async fn suspended_causes(
        &self,
        query: &CauseQuery,
    ) -> Result<CausePage, StoreError> {
        let mut filter = Document::new();
        if let Some(resources) = &query.resources {
            let ids: Vec<&str> = resources.iter().map(Id::as_str).collect();
            filter.insert("resource_id", doc! { "$in": ids });
        }
        if let Some(CauseKey { since, id }) = query.begin() {
            let since = moment(since);
            filter.insert(
                "$or",
                [
                    doc! { "since": { "$gt": since.clone() } },
                    doc! { "since": since, "_id": { "$gt": id.to_string() } },
                ]
                .to_vec(),
            );
        }
        let kept = self.causes_where(filter, query.read_max()).await?;
        let block = query.block_of(kept);
        let mut causes = Vec::with_capacity(block.left.len());
        for kept in &block.left {
            causes.push(self.counted_cause(kept.clone(), block.count_max).await?);
        }
        Ok(block.page(causes, query.limit))
    }

    pub(crate) async fn one_cause(
        &self,
        id: CauseId,
    ) -> Result<Option<SuspendedCause>, StoreError> {
        let kept = self.causes_where(doc! { "_id": id.to_string() }, 1).await?;
        let Some(kept) = kept.into_iter().next() else {
            return Ok(None);
        };
        let cause = self.counted_cause(kept, SuspendedCause::COUNT_MAX).await?;
        Ok(Some(cause))
    }

    async fn counted_cause(
        &self,
        kept: KeptCause,
        bound: usize,
    ) -> Result<SuspendedCause, CallError> {
        Ok(SuspendedCause {
            spans: self.count_of_cause(kept.id, bound).await?,
            set_aside: self.count_set_aside(kept.id, bound).await?,
            kept,
        })
    }

    /// The causes that have been there longest. There are few, so they are sorted by the server.
    async fn causes_where(
        &self,
        filter: Document,
        limit: usize,
    ) -> Result<Vec<KeptCause>, CallError> {
        let options = FindOptions::builder()
            .sort(doc! { "since": 1, "_id": 1 })
            .limit(i64::try_from(limit).unwrap_or(i64::MAX))
            .max_time(self.link.time_limit)
            .build();
        let causes = self.causes.clone();
        let find = async move {
            let found = causes.find(filter).with_options(options).await?;
            found.try_collect::<Vec<_>>().await
        };
        let found = self.link.run(find).await?;
        Ok(found.iter().filter_map(|raw| self.cause_in(raw)).collect())
    }

    /// How many spans are suspended under a cause, counted up to a bound. Only the index is read,
    /// so suspensions that are out of date may be among them.
    async fn count_of_cause(&self, cause: CauseId, bound: usize) -> Result<u64, CallError> {
        let filter = doc! { "processing.suspended.cause": cause.to_string() };
        let spans = self.link.collection.clone();
        let limit = u64::try_from(bound.max(1)).unwrap_or(u64::MAX);
        let time_limit = self.link.time_limit;
        let count = async move {
            let count = spans.count_documents(filter);
            let count = count.limit(limit).hint(hint(index::SUSPENDED));
            count.max_time(time_limit).await
        };
        self.link.run(count).await
    }
}
