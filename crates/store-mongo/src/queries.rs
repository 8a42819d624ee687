//! Lists of spans, and single spans, for the API.
//!
//! A list is read backwards from an index that begins with what narrows it and goes on with `start`
//! and `_id`: neither ever changes, so a page that goes on behind one of these misses no span and
//! shows none twice. What else is asked for is compared span by span. So that this costs no more than
//! a page may cost, it is done within a window of the index; behind that goes the next page on.

use async_trait::async_trait;
use bson::oid::ObjectId;
use bson::raw::{RawDocument, RawDocumentBuf};
use bson::{Bson, Document, doc};
use mongodb::options::FindOptions;
use sampler_domain::partition::PARTITIONS;
use sampler_domain::{CauseId, Entry, Id, Span, SpanId, SpanState, Target, Timestamp};
use sampler_store::{
    AuditPage, AuditQuery, CausePage, CauseQuery, Entries, ListedSpan, Lookup, Queries, SpanPage,
    SpanPosition, SpanQuery, StoreError, SumPage, SumQuery, SuspendedCause,
};
use tracing::error;

use crate::call::{CallError, Link, hint};
use crate::document::{
    Unreadable, id_from_bson, id_to_bson, member, moment, read, read_moment, read_optional_moment,
};
use crate::index;
use crate::unreadable::{decoded, name_of};
use crate::{ConnectError, MongoOptions, MongoStore};

/// Spans that are compared with a query for one page.
const WINDOW: usize = 10_000;

/// Documents of somebody else that may lie where a window ends.
const ODD_MAX: usize = 10;

/// Bytes of documents that are read for one page, but for a single one; and documents that the server
/// sends at once.
const PAGE_BYTES: usize = 4 << 20;
const BATCH_SIZE: u32 = 101;

/// Documents of a page, and whether there may be more that match.
#[derive(Default)]
pub(crate) struct Found {
    pub(crate) documents: Vec<RawDocumentBuf>,
    pub(crate) has_more: bool,
}

/// Reads spans over connections of its own, so that reading never takes a connection from writing.
/// Cheap to clone.
#[derive(Clone, Debug)]
pub struct MongoReader(MongoStore);

impl MongoReader {
    pub(crate) fn store(&self) -> &MongoStore {
        &self.0
    }
}

impl MongoStore {
    /// A reader of the same spans, with these options.
    ///
    /// # Errors
    /// Where the connection string cannot be used.
    pub async fn reader(&self, options: MongoOptions) -> Result<MongoReader, ConnectError> {
        let mut reader = Self::connect(options).await?;
        reader.link.beside = self.link.beside.clone();
        reader.link.told = self.link.told.clone();
        reader.usages.told = self.link.told.clone();
        reader.audit.told = self.link.told.clone();
        Ok(MongoReader(reader))
    }

    async fn list(&self, query: &SpanQuery) -> Result<SpanPage, StoreError> {
        match query.narrowed_by() {
            Some(("organization_id", id)) => {
                let range = Range::new(
                    index::LIST_ORGANIZATION,
                    Some(("target.organization_id", id)),
                );
                self.list_range(query, &range).await
            }
            Some(("resource_id", id)) => {
                let range = Range::new(index::LIST_RESOURCE, Some(("target.resource_id", id)));
                self.list_range(query, &range).await
            }
            Some(_) => self.list_instance(query).await,
            None if query.state == Some(SpanState::Suspended) => {
                let range = Range::new(index::LIST_SUSPENDED, None);
                self.list_range(query, &range).await
            }
            None => Err(StoreError::Refused("the query is too wide".into())),
        }
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
        let found = self.found(filter(query), bounds.options(range), query.limit);
        Ok(self.page(query, &found.await?, window))
    }

