//! Starting spans (section 6.1 of the paper), many with one command.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bson::raw::{RawDocumentBuf, cstr};
use bson::{Bson, Document, doc, rawdoc};
use futures_util::stream::{self, StreamExt};
use mongodb::error::Error;
use sampler_domain::partition::partition_of;
use sampler_domain::{EventId, Span, StartEvent, Target, Timestamp};
use sampler_store::group::{CommandResult, Resolution, WriteResult, Writes};
use sampler_store::{NewSpan, Started, StoreError};
use tokio::time::Instant;

use crate::call::{CallError, Link};
use crate::document::{OPEN, moment, read_moment, read_target, started};
use crate::index;
use crate::resolve::{SpanOf, by_event_id, by_span_id, by_target, kept_as_uuids, readable};
use crate::unreadable::decoded;

/// Spans to read for each start at the most, before each start is checked alone.
const SPANS_EACH: usize = 4;

/// Starts that share a branch of the search for what stands in their way. A branch costs the server
/// some 30 µs to plan; but within one it tries each partition with each instance, for 1 to 2 µs.
const STARTS_IN_BRANCH: usize = 4;

/// Starts that are checked alone at the same time. Others need connections, too.
const SEARCHES_AT_ONCE: usize = 16;

/// What stands in the way of a start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum InTheWay {
    /// A span of the target ends then, later than this one starts.
    EndsAt(Timestamp),
    /// The target has an open span.
    Open,
}

/// Inserts spans.
#[derive(Debug)]
pub(crate) struct Starts {
    link: Link,
}

/// A span to be inserted.
#[derive(Debug)]
pub(crate) struct Opening {
    new: NewSpan,
    document: RawDocumentBuf,
}

impl Opening {
    /// # Errors
    /// Where the span cannot be written as a document.
    pub(crate) fn new(new: NewSpan) -> Result<Self, StoreError> {
        let document = started(&new).map_err(|error| StoreError::Refused(Box::new(error)))?;
        Ok(Self { new, document })
    }

    fn id(&self) -> Option<&EventId> {
        self.new.span.start_id.as_ref()
    }

    /// The event as it is found: by its target and its id.
    fn event(&self) -> Option<(Target, String)> {
        let id = self.id()?.as_str().to_owned();
        Some((self.new.span.target.clone(), id))
    }
}

#[async_trait]
impl Writes for Starts {
    type Write = Opening;
    type Answer = Started;
    type Failure = CallError;

    fn size(write: &Opening) -> usize {
        write.document.as_bytes().len()
    }

    fn carried_out_within(&self) -> Duration {
        self.link.carried_out_within()
    }

    /// What stands in the way of a start can be gone when an earlier command with it comes late:
    /// the span that is open can be stopped, and with the clean-up an id becomes free again.
    fn outlasts_late_commands(answer: &Started) -> bool {
        match answer {
            Started::Opened | Started::Repeated { .. } => true,
            Started::IdTaken(_)
            | Started::IdTakenElsewhere
            | Started::AlreadyOpen
            | Started::Overlaps { .. } => false,
        }
    }

    /// Inserts the spans. What can stand in the way of one are the unique indexes, and the open span
    /// or the previous one of its target, which are searched for first: two starts of one target that
    /// are in flight at the same moment have no order, so nothing is gained by searching in the same
    /// operation. But a start that is alone saves a command that way.
    async fn write(&self, batch: &[Arc<Opening>], send_by: Instant) -> CommandResult<Self> {
        let ids = batch.iter().filter_map(|opening| opening.id());
        let kept_as_uuids = kept_as_uuids(&self.link, "start_dedup_id", ids).await?;
        if let [opening] = batch
            && !opening.new.may_overlap
            && kept_as_uuids.is_empty()
            && let Some(result) = self.insert_alone(opening, send_by).await?
        {
            return Ok(vec![result]);
        }
        let in_the_way = self.find_in_the_way(batch).await?;
        let mut results = Vec::with_capacity(batch.len());
        for (opening, in_the_way) in batch.iter().zip(in_the_way) {
            let is_kept = opening
                .event()
                .is_some_and(|event| kept_as_uuids.contains(&event));
            results.push(match in_the_way {
                _ if is_kept => WriteResult::Unresolved,
                // It may be stopped by now, so only what is read then can refuse.
                Some(InTheWay::Open) => WriteResult::Unresolved,
                Some(InTheWay::EndsAt(until)) => {
                    WriteResult::Provisional(Started::Overlaps { until })
                }
                None => WriteResult::Settled(Started::Opened),
            });
        }
        let free: Vec<usize> = (0..batch.len())
            .filter(|index| matches!(results[*index], WriteResult::Settled(_)))
            .collect();
        if free.is_empty() {
            return Ok(results);
        }
        let documents = free.iter().map(|index| &batch[*index].document);
        let written = self.link.insert(documents, send_by).await?;
        let elsewhere = Some(&Started::IdTakenElsewhere);
        let inserted = written.write_results(free.len(), |_| Started::Opened, elsewhere);
        for (index, result) in free.into_iter().zip(inserted) {
            results[index] = result;
        }
        Ok(results)
    }

