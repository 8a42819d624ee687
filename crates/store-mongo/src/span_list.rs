//! Lists of spans for the API.
//!
//! A list is read backwards from an index of one field of the target, `start` and `_id`. `start`
//! and `_id` never change, so a page that continues after one of them misses no span and shows none
//! twice. Other conditions are compared span by span, within a window of the index that limits the
//! cost of a page. The next page continues after the window.

use std::cmp::Reverse;

use bson::raw::RawDocument;
use bson::{Bson, Document, doc};
use mongodb::options::FindOptions;
use sampler_domain::{Id, SpanId, SpanState, Timestamp};
use sampler_store::{SpanPage, SpanPosition, SpanQuery, StoreError};
use serde::Deserialize;

use crate::MongoStore;
use crate::call::{CallError, hint};
use crate::document::{cause_to_bson, id_from_bson, id_to_bson, moment};
use crate::index;
use crate::raw;
use crate::reading::FoundDocuments;
use crate::resolve::of_target;

/// Spans that are compared with a query for one page.
const WINDOW: usize = 10_000;

/// The most documents of other programs that are passed over at the end of a window.
const ODD_MAX: usize = 10;

pub(crate) async fn spans(store: &MongoStore, query: &SpanQuery) -> Result<SpanPage, StoreError> {
    let narrowed_by = query.target.narrowed_by();
    match (narrowed_by, &query.resources) {
        (Some(("resource_instance_id", _)), _) => return store.list_instance(query).await,
        (_, Some(resources)) => return store.list_resources(query, resources).await,
        _ => {}
    }
    match narrowed_by {
        Some(("organization_id", id)) => {
            let range = Range::new(
                index::LIST_ORGANIZATION,
                Some(("target.organization_id", id)),
            );
            store.list_range(query, &range).await
        }
        Some(("resource_id", id)) => {
            let range = Range::new(index::LIST_RESOURCE, Some(("target.resource_id", id)));
            store.list_range(query, &range).await
        }
        None if is_of_suspended(query) => {
            let range = Range::partial(index::LIST_SUSPENDED, is_suspended());
            store.list_range(query, &range).await
        }
        None if query.excluded => {
            let range = Range::partial(index::LIST_EXCLUDED, has_excluded());
            store.list_range(query, &range).await
        }
        _ => Err(StoreError::refused("the query is too wide")),
    }
}

impl MongoStore {
    /// A page of the spans of some resources. Each has a range of its own: nothing of other resources is
    /// read, so neither a position nor the time that it takes reveals them.
    async fn list_resources(
        &self,
        query: &SpanQuery,
        resources: &[Id],
    ) -> Result<SpanPage, StoreError> {
        let mut pages = Vec::new();
        for resource in resources {
            let mut own = SpanQuery {
                resources: None,
                ..query.clone()
            };
            own.target.set("resource_id", resource.clone());
            let field = Some(("target.resource_id", resource));
            let range = Range::new(index::LIST_RESOURCE, field);
            pages.push(self.list_range(&own, &range).await?);
        }
        Ok(merged(pages, query.limit))
    }

    /// A page out of a range of an index that has the spans in the order of the list.
    async fn list_range(
        &self,
        query: &SpanQuery,
        range: &Range<'_>,
    ) -> Result<SpanPage, StoreError> {
        let Some(mut bounds) = range.bounds(query) else {
            return Ok(SpanPage::default());
        };
        let window = if is_of_range_alone(query) {
            None
        } else {
            self.window_end(range, &bounds).await?
        };
        if let Some(end) = &window {
            bounds.min = range.key(moment(end.start), id_to_bson(&end.id));
        }
        let found = self
            .link
            .found(filter(query), bounds.options(range), query.limit);
        Ok(self.page(query, &found.await?, window))
    }

    /// The end of the window, unless the range ends before it. It is read from the index alone. It
    /// becomes a cursor that the client gets, who may read all of the range.
    async fn window_end(
        &self,
        range: &Range<'_>,
        bounds: &Bounds,
    ) -> Result<Option<SpanPosition>, CallError> {
        let mut options = bounds.options(range);
        options.skip = Some(WINDOW as u64 - 1);
        options.projection = Some(doc! { "_id": 1, "start": 1 });
        let found = self
            .link
            .found(range.condition.clone(), options, ODD_MAX)
            .await?;
        Ok(found.documents.iter().find_map(|raw| position(raw)))
    }