    /// Where the window ends, unless the range ends before that. The index alone says so.
    ///
    /// It becomes a cursor that the client gets, and may lie at a span that the client may not see. So
    /// the id there is cut: what is left of it identifies no span.
    async fn window_end(
        &self,
        range: &Range<'_>,
        bounds: &Bounds,
    ) -> Result<Option<SpanPosition>, CallError> {
        let mut options = bounds.options(range);
        options.skip = Some(WINDOW as u64 - 1);
        options.projection = Some(doc! { "_id": 1, "start": 1 });
        let found = self.found(range.condition(), options, ODD_MAX).await?;
        Ok(found
            .documents
            .iter()
            .find_map(|raw| position(raw))
            .map(cut))
    }

    /// A page of the spans of an instance: few, as a rule. The server sorts them.
    async fn list_instance(&self, query: &SpanQuery) -> Result<SpanPage, StoreError> {
        let mut conditions = filter(query);
        let partition = match query.target.target() {
            Some(target) => self.link.in_partition(&target),
            None => self.any_partition(),
        };
        conditions.insert("processing.partition", partition);
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
        let mut options = self.link.find_options(query.limit, sort, index::SPAN);
        options.allow_disk_use = Some(true);
        let found = self.found(conditions, options, query.limit).await?;
        Ok(self.page(query, &found, None))
    }

    /// All partitions, and none where a span of an original may have none.
    fn any_partition(&self) -> Bson {
        let all = (0..PARTITIONS).map(|each| Bson::Int64(i64::from(each)));
        let none = self.link.is_beside_original().then_some(Bson::Null);
        doc! { "$in": all.chain(none).collect::<Vec<_>>() }.into()
    }

    /// Up to `limit` documents that match, as many as a page may hold.
    async fn found(
        &self,
        filter: Document,
        options: FindOptions,
        limit: usize,
    ) -> Result<Found, CallError> {
        self.link.found(filter, options, limit).await
    }

    /// The page of those of these documents that are in the state that is asked for. It may end with
    /// a window.
    fn page(&self, query: &SpanQuery, found: &Found, window: Option<SpanPosition>) -> SpanPage {
        let mut page = SpanPage::default();
        for raw in &found.documents {
            match listed_span(raw) {
                Ok(listed) if query.has_state(&listed.span) => {
                    page.spans.push(listed);
                }
                Ok(_) => {}
                Err(problem) => {
                    if self.is_news("list", raw) {
                        let name = name_of(raw);
                        error!(code = "list.unreadable", span.id = %name, error = %problem, "a span cannot be read and is not listed");
                    }
                }
            }
        }
        page.next = if found.has_more {
            found.documents.iter().rev().find_map(|raw| position(raw))
        } else {
            window
        };
        page
    }

    /// The span with this id, as it is written in an address. The resources are a condition of the
    /// search: a span of another resource counts as absent, even if it cannot be read.
    async fn one(
        &self,
        id: &str,
        resources: Option<&[Id]>,
    ) -> Result<Option<ListedSpan>, StoreError> {
        let mut forms = vec![Bson::from(id)];
        if is_hexadecimal(id) {
            forms.extend(ObjectId::parse_str(id).map(Bson::ObjectId));
        }
        let options = self.link.find_options(1, doc! {}, "_id_");
        let mut filter = doc! { "_id": { "$in": forms } };
        if let Some(resources) = resources {
            let ids: Vec<&str> = resources.iter().map(Id::as_str).collect();
            filter.insert("target.resource_id", doc! { "$in": ids });
        }
        let found = self.found(filter, options, 1).await?;
        let listed = found
            .documents
            .first()
            .map(|raw| listed_span(raw))
            .transpose();
        listed.map_err(|problem| StoreError::Refused(Box::new(problem)))
    }
}

