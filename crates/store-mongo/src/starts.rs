//! Starting spans (section 6.1 of the paper), many with one command.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use bson::raw::{RawDocumentBuf, cstr};
use bson::{Bson, Document, doc, rawdoc};
use futures_util::stream::{self, StreamExt};
use mongodb::error::Error;
use sampler_domain::{EventId, Key, NotEnded, Refusal, Span, Timestamp, decide_start};
use sampler_store::group::{CommandResult, GroupWriter, Resolution, WriteResult};
use sampler_store::{IdKind, NewSpan, StartOutcome, StoreError};
use tokio::time::Instant;

use crate::call::{CallError, Link};
use crate::document::{OPEN, key_to_bson, measures_size, moment, open_span_document};
use crate::index;
use crate::raw::key_of;
use crate::resolve::{ByTarget, EventKey, SpanOf, by_event_id, by_target, comparable, existing};

/// How many spans one search may find for each start. If it finds as many, each start gets its own search.
const SPANS_EACH: usize = 4;

/// How many such searches run at the same time. Others need connections, too.
const SEARCHES_AT_ONCE: usize = 16;

#[derive(Debug)]
pub(crate) struct StartWriter {
    pub(crate) link: Link,
}

#[derive(Debug)]
pub(crate) struct StartWrite {
    new: NewSpan,
    key: Key,
    document: RawDocumentBuf,
}

impl StartWrite {
    pub(crate) fn new(new: NewSpan) -> Result<Self, StoreError> {
        let key = Key::of(&new.span.target);
        let document = open_span_document(&new.span, key, new.now).map_err(StoreError::refused)?;
        Ok(Self { new, key, document })
    }

    fn id(&self) -> Option<&EventId> {
        self.new.span.start_id.as_ref()
    }

    fn event(&self) -> Option<EventKey> {
        Some((self.new.span.target.clone(), self.id()?.clone()))
    }
}

#[async_trait]
impl GroupWriter for StartWriter {
    type Write = StartWrite;
    type Answer = StartOutcome;
    type Failure = CallError;

    fn size(write: &StartWrite) -> usize {
        write.document.as_bytes().len()
    }

    /// Inserts the spans. A start that is alone is one statement, which inserts it unless its
    /// target has an open or overlapping span. Of several these spans are searched for first: the search
    /// and the insert need not be one operation, because two starts of a target that are in flight together
    /// have no order.
    async fn send(&self, batch: &[Arc<StartWrite>], send_by: Instant) -> CommandResult<Self> {
        if let [write] = batch
            && let Some(result) = self.insert_alone(write, send_by).await?
        {
            return Ok(vec![result]);
        }
        let others = self.find_not_ended(batch).await?;
        let (mut results, mut free) = (Vec::with_capacity(batch.len()), Vec::new());
        for (index, others) in others.into_iter().enumerate() {
            results.push(match others.require_room() {
                // It may be stopped by now, so only a later read can refuse the start.
                Err(Refusal::AlreadyOpen) => WriteResult::Unresolved,
                Err(refusal) => WriteResult::Provisional(StartOutcome::Refused(refusal)),
                Ok(()) => {
                    free.push(index);
                    // The insert below replaces it.
                    WriteResult::Unresolved
                }
            });
        }
        if free.is_empty() {
            return Ok(results);
        }
        let documents = free.iter().map(|index| &batch[*index].document);
        let written = self.link.insert(documents, send_by).await?;
        let inserted = written.write_results(free.len(), |_| StartOutcome::Opened);
        for (index, result) in free.into_iter().zip(inserted) {
            results[index] = result;
        }
        Ok(results)
    }

    /// Reads, in this order: the open span of the target, an earlier event with the same `id`, the span
    /// itself (`_id`). A later result overrides an earlier one, because a document may appear between
    /// two reads.
    async fn resolve(
        &self,
        batch: &[Arc<StartWrite>],
    ) -> Result<Vec<Resolution<StartOutcome>>, CallError> {
        let open = batch.iter().map(|it| SpanOf::open(&it.new.span.target));
        let open = by_target(&self.link, open).await?;
        let events = batch.iter().filter_map(|write| {
            let id = write.id()?;
            Some((&write.new.span.target, id))
        });
        let compared = comparable(batch.iter().filter_map(|write| {
            let bytes = measures_size(&write.new.span.measures);
            Some((write.key, write.id()?, bytes))
        }));
        let earlier = by_event_id(&self.link, IdKind::Start, events, compared).await?;
        let spans = batch.iter().map(|write| &write.new.span);
        let own = existing(&self.link, spans).await?;
        let resolutions = batch.iter().map(|write| {
            if own.contains(&write.new.span.id) {
                return Some(Ok(StartOutcome::Opened));
            }
            let by_id = write.event().and_then(|event| earlier.get(&event));
            resolve_one(&write.new, by_id, &open).map(Ok)
        });
        Ok(resolutions.collect())
    }
}

