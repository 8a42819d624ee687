//! Causes as operators see them: with the numbers of their spans and of the usages that were set aside.
//!
//! The numbers are not stored. They are counted in indexes, up to a bound.

use std::collections::HashMap;

use bson::{Document, doc};
use futures_util::{StreamExt, TryStreamExt, future, stream};
use mongodb::Collection;
use sampler_domain::{CauseId, EntryState, Id};
use sampler_store::{CauseQuery, KeptCause, StoreError, SuspendedCause};

use crate::MongoStore;
use crate::call::{BY_ID, CallError};
use crate::document::moment;
use crate::index;

/// Commands at once, where there is one for each cause or resource.
const AT_ONCE: usize = 4;

/// How many spans are suspended, and how many usages were set aside, by the ids of their causes.
struct Counts {
    spans: HashMap<String, u64>,
    set_aside: HashMap<String, u64>,
}

impl Counts {
    /// A cause with its numbers, which are exact.
    fn of(&self, kept: &KeptCause) -> SuspendedCause {
        let id = kept.id.to_string();
        SuspendedCause {
            spans: self.spans.get(&id).copied().unwrap_or(0),
            set_aside: self.set_aside.get(&id).copied().unwrap_or(0),
            more: 0,
            kept: kept.clone(),
        }
    }
}

pub(crate) async fn causes(
    store: &MongoStore,
    query: &CauseQuery,
) -> Result<Vec<SuspendedCause>, StoreError> {
    let mut filter = Document::new();
    if let Some(resources) = &query.resources {
        let ids: Vec<&str> = resources.iter().map(Id::as_str).collect();
        filter.insert("resource_id", doc! { "$in": ids });
    }
    let folded = store.folded(&filter, query).await?;
    if !folded.is_empty() {
        let conditions: Vec<Document> = folded.iter().map(Folded::condition).collect();
        filter.insert("$nor", conditions);
    }
    let kept = store.causes_where(filter, "since", query.limit).await?;
    let mut causes = match store.counted_together(&kept).await? {
        Some(counts) => kept.iter().map(|kept| counts.of(kept)).collect(),
        None => store.counted_apart(kept).await?,
    };
    for cause in &mut causes {
        let last = folded.iter().find(|folded| folded.last.id == cause.kept.id);
        cause.more = last.map_or(0, |folded| folded.more);
    }
    Ok(SuspendedCause::list(causes))
}

/// A resource with more causes than are listed.
struct Folded {
    /// The last one that is listed.
    last: KeptCause,
    /// How many are not.
    more: u64,
}

impl Folded {
    /// The condition that a cause is not listed: it came later.
    fn condition(&self) -> Document {
        let since = moment(self.last.since);
        let later = doc! { "since": { "$gt": since.clone() } };
        let same = doc! { "since": since, "_id": { "$gt": self.last.id.to_string() } };
        let resource = self.last.cause.resource_id.as_str();
        doc! { "resource_id": resource, "$or": [later, same] }
    }
}

pub(crate) async fn cause(
    store: &MongoStore,
    id: CauseId,
) -> Result<Option<SuspendedCause>, StoreError> {
    let kept = store
        .causes_where(doc! { "_id": id.to_string() }, "since", 1)
        .await?;
    let Some(kept) = kept.into_iter().next() else {
        return Ok(None);
    };
    let cause = store.counted_cause(kept, SuspendedCause::COUNT_MAX).await?;
    Ok(Some(cause))
}

/// A resource, and how many causes it has.
fn group(found: &Document) -> Option<(String, usize)> {
    let count = usize::try_from(found.get_i64("count").ok()?).ok()?;
    Some((found.get_str("_id").ok()?.to_owned(), count))
}