    /// A page of the spans of an instance: few, as a rule. The server sorts them.
    async fn list_instance(&self, query: &SpanQuery) -> Result<SpanPage, StoreError> {
        let mut conditions = filter(query);
        if let Some(target) = query.target.target() {
            conditions.extend(of_target(&target));
        }
        // Numbers alone.
        let to = query.to.unwrap_or(Timestamp::MAX);
        let bound = if query.to.is_some() { "$lt" } else { "$lte" };
        let mut all = vec![doc! { "start": { bound: moment(to) } }];
        if let Some(after) = &query.after {
            let id = doc! { "$literal": id_to_bson(&after.id) };
            all.push(doc! { "$or": [
                { "start": { "$lt": moment(after.start) } },
                // An expression, unlike a condition, compares ids of all types.
                { "start": moment(after.start), "$expr": { "$lt": ["$_id", id] } },
            ] });
        }
        conditions.insert("$and", all);
        let sort = doc! { "start": -1, "_id": -1 };
        let mut options = self
            .link
            .find_options(query.limit, sort, index::LIST_INSTANCE);
        options.allow_disk_use = Some(true);
        let found = self.link.found(conditions, options, query.limit).await?;
        Ok(self.page(query, &found, None))
    }

    /// The page of these documents that are in the queried state. It may end with a window.
    fn page(
        &self,
        query: &SpanQuery,
        found: &FoundDocuments,
        window: Option<SpanPosition>,
    ) -> SpanPage {
        let mut page = SpanPage::default();
        let listed = found.documents.iter().filter_map(|raw| self.listed(raw));
        page.spans
            .extend(listed.filter(|span| query.has_state(span)));
        page.next = if found.has_more {
            found.documents.iter().rev().find_map(|raw| position(raw))
        } else {
            window
        };
        page
    }
}

/// A range of an index on `start` and `_id`, behind a field of the target where there is one.
struct Range<'a> {
    index: &'static str,
    field: Option<(&'static str, &'a Id)>,
    /// The condition of the index. A partial index needs its own condition to be used. The others
    /// have none, since any condition, also one on a key, would have the server fetch the
    /// documents.
    condition: Document,
}

/// The lowest key of a range, and the one behind its highest.
struct Bounds {
    min: Document,
    max: Document,
}

impl<'a> Range<'a> {
    fn new(index: &'static str, field: Option<(&'static str, &'a Id)>) -> Self {
        Self {
            index,
            field,
            condition: Document::new(),
        }
    }

    fn partial(index: &'static str, condition: Document) -> Self {
        Self {
            index,
            field: None,
            condition,
        }
    }

    fn key(&self, start: Bson, id: Bson) -> Document {
        let field = self
            .field
            .map(|(name, id)| (name.to_owned(), id.as_str().into()));
        let mut key: Document = field.into_iter().collect();
        key.extend(doc! { "start": start, "_id": id });
        key
    }

    fn order(&self) -> Document {
        let field = self.field.map(|(name, _)| (name.to_owned(), (-1).into()));
        let mut order: Document = field.into_iter().collect();
        order.extend(doc! { "start": -1, "_id": -1 });
        order
    }

    /// The bounds of the index for a query. Unlike conditions, bounds know no types: ids that are
    /// texts are in one order with the others. `None` if no span starts so early.
    fn bounds(&self, query: &SpanQuery) -> Option<Bounds> {
        let after = query.after.as_ref();
        let after = after.filter(|after| query.to.is_none_or(|to| after.start < to));
        let max = match (after, query.to) {
            (Some(after), _) => self.key(moment(after.start), id_to_bson(&after.id)),
            (None, Some(to)) if to == Timestamp::MIN => return None,
            (None, Some(to)) => self.key(moment(to), Bson::MinKey),
            (None, None) => self.key(moment(Timestamp::MAX), Bson::MaxKey),
        };
        let min = self.key(moment(Timestamp::MIN), Bson::MinKey);
        Some(Bounds { min, max })
    }
}

