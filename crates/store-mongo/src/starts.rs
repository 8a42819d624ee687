//! Starting spans (section 6.1 of the paper), many with one command.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bson::raw::RawDocumentBuf;
use bson::{Document, doc, rawdoc};
use futures_util::stream::{self, StreamExt};
use sampler_domain::{Span, StartEvent, Timestamp};
use sampler_store::group::{CommandResult, Resolution, WriteResult, Writes};
use sampler_store::{NewSpan, Started, StoreError};
use tokio::time::Instant;

use crate::call::{CallError, Link};
use crate::document::{OPEN, moment, read_moment, started, target_fields};
use crate::resolve::{by_event_id, by_span_id, by_target, kept_as_uuids, readable};
use crate::unreadable::decoded;

/// Ends of spans to look through for each start at the most, before each start is looked at alone.
const ENDS_EACH: usize = 4;

/// Starts that are looked at alone at the same time. Others need connections, too.
const SEARCHES_AT_ONCE: usize = 16;

/// The field that the index `previous_end` begins with.
const INSTANCE: &str = "target.resource_instance_id";

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
            Started::Opened | Started::Repeated => true,
            Started::IdTaken(_) | Started::AlreadyOpen | Started::Overlaps { .. } => false,
        }
    }

    /// Inserts the spans. What can stand in the way of one are the unique indexes, and the previous
    /// span of its target, which is looked at first: two starts of one target that are in flight at
    /// the same moment have no order, so nothing is gained by looking in the same operation. But a
    /// start that is alone saves a command that way.
    async fn write(&self, batch: &[Arc<Opening>], send_by: Instant) -> CommandResult<Self> {
        let ids = batch
            .iter()
            .filter_map(|opening| opening.new.span.start_id.as_ref());
        let kept_as_uuids = kept_as_uuids(&self.link, "start_dedup_id", ids).await?;
        if let [opening] = batch
            && !opening.new.may_overlap
            && kept_as_uuids.is_empty()
            && let Some(result) = self.insert_alone(opening, send_by).await?
        {
            return Ok(vec![result]);
        }
        let mut found: Vec<WriteResult<Started, CallError>> = self
            .find_previous_ends(batch)
            .await?
            .into_iter()
            .map(|end| match end {
                Some(until) => WriteResult::Unless(Started::Overlaps { until }),
                None => WriteResult::Settled(Started::Opened),
            })
            .collect();
        for (opening, result) in batch.iter().zip(&mut found) {
            let id = opening.new.span.start_id.as_ref();
            if id.is_some_and(|id| kept_as_uuids.contains(id.as_str())) {
                *result = WriteResult::Unresolved;
            }
        }
        let free: Vec<usize> = (0..batch.len())
            .filter(|index| matches!(found[*index], WriteResult::Settled(_)))
            .collect();
        if free.is_empty() {
            return Ok(found);
        }
        let documents = free.iter().map(|index| &batch[*index].document);
        let written = self.link.insert(documents, send_by).await?;
        let inserted = written.write_results(free.len(), |_| Started::Opened);
        for (index, result) in free.into_iter().zip(inserted) {
            found[index] = result;
        }
        Ok(found)
    }

    /// An open span of the target, an earlier event with the same id, or the span itself. Each says
    /// more than the one before, so it is looked for later: what has the id is a repeat, and what has
    /// the `_id` is no repeat, even if it came to be between two looks.
    async fn resolve(&self, batch: &[Arc<Opening>]) -> Result<Vec<Resolution<Started>>, CallError> {
        let spans = || batch.iter().map(|opening| &opening.new.span);
        let open = spans().map(|span| (&span.target, vec![OPEN]));
        let open = by_target(&self.link, open).await?;
        let ids = spans().filter_map(|span| span.start_id.as_ref());
        let earlier = by_event_id(&self.link, "start_dedup_id", ids).await?;
        let own = by_span_id(&self.link, spans().map(|span| &span.id)).await?;
        let seen = |span: &Span| {
            if own.contains_key(&span.id) {
                return Some(Ok(Started::Opened));
            }
            let id = span.start_id.as_ref();
            if let Some(earlier) = id.and_then(|id| earlier.get(id.as_str())) {
                return Some(readable(earlier).map(|earlier| repeated(span, &earlier)));
            }
            let key = (span.target.clone(), OPEN.to_owned());
            open.contains_key(&key).then_some(Ok(Started::AlreadyOpen))
        };
        Ok(spans().map(seen).collect())
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
        Started::Repeated
    } else {
        Started::IdTaken(differences)
    }
}

impl Starts {
    pub(crate) fn new(link: Link) -> Self {
        Self { link }
    }

