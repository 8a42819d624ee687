//! Reads what happened to many events at once, or what they conflict with. Reads are linearizable where an
//! older state could make the answer to a provider wrong. For what does not change once a majority has it (the
//! end of a span) a majority is enough.

use std::collections::{HashMap, HashSet};

use bson::{Bson, Document, doc};
use sampler_domain::{EventId, Key, Span, SpanId, Target, Timestamp};
use sampler_store::{IdKind, SpansBy};

use crate::call::{BY_ID, CallError, Link};
use crate::document::{OPEN, SpanDocument, id_to_bson, key_to_bson, measures_size, moment};
use crate::index;
use crate::raw;

/// Spans by their target and their `correlation_id`.
pub(crate) type ByTarget = HashMap<(Target, String), Span>;

pub(crate) type EventKey = (Target, EventId);

/// Bytes that kept measures may take beyond those of the start that they are compared with.
const SPARE_BYTES: usize = 1 << 10;

/// The condition that a span is of this target, in the form that uses the indexes.
pub(crate) fn of_target(target: &Target) -> Document {
    doc! { "processing.key": key_to_bson(Key::of(target)) }
}

/// A whole document, but with an empty list of measures: a span can have half a megabyte of them, however
/// small the event is that it decides about.
pub(crate) fn without_measures() -> Document {
    doc! { "measured_usage": { "$slice": 0 } }
}

/// All that a span is read from. Starts with these keys and ids are compared with it, whose measures
/// take so many bytes. Where those of the span take more, and so differ, it gets one without a name, which no start
/// has.
pub(crate) fn comparable<'a>(starts: impl Iterator<Item = (Key, &'a EventId, usize)>) -> Document {
    let mut starts: Vec<_> = starts.collect();
    // The first of several with the same id counts.
    starts.sort_by_key(|(_, _, bytes)| std::cmp::Reverse(*bytes));
    let (mut events, mut limits) = (Vec::new(), Vec::new());
    for (key, id, bytes) in starts {
        events.push(doc! { "key": key_to_bson(key), "id": id.as_str() });
        limits.push(i64::try_from(bytes + SPARE_BYTES).unwrap_or(i64::MAX));
    }
    let event = doc! { "key": "$processing.key", "id": "$start_dedup_id" };
    let index = doc! { "$indexOfArray": [{ "$literal": events }, event] };
    let limit = doc! { "$arrayElemAt": [{ "$literal": limits }, index] };
    let bytes = doc! { "$bsonSize": { "all": "$measured_usage" } };
    let another = doc! { "$literal": [{ "measure": "", "quantity": 0 }] };
    doc! {
        "measured_usage": { "$cond": [{ "$gt": [bytes, limit] }, another, "$measured_usage"] },
        "target": 1, "start": 1, "end": 1, "processing": 1,
        "start_dedup_id": 1, "start_client": 1,
        "end_dedup_id": 1, "stop_client": 1,
    }
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

/// The spans that meet one of these conditions, with their `correlation_id`. One that cannot be read is logged,
/// and counts as not there.
async fn find(
    link: &Link,
    mut branches: Vec<Document>,
    index: &str,
    projection: Document,
) -> Result<Vec<(Span, String)>, CallError> {
    // A single branch needs no `$or`, which takes the server longer to plan.
    let filter = match branches.len() {
        0 => return Ok(Vec::new()),
        1 => branches.remove(0),
        _ => doc! { "$or": branches },
    };
    let found = link.find_linearizable(filter, index, projection).await?;
    let spans = found.iter().filter_map(|raw| {
        let span = raw::read(raw).and_then(SpanDocument::into_span_with_correlation);
        if let Err(problem) = &span {
            link.logged.tell("event.unreadable", raw, problem);
        }
        span.ok()
    });
    Ok(spans.collect())
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
    let found = find(link, branches.collect(), index::SPAN, without_measures()).await?;
    let by_target = found
        .into_iter()
        .map(|(span, correlation_id)| ((span.target.clone(), correlation_id), span));
    Ok(by_target.collect())
}

/// The spans that have one of these event ids of a target.
pub(crate) async fn by_event_id<'a>(
    link: &Link,
    kind: IdKind,
    events: impl Iterator<Item = (&'a Target, &'a EventId)>,
    projection: Document,
) -> Result<HashMap<EventKey, Span>, CallError> {
    let (field, index) = match kind {
        IdKind::Start => ("start_dedup_id", index::START),
        IdKind::Stop => ("end_dedup_id", index::STOP),
    };
    let branches = events.map(|(target, id)| {
        let mut branch = of_target(target);
        branch.insert(field, id.as_str());
        branch
    });
    let found = find(link, branches.collect(), index, projection).await?;
    let by_event = found.into_iter().filter_map(|(span, _)| {
        let id = match kind {
            IdKind::Start => span.start_id.clone(),
            IdKind::Stop => span.end_id.clone(),
        };
        Some(((span.target.clone(), id?), span))
    });
    Ok(by_event.collect())
}

/// Those of the spans that exist.
pub(crate) async fn existing<'a>(
    link: &Link,
    spans: impl Iterator<Item = &'a Span>,
) -> Result<HashSet<SpanId>, CallError> {
    let branches = spans.map(|span| {
        let mut branch = of_target(&span.target);
        branch.insert("_id", id_to_bson(&span.id));
        branch
    });
    let found = find(link, branches.collect(), BY_ID, without_measures()).await?;
    Ok(found.into_iter().map(|(span, _)| span.id).collect())
}

/// The spans that decide about an event of a target.
pub(crate) async fn find_spans(
    link: &Link,
    target: &Target,
    by: &SpansBy,
) -> Result<Vec<Span>, CallError> {
    let (kind, id, projection) = match by {
        SpansBy::StartedBy(id, measures) => {
            let start = std::iter::once((Key::of(target), id, measures_size(measures)));
            (IdKind::Start, id, comparable(start))
        }
        SpansBy::StoppedBy(id) => (IdKind::Stop, id, without_measures()),
        SpansBy::NotEndedBy(moment) => return not_ended(link, target, *moment).await,
    };
    let event = std::iter::once((target, id));
    let found = by_event_id(link, kind, event, projection).await?;
    Ok(found
        .into_values()
        .filter(|it| it.target == *target)
        .collect())
}

/// The open span of a target, and the one that ends next after a time.
///
/// The read of the second need not be linearizable: a span that has ended does not change its end.
async fn not_ended(link: &Link, target: &Target, time: Timestamp) -> Result<Vec<Span>, CallError> {
    let mut later = of_target(target);
    later.insert("end", doc! { "$gt": moment(time) });
    let mut options = link.find_options(1, doc! { "end": 1 }, index::SPAN);
    options.projection = Some(without_measures());
    let later = link.find(later, options).await?;
    let open = by_target(link, std::iter::once(SpanOf::open(target))).await?;
    let later = later.iter().filter_map(|raw| raw::span_in(raw).ok());
    Ok(open.into_values().chain(later).collect())
}