/// The outcome of a start that has inserted nothing; none where nothing that was read refuses it. Then the
/// overlap stands that the search before the insert has found ([`StartWriter::send`]); without one, the start is
/// sent again.
fn resolve_one(new: &NewSpan, by_id: Option<&Span>, open: &ByTarget) -> Option<StartOutcome> {
    let key = (new.span.target.clone(), OPEN.to_owned());
    let others = NotEnded {
        is_open: open.contains_key(&key),
        until: None,
    };
    let event = new.span.start_event();
    StartOutcome::found(decide_start(&event, by_id, others))
}

impl StartWriter {
    /// Inserts one span with a single statement (`upsert`): an update of a conflicting span that
    /// changes nothing, or else an insert. Returns `None` if there is a conflicting span: another
    /// read shows which.
    async fn insert_alone(
        &self,
        write: &StartWrite,
        send_by: Instant,
    ) -> Result<Option<WriteResult<StartOutcome, CallError>>, CallError> {
        let statement = doc! {
            "q": {
                "processing.key": key_to_bson(write.key),
                "end": ends_after_start(&write.new.span),
            },
            "upsert": true,
            "hint": index::SPAN,
        };
        let mut statement = RawDocumentBuf::try_from(&statement).map_err(Error::from)?;
        let insert = rawdoc! { "$setOnInsert": write.document.clone() };
        statement.append(cstr!("u"), insert);
        let updated = self.link.update([&statement], send_by).await?;
        let made = updated.upserted == 1;
        if !made && updated.failed.is_empty() {
            return Ok(None);
        }
        let mut results = updated.write_results(1, |_| StartOutcome::Opened);
        Ok(results.pop())
    }

    /// The spans of the target of each start that have not ended by it. One search serves all starts, unless
    /// it finds too many spans: then each start gets its own.
    async fn find_not_ended(&self, batch: &[Arc<StartWrite>]) -> Result<Vec<NotEnded>, CallError> {
        let starts: Vec<&StartWrite> = batch.iter().map(Arc::as_ref).collect();
        let limit = SPANS_EACH * starts.len();
        let found = self.search(&starts, limit).await?;
        let found = if found.len() < limit {
            found
        } else {
            self.search_each(&starts).await?
        };
        let mut by_key: HashMap<Key, Vec<Option<Timestamp>>> = HashMap::new();
        for raw in &found {
            if let Some(key) = key_of(raw) {
                let end = raw.get_i64("end").ok().map(Timestamp::clamped);
                by_key.entry(key).or_default().push(end);
            }
        }
        let others = batch.iter().map(|write| {
            let ends = by_key.get(&write.key).into_iter().flatten();
            NotEnded::by(write.new.span.start, ends.copied())
        });
        Ok(others.collect())
    }

    /// The keys and ends of spans of these targets that are open, or end after the earliest of the
    /// starts. For each target this reads one short range of the index, which has all the fields.
    async fn search(
        &self,
        starts: &[&StartWrite],
        limit: usize,
    ) -> Result<Vec<RawDocumentBuf>, CallError> {
        let keys: Vec<Bson> = starts.iter().map(|start| key_to_bson(start.key)).collect();
        let mut filter = doc! { "processing.key": { "$in": keys } };
        let spans = starts.iter().map(|start| &start.new.span);
        if let Some(earliest) = spans.min_by_key(|span| span.start) {
            filter.insert("end", ends_after_start(earliest));
        }
        let mut options = self.link.find_options(limit, doc! {}, index::SPAN);
        options.projection = Some(doc! { "_id": 0, "processing.key": 1, "end": 1 });
        self.link.find(filter, options).await
    }

    /// The same with one search for each start, of at most one document: the open span, or else the one that
    /// ends next.
    async fn search_each(&self, starts: &[&StartWrite]) -> Result<Vec<RawDocumentBuf>, CallError> {
        let searches = starts
            .iter()
            .map(|start| async move { self.search(&[start], 1).await });
        let searches: Vec<_> = searches.collect();
        // A call that has begun is completed, even if another one fails.
        let found: Vec<_> = stream::iter(searches)
            .buffered(SEARCHES_AT_ONCE)
            .collect()
            .await;
        let mut all = Vec::new();
        for found in found {
            all.extend(found?);
        }
        Ok(all)
    }
}

/// The condition on the end of a conflicting span: none yet, or later than the start. It is the rule of
/// [`NotEnded::require_room`] as a query.
fn ends_after_start(span: &Span) -> Document {
    doc! { "$not": { "$lte": moment(span.start) } }
}