    /// Inserts one span with a single statement: an update of a span of its instance that ends after
    /// it starts, which changes nothing, or else inserts the new one. Nothing where there is such a
    /// span: whether it is of the same target takes a closer look.
    async fn insert_alone(
        &self,
        opening: &Opening,
        send_by: Instant,
    ) -> Result<Option<WriteResult<Started, CallError>>, CallError> {
        let span = &opening.new.span;
        let statement = rawdoc! {
            "q": {
                "target.resource_instance_id": instance(span),
                "end": { "$gt": span.start.as_millis() },
            },
            "u": { "$setOnInsert": opening.document.clone() },
            "upsert": true,
            "hint": "previous_end",
        };
        let updated = self.link.update([&statement], send_by).await?;
        if let Some((_, error)) = updated.failed.into_iter().next() {
            return Ok(Some(WriteResult::failed(error)));
        }
        let made = WriteResult::Settled(Started::Opened);
        Ok((updated.made == 1).then_some(made))
    }

    /// For each start, the end of a span of its target that ends after it, if there is one.
    ///
    /// One search of the index alone clears the most of them: whose instance has no span that ends
    /// after the earliest of these starts. Each of the others is looked at by itself.
    async fn find_previous_ends(
        &self,
        batch: &[Arc<Opening>],
    ) -> Result<Vec<Option<Timestamp>>, CallError> {
        let look = async |index: usize| {
            let end = self.find_previous_end(&batch[index].new.span).await;
            (index, end)
        };
        let mut looks = Vec::new();
        for index in self.suspects(batch).await? {
            looks.push(look(index));
        }
        // A call that has begun is finished, whatever becomes of the others.
        let looked: Vec<_> = stream::iter(looks)
            .buffered(SEARCHES_AT_ONCE)
            .collect()
            .await;
        let mut ends = vec![None; batch.len()];
        for (index, end) in looked {
            ends[index] = end?;
        }
        Ok(ends)
    }

    /// The indices of the starts that may lie before the end of another span of their targets.
    async fn suspects(&self, batch: &[Arc<Opening>]) -> Result<Vec<usize>, CallError> {
        let careful = |index: &usize| !batch[*index].new.may_overlap;
        let indices = (0..batch.len()).filter(careful);
        let spans = || indices.clone().map(|index| &batch[index].new.span);
        let Some(earliest) = spans().map(|span| span.start).min() else {
            return Ok(Vec::new());
        };
        let instances: Vec<&str> = spans().map(instance).collect();
        let limit = ENDS_EACH * instances.len();
        let filter = doc! { INSTANCE: { "$in": instances }, "end": { "$gt": moment(earliest) } };
        let mut options = self.link.find_options(limit, doc! {}, "previous_end");
        options.projection = Some(doc! { "_id": 0, INSTANCE: 1, "end": 1 });
        let found = self.link.find(filter, options).await?;
        if found.len() == limit {
            return Ok(indices.collect());
        }
        let mut latest: HashMap<String, Timestamp> = HashMap::new();
        for document in found.iter().filter_map(|raw| decoded(raw).ok()) {
            let instance = document.get_document("target");
            let instance = instance.and_then(|target| target.get_str("resource_instance_id"));
            // An end that cannot be read is as late as can be: who looks closer says so.
            let end = read_moment(&document, "end").unwrap_or(Timestamp::MAX);
            if let Ok(instance) = instance {
                let latest = latest.entry(instance.to_owned()).or_insert(end);
                *latest = end.max(*latest);
            }
        }
        let suspect = |index: &usize| {
            let span = &batch[*index].new.span;
            let end = latest.get(instance(span));
            end.is_some_and(|end| *end > span.start)
        };
        Ok(indices.filter(suspect).collect())
    }

    /// The end of a span of the target that ends after this one starts, if there is one.
    async fn find_previous_end(&self, span: &Span) -> Result<Option<Timestamp>, CallError> {
        let mut options = self.link.find_options(1, doc! {}, "previous_end");
        options.projection = Some(doc! { "_id": 0, "end": 1 });
        let found = self.link.find(ends_after_start(span), options).await?;
        let end = |raw| decoded(raw).and_then(|found| read_moment(&found, "end"));
        let end = found.first().map(|raw| end(raw));
        end.transpose().map_err(CallError::Unreadable)
    }
}

/// The spans of the target that end after this one starts.
fn ends_after_start(span: &Span) -> Document {
    let mut filter = target_fields(&span.target, "target.");
    filter.insert("end", doc! { "$gt": moment(span.start) });
    filter
}

fn instance(span: &Span) -> &str {
    span.target.resource_instance_id.as_str()
}