impl MongoStore {
    /// The resources that have more causes than their share of the list.
    async fn folded(
        &self,
        filter: &Document,
        query: &CauseQuery,
    ) -> Result<Vec<Folded>, CallError> {
        let by_resource = vec![
            doc! { "$match": filter },
            doc! { "$group": { "_id": "$resource_id", "count": { "$sum": 1_i64 } } },
        ];
        let groups = self.aggregate(self.causes.clone(), by_resource, BY_ID);
        let groups: Vec<(String, usize)> = groups.await?.iter().filter_map(group).collect();
        let counts: Vec<usize> = groups.iter().map(|(_, count)| *count).collect();
        let share = query.share(&counts);
        let crowded = groups.into_iter().filter(|(_, count)| *count > share);
        let folded = stream::iter(crowded).map(|(resource, count)| async move {
            let of_resource = doc! { "resource_id": resource };
            let listed = self.causes_where(of_resource, "since", share).await?;
            Ok(listed.into_iter().next_back().map(|last| Folded {
                last,
                more: (count - share) as u64,
            }))
        });
        let folded = folded.buffered(AT_ONCE).try_filter_map(future::ok);
        folded.try_collect().await
    }

    /// The numbers of all these causes by two commands; none if there is more to count than an
    /// answer may cost. Then each cause has a part of this limit, and commands of its own.
    async fn counted_together(&self, causes: &[KeptCause]) -> Result<Option<Counts>, CallError> {
        if causes.is_empty() {
            return Ok(None);
        }
        let ids: Vec<String> = causes.iter().map(|cause| cause.id.to_string()).collect();
        let of_spans = doc! { "processing.suspended.cause": { "$in": &ids } };
        let (spans, field) = (&self.link.collection, "$processing.suspended.cause");
        let spans = self.count_by(spans, of_spans, field, index::SUSPENDED);
        let Some(spans) = spans.await? else {
            return Ok(None);
        };
        let set_aside = EntryState::SetAside.name();
        let of_usages = doc! { "cause": { "$in": ids }, "state": set_aside };
        let usages = &self.usages.collection;
        let usages = self.count_by(usages, of_usages, "$cause", index::SET_ASIDE);
        let set_aside = usages.await?;
        Ok(set_aside.map(|set_aside| Counts { spans, set_aside }))
    }

    /// How many documents of a collection have each value of a field; none if there are too many.
    /// Only the index is read.
    async fn count_by(
        &self,
        of: &Collection<Document>,
        filter: Document,
        field: &str,
        index: &str,
    ) -> Result<Option<HashMap<String, u64>>, CallError> {
        let most = i64::try_from(SuspendedCause::COUNT_MAX).unwrap_or(i64::MAX);
        let pipeline = vec![
            doc! { "$match": filter },
            doc! { "$limit": most + 1 },
            doc! { "$group": { "_id": field, "count": { "$sum": 1_i64 } } },
        ];
        let found = self.aggregate(of.clone(), pipeline, index).await?;
        let counts = found.iter().filter_map(|group| {
            let id = group.get_str("_id").ok()?.to_owned();
            Some((id, u64::try_from(group.get_i64("count").ok()?).ok()?))
        });
        let counts: HashMap<String, u64> = counts.collect();
        let is_all = counts.values().sum::<u64>() <= SuspendedCause::COUNT_MAX as u64;
        Ok(is_all.then_some(counts))
    }

    /// The numbers of causes, by commands for each: an equal part of what may be counted.
    async fn counted_apart(
        &self,
        causes: Vec<KeptCause>,
    ) -> Result<Vec<SuspendedCause>, CallError> {
        let bound = SuspendedCause::COUNT_MAX / causes.len().max(1);
        let counted = stream::iter(causes).map(|kept| self.counted_cause(kept, bound));
        counted.buffered(AT_ONCE).try_collect().await
    }

    async fn counted_cause(
        &self,
        kept: KeptCause,
        bound: usize,
    ) -> Result<SuspendedCause, CallError> {
        // Suspensions that are out of date may be among the spans.
        let of_cause = doc! { "processing.suspended.cause": kept.id.to_string() };
        Ok(SuspendedCause {
            spans: self.link.count(of_cause, index::SUSPENDED, bound).await?,
            set_aside: self.count_set_aside(kept.id, bound).await?,
            more: 0,
            kept,
        })
    }

    /// The first causes by a time of theirs. There are few, so the server sorts them.
    pub(crate) async fn causes_where(
        &self,
        filter: Document,
        order: &str,
        limit: usize,
    ) -> Result<Vec<KeptCause>, CallError> {
        let order = doc! { order: 1, "_id": 1 };
        let found = self.find_causes(filter, order, limit).await?;
        Ok(found.iter().filter_map(|raw| self.cause_in(raw)).collect())
    }
}