impl Link {
    /// Up to `limit` documents that match, as many as a page may hold.
    pub(crate) async fn found(
        &self,
        filter: Document,
        mut options: FindOptions,
        limit: usize,
    ) -> Result<Found, CallError> {
        options.max_time = Some(self.time_limit);
        options.limit = i64::try_from(limit.saturating_add(1)).ok();
        options.batch_size = Some(BATCH_SIZE.min(u32::try_from(limit + 1).unwrap_or(BATCH_SIZE)));
        let collection = self.collection.clone();
        let read = async move {
            let mut cursor = collection.find(filter).with_options(options).await?;
            let (mut found, mut bytes) = (Found::default(), 0);
            while cursor.advance().await? {
                let document = cursor.current();
                bytes += document.as_bytes().len();
                let is_full = found.documents.len() == limit || bytes > PAGE_BYTES;
                if is_full && !found.documents.is_empty() {
                    found.has_more = true;
                    break;
                }
                found.documents.push(document.to_owned());
            }
            Ok::<_, mongodb::error::Error>(found)
        };
        self.run(read).await
    }
}

/// A range of an index on `start` and `_id`, behind a field of the target where there is one.
struct Range<'a> {
    index: &'static str,
    field: Option<(&'static str, &'a Id)>,
}

/// The lowest key of a range, and the one behind its highest.
struct Bounds {
    min: Document,
    max: Document,
}

