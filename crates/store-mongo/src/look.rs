//! Looking up what became of many events at once, or what stood in their way.
//!
//! All that an answer to a provider is based on is read as no other primary can know better.

use std::collections::HashMap;

use bson::{Bson, Document, doc};
use sampler_domain::{EventId, Span, SpanId, Target};
use sampler_store::StoreError;

use crate::call::{Fault, Link};
use crate::document::{id_from_bson, id_to_bson, read, read_target, target_fields};

/// Documents by the target and the `correlation_id` of their spans.
pub(crate) type ByTarget = HashMap<(Target, String), Document>;

/// The spans of these targets with these `correlation_id`s.
pub(crate) async fn by_target<'a>(
    link: &Link,
    targets: impl IntoIterator<Item = (&'a Target, Vec<&'a str>)>,
) -> Result<ByTarget, Fault> {
    let branch = |(target, correlation_ids)| {
        let mut branch = target_fields(target, "target.");
        branch.insert("target.correlation_id", doc! { "$in": correlation_ids });
        branch
    };
    let branches: Vec<Document> = targets.into_iter().map(branch).collect();
    let found = link.find_exactly(doc! { "$or": branches }, "unique_target");
    let key = |document: &Document| {
        let target = document.get_document("target").ok()?;
        let correlation_id = target.get_str("correlation_id").ok()?.to_owned();
        Some((read_target(target).ok()?, correlation_id))
    };
    let found = found.await?.into_iter();
    Ok(found
        .filter_map(|document| Some((key(&document)?, document)))
        .collect())
}

/// The documents that have one of these event ids in `field`, by that id.
pub(crate) async fn by_event_id<'a>(
    link: &Link,
    field: &str,
    ids: impl Iterator<Item = &'a EventId>,
) -> Result<HashMap<String, Document>, Fault> {
    let ids: Vec<&str> = ids.map(EventId::as_str).collect();
    if ids.is_empty() {
        return Ok(HashMap::new());
    }
    let index = format!("unique_{field}");
    let found = link.find_exactly(doc! { field: { "$in": ids } }, &index);
    let found = found.await?.into_iter();
    Ok(found
        .filter_map(|document| Some((document.get_str(field).ok()?.to_owned(), document)))
        .collect())
}

/// Documents by the ids of their spans.
pub(crate) async fn by_span_id<'a>(
    link: &Link,
    ids: impl Iterator<Item = &'a SpanId>,
) -> Result<HashMap<SpanId, Document>, Fault> {
    let ids: Vec<Bson> = ids.map(id_to_bson).collect();
    let found = link.find_exactly(doc! { "_id": { "$in": ids } }, "_id_");
    let found = found.await?.into_iter();
    Ok(found
        .filter_map(|document| Some((id_from_bson(document.get("_id")).ok()?, document)))
        .collect())
}

/// The span that a document holds.
///
/// # Errors
/// Where it holds none.
pub(crate) fn readable(document: &Document) -> Result<Span, StoreError> {
    read(document).map_err(|error| StoreError::Refused(Box::new(error)))
}