    /// An open span of the target, an earlier event with the same id, or the span itself. Each says
    /// more than the one before, so it is read later: what has the id is a repeat, and what has the
    /// `_id` is no repeat, even if it came to be between two reads.
    async fn resolve(&self, batch: &[Arc<Opening>]) -> Result<Vec<Resolution<Started>>, CallError> {
        let spans = || batch.iter().map(|opening| &opening.new.span);
        let open = spans().map(|span| SpanOf::open(&span.target));
        let open = by_target(&self.link, open).await?;
        let events = batch.iter().filter_map(|opening| {
            let id = opening.id()?;
            Some((&opening.new.span.target, id))
        });
        let earlier = by_event_id(&self.link, "start_dedup_id", events).await?;
        let own = by_span_id(&self.link, spans()).await?;
        let resolution = |opening: &Arc<Opening>| {
            let span = &opening.new.span;
            if own.contains_key(&span.id) {
                return Some(Ok(Started::Opened));
            }
            if let Some(earlier) = opening.event().and_then(|event| earlier.get(&event)) {
                return Some(readable(earlier).map(|earlier| repeated(span, &earlier)));
            }
            let key = (span.target.clone(), OPEN.to_owned());
            open.contains_key(&key).then_some(Ok(Started::AlreadyOpen))
        };
        Ok(batch.iter().map(resolution).collect())
    }
}

/// What a start is told whose id an earlier one has.
fn repeated(span: &Span, earlier: &Span) -> Started {
    let event = StartEvent {
        id: span.start_id.clone(),
        timestamp: span.start,
        target: span.target.clone(),
        measures: span.measures.clone(),
    };
    let differences = event.differences(earlier);
    if differences.is_empty() {
        Started::Repeated {
            span: earlier.id.clone(),
        }
    } else {
        Started::IdTaken(differences)
    }
}

impl Starts {
    pub(crate) fn new(link: Link) -> Self {
        Self { link }
    }

    /// Inserts one span with a single statement: an update of an open span of its target, or of one
    /// that ends after it starts, which changes nothing, or else inserts the new one. Nothing where
    /// there is such a span: which of them it is takes another read.
    async fn insert_alone(
        &self,
        opening: &Opening,
        send_by: Instant,
    ) -> Result<Option<WriteResult<Started, CallError>>, CallError> {
        let statement = doc! {
            "q": self.in_the_way(&opening.new.span),
            "upsert": true,
            "hint": index::SPAN,
        };
        let mut statement = RawDocumentBuf::try_from(&statement).map_err(Error::from)?;
        let insert = rawdoc! { "$setOnInsert": opening.document.clone() };
        statement.append(cstr!("u"), insert);
        let updated = self.link.update([&statement], send_by).await?;
        let made = updated.made == 1;
        if !made && updated.failed.is_empty() {
            return Ok(None);
        }
        let elsewhere = Some(&Started::IdTakenElsewhere);
        let mut results = updated.write_results(1, |_| Started::Opened, elsewhere);
        Ok(results.pop())
    }

    /// For each start, what stands in its way: the open span of its target, or one that ends after
    /// it starts.
    ///
    /// One search clears all of them, unless it finds too much: then each is searched for by itself.
    async fn find_in_the_way(
        &self,
        batch: &[Arc<Opening>],
    ) -> Result<Vec<Option<InTheWay>>, CallError> {
        let careful = batch.iter().filter(|opening| !opening.new.may_overlap);
        let spans: Vec<&Span> = careful.map(|opening| &opening.new.span).collect();
        if spans.is_empty() {
            return Ok(vec![None; batch.len()]);
        }
        let limit = SPANS_EACH * spans.len();
        let found = self.search(&spans, limit).await?;
        let found = if found.len() < limit {
            found
        } else {
            self.search_each(&spans).await?
        };
        let mut by_target: HashMap<Target, Vec<InTheWay>> = HashMap::new();
        for document in found.iter().filter_map(|raw| decoded(raw).ok()) {
            let target = document.get_document("target").ok();
            let target = target.and_then(|target| read_target(target).ok());
            if let (Some(target), Some(found)) = (target, in_the_way(&document)) {
                by_target.entry(target).or_default().push(found);
            }
        }
        let in_the_way = |opening: &Arc<Opening>| {
            let span = &opening.new.span;
            let of_target = by_target
                .get(&span.target)
                .filter(|_| !opening.new.may_overlap)?;
            let later = |found: &&InTheWay| **found > InTheWay::EndsAt(span.start);
            of_target.iter().filter(later).max().copied()
        };
        Ok(batch.iter().map(in_the_way).collect())
    }

