//! Ids by how they begin, and the spans that were kept last: for people who search.

use bson::{Document, doc};
use mongodb::options::FindOptions;
use sampler_domain::Id;
use sampler_store::{ListedSpan, StoreError};

use crate::call::{CallError, Link, hint};
use crate::{MongoStore, index};

/// Up to `limit` ids of a field that begin so. Each is one search in an index, which passes over
/// all that has the same id.
pub(crate) async fn ids(
    store: &MongoStore,
    field: &str,
    prefix: &str,
    limit: usize,
) -> Result<Vec<Id>, StoreError> {
    // The index of spans by their instance is hashed. Each usage names its instance.
    let (link, index) = match field {
        "organization_id" => (&store.link, index::LIST_ORGANIZATION),
        "resource_id" => (&store.link, index::LIST_RESOURCE),
        "resource_instance_id" => (&store.usages, index::SUM_INSTANCE),
        _ => {
            return Err(StoreError::Refused(
                "no index begins with this field".into(),
            ));
        }
    };
    let path = format!("target.{field}");
    let mut ids: Vec<String> = Vec::new();
    let mut bound = doc! { "$gte": prefix };
    while ids.len() < limit {
        let found = match link.first_id(&path, field, bound.clone(), index).await {
            Err(error) if error.is_no_hint() && index == index::SUM_INSTANCE && ids.is_empty() => {
                store.make_sum_index(field).await?;
                link.first_id(&path, field, bound, index).await?
            }
            found => found?,
        };
        let Some(id) = found else {
            break;
        };
        if !id.starts_with(prefix) {
            break;
        }
        bound = doc! { "$gt": &id };
        ids.push(id);
    }
    Ok(ids.into_iter().map(Id::from_store).collect())
}

/// The spans that were kept last: their ids begin with the time of the insert.
pub(crate) async fn newest_spans(
    store: &MongoStore,
    limit: usize,
) -> Result<Vec<ListedSpan>, StoreError> {
    let options = store.link.find_options(limit, doc! { "_id": -1 }, "_id_");
    let of_spans = doc! { "_id": { "$type": "objectId" } };
    let found = store.link.found(of_spans, options, limit).await?;
    let listed = found.documents.iter().filter_map(|raw| store.listed(raw));
    Ok(listed.collect())
}

impl Link {
    /// The first id within a bound, out of the index alone.
    async fn first_id(
        &self,
        path: &str,
        field: &str,
        bound: Document,
        index: &str,
    ) -> Result<Option<String>, CallError> {
        let options = FindOptions::builder()
            .projection(doc! { path: 1, "_id": 0 })
            .sort(doc! { path: 1 })
            .hint(hint(index))
            .build();
        let found = self.found(doc! { path: bound }, options, 1).await?;
        let first = found.documents.first();
        let id = first.and_then(|raw| raw.get_document("target").ok()?.get_str(field).ok());
        Ok(id.map(str::to_owned))
    }
}