/// Whether each span in the range of the index matches the query.
fn is_of_range_alone(query: &SpanQuery) -> bool {
    query.target.conditions().count() == 1
        && query.resources.is_none()
        && query.state.is_none()
        && query.cause.is_none()
        && !query.excluded
        && query.from.is_none()
}

impl Bounds {
    fn options(&self, range: &Range<'_>) -> FindOptions {
        FindOptions::builder()
            .sort(range.order())
            .hint(hint(range.index))
            .min(self.min.clone())
            .max(self.max.clone())
            .build()
    }
}

fn is_suspended() -> Document {
    doc! { "processing.failure.cause": { "$exists": true } }
}

fn has_excluded() -> Document {
    doc! { "processing.excluded": { "$exists": true } }
}

/// Whether all spans of a query are suspended.
fn is_of_suspended(query: &SpanQuery) -> bool {
    query.state == Some(SpanState::Suspended) || query.cause.is_some()
}

/// Documents that may be spans: a document with an `_id` of another type is of another program.
fn of_spans() -> Document {
    doc! { "_id": { "$type": ["objectId", "string"] } }
}

/// The conditions of a query, but for where its page begins.
fn filter(query: &SpanQuery) -> Document {
    let mut filter = of_spans();
    for (name, id) in query.target.conditions() {
        filter.insert(format!("target.{name}"), id.as_str());
    }
    if let Some(resources) = &query.resources {
        let ids: Vec<&str> = resources.iter().map(Id::as_str).collect();
        let mut condition = doc! { "$in": ids };
        if let Some(id) = query.target.get("resource_id") {
            condition.insert("$eq", id.as_str());
        }
        filter.insert("target.resource_id", condition);
    }
    if let Some(state) = query.state {
        let is_complete = state == SpanState::Complete;
        let operator = if is_complete { "$eq" } else { "$ne" };
        filter.insert("processing.complete", doc! { operator: true });
    }
    match query.state {
        Some(SpanState::Open) => {
            filter.insert("end", Bson::Null);
        }
        Some(SpanState::Stopped) => {
            filter.insert("end", doc! { "$ne": Bson::Null });
        }
        Some(SpanState::Suspended | SpanState::Complete) | None => {}
    }
    if is_of_suspended(query) {
        let mut condition = doc! { "$exists": true };
        if let Some(cause) = query.cause {
            condition.insert("$eq", cause_to_bson(cause));
        }
        filter.insert("processing.failure.cause", condition);
    }
    if query.excluded {
        filter.extend(has_excluded());
    }
    if let Some(from) = query.from.map(moment) {
        filter.insert(
            "$or",
            [
                doc! { "end": Bson::Null },
                doc! { "end": { "$gt": &from } },
                doc! { "start": { "$gte": from } },
            ],
        );
    }
    filter
}

/// One page of several lists. It ends where the first of their pages does: what is behind is not known.
fn merged(pages: Vec<SpanPage>, limit: usize) -> SpanPage {
    let ends = pages.iter().filter_map(|page| page.next.as_ref());
    let end = ends.max_by_key(|end| rank(end)).cloned();
    let mut spans: Vec<_> = pages.into_iter().flat_map(|page| page.spans).collect();
    if let Some(end) = &end {
        spans.retain(|listed| rank(&SpanPosition::of(listed)) >= rank(end));
    }
    spans.sort_by_key(|listed| Reverse(rank(&SpanPosition::of(listed))));
    let has_more = spans.len() > limit;
    spans.truncate(limit);
    let last = spans.last().filter(|_| has_more);
    SpanPage {
        next: last.map(SpanPosition::of).or(end),
        spans,
    }
}

/// What positions are ordered by, as the server orders them: texts before ids of its own.
fn rank(position: &SpanPosition) -> (Timestamp, bool, SpanId) {
    let is_object_id = matches!(position.id, SpanId::ObjectId(_));
    (position.start, is_object_id, position.id.clone())
}

/// The position of a document in a list, even if the document cannot be read as a span.
fn position(raw: &RawDocument) -> Option<SpanPosition> {
    #[derive(Deserialize)]
    struct Position {
        #[serde(rename = "_id")]
        id: Bson,
        start: Timestamp,
    }
    let position: Position = raw::read(raw).ok()?;
    Some(SpanPosition {
        start: position.start,
        id: id_from_bson(&position.id).ok()?,
    })
}