    /// What stands in the way of any of the spans.
    async fn search(
        &self,
        spans: &[&Span],
        limit: usize,
    ) -> Result<Vec<RawDocumentBuf>, CallError> {
        let mut spans = spans.to_vec();
        // Spans of one partition share a branch, if they can.
        spans.sort_by_cached_key(|span| partition_of(&span.target));
        let branches = spans.chunks(STARTS_IN_BRANCH);
        let mut branches: Vec<Document> = branches.map(|some| self.in_the_way_of(some)).collect();
        let filter = if branches.len() == 1 {
            branches.remove(0)
        } else {
            doc! { "$or": branches }
        };
        let mut options = self.link.find_options(limit, doc! {}, index::SPAN);
        options.projection = Some(doc! { "_id": 0, "target": 1, "end": 1 });
        self.link.find(filter, options).await
    }

    /// Spans that are open, or end after the earliest of these starts, and have each field of their
    /// target in common with one of these: those of the targets, and hardly any others. Each field
    /// has to be named. Otherwise the server steps over all targets that name the same instance.
    fn in_the_way_of(&self, spans: &[&Span]) -> Document {
        if let [span] = spans {
            return self.in_the_way(span);
        }
        let partitions = spans.iter().map(|span| partition_of(&span.target));
        let partitions: BTreeSet<u32> = partitions.collect();
        let mut partitions: Vec<Bson> = partitions
            .into_iter()
            .map(|partition| i64::from(partition).into())
            .collect();
        if self.link.is_beside_original() {
            partitions.push(Bson::Null);
        }
        let mut filter = doc! { "processing.partition": one_of(partitions) };
        let mut fields: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for (name, id) in spans.iter().flat_map(|span| span.target.fields()) {
            fields.entry(name).or_default().insert(id.as_str());
        }
        for (name, ids) in fields {
            let ids = ids.into_iter().map(Bson::from).collect();
            filter.insert(format!("target.{name}"), one_of(ids));
        }
        if let Some(earliest) = spans.iter().min_by_key(|span| span.start) {
            filter.insert("end", ends_after_start(earliest));
        }
        filter
    }

    /// The same, one document for each span at the most.
    async fn search_each(&self, spans: &[&Span]) -> Result<Vec<RawDocumentBuf>, CallError> {
        let search = async |span: &Span| self.search(&[span], 1).await;
        let searches: Vec<_> = spans.iter().map(|span| search(span)).collect();
        // A call that has begun is finished, whatever becomes of the others.
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

    /// The spans of the target that are open, or end after this one starts: one range of the index,
    /// but for those that end by then.
    fn in_the_way(&self, span: &Span) -> Document {
        let mut filter = self.link.of_target(&span.target);
        filter.insert("end", ends_after_start(span));
        filter
    }
}

/// The condition that a field has one of these values.
fn one_of(mut values: Vec<Bson>) -> Bson {
    if values.len() == 1 {
        values.remove(0)
    } else {
        doc! { "$in": values }.into()
    }
}

/// The condition on the end of a span that stands in the way: none yet, or later than the start.
fn ends_after_start(span: &Span) -> Document {
    doc! { "$not": { "$lte": moment(span.start) } }
}

/// What a span is that stands in the way. One whose end is no number is nothing that could be
/// compared.
fn in_the_way(document: &Document) -> Option<InTheWay> {
    match document.get("end") {
        None | Some(Bson::Null) => Some(InTheWay::Open),
        Some(Bson::Double(end)) => {
            #[expect(clippy::cast_possible_truncation, reason = "it is clamped anyway")]
            let end = Timestamp::clamped(end.ceil() as i64);
            Some(InTheWay::EndsAt(end))
        }
        Some(_) => read_moment(document, "end").ok().map(InTheWay::EndsAt),
    }
}
