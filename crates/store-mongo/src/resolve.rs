//! Reads what happened to many events at once, or what they conflict with. Reads are linearizable where an
//! older state could make the answer to a provider wrong. For what does not change once a majority has it (the
//! end of a span, an id that another target has) a majority is enough.

use std::collections::HashMap;

use bson::raw::{RawDocument, RawDocumentBuf};
use bson::{Bson, Document, doc};
use sampler_domain::{EventId, Key, Span, SpanId, Target, Timestamp};
use sampler_store::{IdKind, SpansBy, StoreError};
use tracing::error;

use crate::call::{CallError, Link};
use crate::document::{
    OPEN, id_from_bson, id_to_bson, key_to_bson, measured_usage, read_event_id, read_target,
};
use crate::projection::{comparable, without_measures};
use crate::unreadable::{Identity, decoded, name_of, span_in, value_in};
use crate::{document, index};

/// Documents by the target and the `correlation_id` of their spans.
pub(crate) type ByTarget = HashMap<(Target, String), RawDocumentBuf>;

pub(crate) type EventKey = (Target, EventId);

/// Documents by the events that they were found by.
pub(crate) type ByEvent = HashMap<EventKey, RawDocumentBuf>;

/// The condition that a span is of this target, in the form that uses the indexes.
pub(crate) fn of_target(target: &Target) -> Document {
    doc! { "processing.key": key_to_bson(Key::of(target)) }
}

/// A span of a target as the index of spans has it: by its end and its `correlation_id`.
#[derive(Debug)]
pub(crate) struct SpanOf<'a> {
    pub(crate) target: &'a Target,
    pub(crate) end: Bson,
    pub(crate) correlation_id: &'a str,
}

impl<'a> SpanOf<'a> {
    /// The open span of a target.
    pub(crate) fn open(target: &'a Target) -> Self {
        Self {
            target,
            end: Bson::Null,
            correlation_id: OPEN,
        }
    }
}

/// The spans among these that exist.
pub(crate) async fn by_target<'a>(
    link: &Link,
    spans: impl Iterator<Item = SpanOf<'a>>,
) -> Result<ByTarget, CallError> {
    let branches = spans.map(|span| {
        let mut branch = of_target(span.target);
        branch.insert("end", span.end);
        branch.insert("target.correlation_id", span.correlation_id);
        branch
    });
    let branches = any_of(branches.collect());
    let found = link.find_linearizable(branches, index::SPAN, without_measures());
    Ok(by_key(link, found.await?, |raw| {
        let target = decoded(raw.get_document("target").ok()?).ok()?;
        let correlation_id = target.get_str("correlation_id").ok()?.to_owned();
        Some((read_target(&target).ok()?, correlation_id))
    }))
}

/// The open span of a target, and the one that ends next after a time.
///
/// The read of the second need not be linearizable: a span that has ended does not change its end.
async fn not_ended(
    link: &Link,
    target: &Target,
    time: Timestamp,
) -> Result<Vec<RawDocumentBuf>, CallError> {
    let mut later = of_target(target);
    later.insert("end", doc! { "$gt": document::moment(time) });
    let mut options = link.find_options(1, doc! { "end": 1 }, index::SPAN);
    options.projection = Some(without_measures());
    let later = link.find(later, options).await?;
    let open = by_target(link, std::iter::once(SpanOf::open(target))).await?;
    Ok(open.into_values().chain(later).collect())
}

pub(crate) async fn find_spans(
    link: &Link,
    target: &Target,
    by: &SpansBy,
) -> Result<Vec<RawDocumentBuf>, CallError> {
    let (kind, id, projection) = match by {
        SpansBy::StartedBy(id, measures) => {
            let bytes = measured_usage(measures).map_or(0, |it| it.as_bytes().len());
            let start = std::iter::once((Key::of(target), id, bytes));
            (IdKind::Start, id, comparable(start))
        }
        SpansBy::StoppedBy(id) => (IdKind::Stop, id, without_measures()),
        SpansBy::NotEndedBy(moment) => return not_ended(link, target, *moment).await,
    };
    let event = std::iter::once((target, id));
    let mut found = by_event_id(link, kind, event, projection).await?;
    let key = (target.clone(), id.clone());
    Ok(found.remove(&key).into_iter().collect())
}

/// The condition that one of `branches` is met. A single branch needs no `$or`, which takes the server
/// longer to plan.
pub(crate) fn any_of(mut branches: Vec<Document>) -> Document {
    if branches.len() == 1 {
        return branches.remove(0);
    }
    doc! { "$or": branches }
}

/// Documents by the key of the lookup. An unreadable document affects only the events that look for
/// its key. A document whose key is unreadable counts as not there.
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
            if link.logged.is_news("resolve", &name) {
                error!(code = "event.unreadable", span.id = %name, "a document in the way of an event cannot be read");
            }
        }
    }
    by_key
}

/// The field of the ids of these events.
fn field_of(kind: IdKind) -> &'static str {
    match kind {
        IdKind::Start => "start_dedup_id",
        IdKind::Stop => "end_dedup_id",
    }
}

/// The documents that have one of these event ids of a target.
pub(crate) async fn by_event_id<'a>(
    link: &Link,
    kind: IdKind,
    events: impl Iterator<Item = (&'a Target, &'a EventId)>,
    projection: Document,
) -> Result<ByEvent, CallError> {
    let field = field_of(kind);
    let branches = events.map(|(target, id)| {
        let mut branch = of_target(target);
        branch.insert(field, id.as_str());
        branch
    });
    let branches: Vec<Document> = branches.collect();
    if branches.is_empty() {
        return Ok(HashMap::new());
    }
    let index = match kind {
        IdKind::Start => index::START,
        IdKind::Stop => index::STOP,
    };
    let found = link
        .find_linearizable(any_of(branches), index, projection)
        .await?;
    Ok(by_key(link, found, |raw| event_of(raw, field)))
}

/// The event whose id a document has in `field`.
fn event_of(raw: &RawDocument, field: &str) -> Option<EventKey> {
    let target = decoded(raw.get_document("target").ok()?).ok()?;
    let id = doc! { field: value_in(raw, field)? };
    Some((read_target(&target).ok()?, read_event_id(&id, field)?))
}

pub(crate) async fn by_span_id<'a>(
    link: &Link,
    spans: impl Iterator<Item = &'a Span>,
) -> Result<HashMap<SpanId, RawDocumentBuf>, CallError> {
    let branches = spans.map(|span| {
        let mut branch = of_target(&span.target);
        branch.insert("_id", id_to_bson(&span.id));
        branch
    });
    let branches: Vec<Document> = branches.collect();
    let found = link.find_linearizable(doc! { "$or": branches }, "_id_", without_measures());
    Ok(by_key(link, found.await?, |raw| {
        let id = decoded(&Identity::of(raw)?.filter()).ok()?;
        id_from_bson(id.get("_id")).ok()
    }))
}

/// The span in a document.
pub(crate) fn readable(raw: &RawDocumentBuf) -> Result<Span, StoreError> {
    span_in(raw).map_err(StoreError::refused)
}
