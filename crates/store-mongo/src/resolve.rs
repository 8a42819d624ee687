//! Reading what became of many events at once, or what stood in their way.
//!
//! All that an answer to a provider is based on is read as no other primary can know better.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering;

use bson::raw::{RawDocument, RawDocumentBuf};
use bson::{Bson, Document, doc};
use sampler_domain::{EventId, Span, SpanId, Target};
use sampler_store::StoreError;
use tracing::error;

use crate::call::{CallError, Link};
use crate::document::{
    as_uuid, id_from_bson, id_to_bson, read_event_id, read_target, target_fields,
};
use crate::unreadable::{Identity, decoded, name_of, span_in};

/// Documents by the target and the `correlation_id` of their spans.
pub(crate) type ByTarget = HashMap<(Target, String), RawDocumentBuf>;

/// The spans of these targets with these `correlation_id`s.
pub(crate) async fn by_target<'a>(
    link: &Link,
    targets: impl IntoIterator<Item = (&'a Target, Vec<&'a str>)>,
) -> Result<ByTarget, CallError> {
    let branch = |(target, correlation_ids)| {
        let mut branch = target_fields(target, "target.");
        branch.insert("target.correlation_id", doc! { "$in": correlation_ids });
        branch
    };
    let branches: Vec<Document> = targets.into_iter().map(branch).collect();
    let found = link.find_exactly(doc! { "$or": branches }, "unique_target");
    let key = |raw: &RawDocument| {
        let target = decoded(raw.get_document("target").ok()?).ok()?;
        let correlation_id = target.get_str("correlation_id").ok()?.to_owned();
        Some((read_target(&target).ok()?, correlation_id))
    };
    Ok(by_key(link, found.await?, key))
}

/// Documents by what they are looked up by. A document whatever else of which cannot be decoded is
/// in the way of those alone that look for it; one that does not even tell its key, of those alone
/// that find nothing.
fn by_key<K: Eq + std::hash::Hash>(
    link: &Link,
    found: Vec<RawDocumentBuf>,
    key: impl Fn(&RawDocument) -> Option<K>,
) -> HashMap<K, RawDocumentBuf> {
    let mut by_key = HashMap::with_capacity(found.len());
    for raw in found {
        if let Some(key) = key(&raw) {
            by_key.insert(key, raw);
        } else {
            let name = name_of(&raw);
            if link.told.is_news("resolve", &name) {
                error!(code = "event.unreadable", span.id = %name, "a document in the way of an event cannot be read");
            }
        }
    }
    by_key
}

/// The documents that have one of these event ids in `field`, by that id, be it a text or the UUID
/// binary that some drivers make of a text. One with the text itself comes first.
pub(crate) async fn by_event_id<'a>(
    link: &Link,
    field: &str,
    ids: impl Iterator<Item = &'a EventId>,
) -> Result<HashMap<String, RawDocumentBuf>, CallError> {
    let forms = |id: &EventId| [Some(Bson::from(id.as_str())), as_uuid(id.as_str())];
    let ids: Vec<Bson> = ids.flat_map(forms).flatten().collect();
    if ids.is_empty() {
        return Ok(HashMap::new());
    }
    let index = format!("unique_{field}");
    let mut found = link
        .find_exactly(doc! { field: { "$in": ids } }, &index)
        .await?;
    found.sort_by_key(|raw| raw.get_str(field).is_ok());
    Ok(by_key(link, found, |raw| event_id(raw, field)))
}

/// The event id that a document has in `field`, in either of its forms.
fn event_id(raw: &RawDocument, field: &str) -> Option<String> {
    let value = raw.get(field).ok()??;
    let id = doc! { field: Bson::try_from(value).ok()? };
    read_event_id(&id, field).map(String::from)
}

/// Those of these event ids that are kept as UUID binaries in `field`: no unique index tells them from
/// their texts.
pub(crate) async fn kept_as_uuids<'a>(
    link: &Link,
    field: &str,
    ids: impl Iterator<Item = &'a EventId>,
) -> Result<HashSet<String>, CallError> {
    if !link.has_uuids.load(Ordering::Acquire) {
        return Ok(HashSet::new());
    }
    let ids: Vec<Bson> = ids.filter_map(|id| as_uuid(id.as_str())).collect();
    let mut options = link.find_options(ids.len(), doc! {}, &format!("unique_{field}"));
    if ids.is_empty() {
        return Ok(HashSet::new());
    }
    options.projection = Some(doc! { "_id": 0, field: 1 });
    let found = link.find(doc! { field: { "$in": ids } }, options).await?;
    Ok(found
        .iter()
        .filter_map(|raw| event_id(raw, field))
        .collect())
}

/// Documents by the ids of their spans.
pub(crate) async fn by_span_id<'a>(
    link: &Link,
    ids: impl Iterator<Item = &'a SpanId>,
) -> Result<HashMap<SpanId, RawDocumentBuf>, CallError> {
    let ids: Vec<Bson> = ids.map(id_to_bson).collect();
    let found = link.find_exactly(doc! { "_id": { "$in": ids } }, "_id_");
    let key = |raw: &RawDocument| {
        let id = decoded(&Identity::of(raw)?.filter()).ok()?;
        id_from_bson(id.get("_id")).ok()
    };
    Ok(by_key(link, found.await?, key))
}

/// The span that a document holds.
///
/// # Errors
/// Where it holds none.
pub(crate) fn readable(raw: &RawDocumentBuf) -> Result<Span, StoreError> {
    span_in(raw).map_err(|error| StoreError::Refused(Box::new(error)))
}