impl<'a> Range<'a> {
    fn new(index: &'static str, field: Option<(&'static str, &'a Id)>) -> Self {
        Self { index, field }
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

    /// What a document of the index meets. A partial index needs its own condition to be used; for
    /// the others there is none, since any, also one on a key, would have the server fetch the
    /// documents.
    fn condition(&self) -> Document {
        match self.field {
            Some(_) => Document::new(),
            None => is_suspended(),
        }
    }

    /// What is to be read for a query. Bounds of an index, unlike conditions, know no types: ids that
    /// are texts lie in one order with the others. Nothing where no span starts so early.
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

/// Whether a query asks for nothing but what its range of an index holds.
fn is_of_range_alone(query: &SpanQuery) -> bool {
    query.target.conditions().count() == 1
        && query.resources.is_none()
        && query.state.is_none()
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

/// The condition that a span is suspended. An original that goes on with it leaves the field behind:
/// the version in it tells.
fn is_suspended() -> Document {
    doc! { "processing.suspended.cause": { "$exists": true } }
}

/// Documents that may be spans: an `_id` of another type is somebody else's.
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
    let mut is_complete = |is: bool| {
        let condition = if is {
            doc! { "$eq": true }
        } else {
            doc! { "$ne": true }
        };
        filter.insert("processing.complete", condition);
    };
    match query.state {
        Some(SpanState::Open) => {
            is_complete(false);
            filter.insert("end", Bson::Null);
        }
        Some(SpanState::Stopped) => {
            is_complete(false);
            filter.insert("end", doc! { "$ne": Bson::Null });
        }
        Some(SpanState::Complete) => is_complete(true),
        Some(SpanState::Suspended) => {
            is_complete(false);
            let mut condition = doc! { "$exists": true };
            if let Some(cause) = query.cause {
                condition.insert("$eq", cause.to_string());
            }
            filter.insert("processing.suspended.cause", condition);
        }
        None => {}
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

/// Whether a text is an `ObjectId` as we write it.
fn is_hexadecimal(id: &str) -> bool {
    id.len() == 24
        && id
            .bytes()
            .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// The span that a document holds.
fn listed_span(raw: &RawDocument) -> Result<ListedSpan, Unreadable> {
    let document = decoded(raw)?;
    let span = read(&document)?;
    let processing = member(&document, "processing")?;
    let due_at = read_optional_moment(processing, "due_at")?;
    Ok(ListedSpan { span, due_at })
}

/// A position at or a little after this one that does not reveal the id: only half of the id is
/// left. The window reaches up to there, and the next page begins there.
fn cut(position: SpanPosition) -> SpanPosition {
    let id = match position.id {
        SpanId::ObjectId(mut id) => {
            id[6..].fill(0);
            SpanId::ObjectId(id)
        }
        SpanId::Text(id) => {
            // Rounded up: a short id that loses more would reach over a large part of all ids.
            let half = id.chars().count().div_ceil(2);
            SpanId::Text(id.chars().take(half).collect())
        }
    };
    SpanPosition { id, ..position }
}

/// Where a document stands in a list, whatever else it holds.
fn position(raw: &RawDocument) -> Option<SpanPosition> {
    let value = |name: &str| Bson::try_from(raw.get(name).ok()??).ok();
    let start = doc! { "start": value("start")? };
    let start = read_moment(&start, "start").or_else(|problem| match start.get("start") {
        #[expect(clippy::cast_possible_truncation, reason = "it is clamped anyway")]
        Some(Bson::Double(start)) => Ok(Timestamp::clamped(start.floor() as i64)),
        _ => Err(problem),
    });
    let id: SpanId = id_from_bson(value("_id").as_ref()).ok()?;
    Some(SpanPosition {
        start: start.ok()?,
        id,
    })
}

#[async_trait]
impl Queries for MongoStore {
    async fn spans(&self, query: &SpanQuery) -> Result<SpanPage, StoreError> {
        self.list(query).await
    }

    async fn span(
        &self,
        id: &str,
        resources: Option<&[Id]>,
    ) -> Result<Option<ListedSpan>, StoreError> {
        self.one(id, resources).await
    }

    async fn suspended(&self, query: &CauseQuery) -> Result<CausePage, StoreError> {
        self.suspended_causes(query).await
    }

    async fn cause(&self, id: CauseId) -> Result<Option<SuspendedCause>, StoreError> {
        self.one_cause(id).await
    }

    async fn look_up(&self, target: &Target, by: &Lookup) -> Result<Vec<Span>, StoreError> {
        self.looked_up(target, by).await
    }

    async fn usages(
        &self,
        span: &SpanId,
        target: &Target,
        after: Option<i64>,
        limit: usize,
    ) -> Result<Entries, StoreError> {
        self.entries_of(span, target, after, limit).await
    }

    async fn usage(&self, id: &str) -> Result<Option<Entry>, StoreError> {
        self.entry_named(id).await
    }

    async fn sums(&self, query: &SumQuery) -> Result<SumPage, StoreError> {
        self.sums_of(query).await
    }

    async fn audit(&self, query: &AuditQuery) -> Result<AuditPage, StoreError> {
        self.acts(query).await
    }
}

#[async_trait]
impl Queries for MongoReader {
    async fn spans(&self, query: &SpanQuery) -> Result<SpanPage, StoreError> {
        self.0.spans(query).await
    }

    async fn span(
        &self,
        id: &str,
        resources: Option<&[Id]>,
    ) -> Result<Option<ListedSpan>, StoreError> {
        self.0.span(id, resources).await
    }

    async fn suspended(&self, query: &CauseQuery) -> Result<CausePage, StoreError> {
        self.0.suspended_causes(query).await
    }

    async fn cause(&self, id: CauseId) -> Result<Option<SuspendedCause>, StoreError> {
        self.0.one_cause(id).await
    }

    async fn look_up(&self, target: &Target, by: &Lookup) -> Result<Vec<Span>, StoreError> {
        self.0.look_up(target, by).await
    }

    async fn usages(
        &self,
        span: &SpanId,
        target: &Target,
        after: Option<i64>,
        limit: usize,
    ) -> Result<Entries, StoreError> {
        self.0.usages(span, target, after, limit).await
    }

    async fn usage(&self, id: &str) -> Result<Option<Entry>, StoreError> {
        self.0.usage(id).await
    }

    async fn sums(&self, query: &SumQuery) -> Result<SumPage, StoreError> {
        self.0.sums(query).await
    }

    async fn audit(&self, query: &AuditQuery) -> Result<AuditPage, StoreError> {
        self.0.audit(query).await
    }
}
