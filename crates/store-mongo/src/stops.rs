//! Ending spans (section 6.2 of the paper), many with one command.

use std::sync::Arc;

use async_trait::async_trait;
use bson::raw::{RawBson, RawDocumentBuf, cstr};
use bson::{Document, rawdoc};
use sampler_domain::{Key, Span, StopEvent, decide_stop};
use sampler_store::group::{CommandFailure, CommandResult, GroupWriter, Resolution, WriteResult};
use sampler_store::{IdKind, NewStop, StopOutcome};
use tokio::time::Instant;

use crate::call::{CallError, Link};
use crate::document::{OPEN, key_as_binary, moment};
use crate::index;
use crate::raw::decoded;
use crate::resolve::{ByTarget, EventKey, SpanOf, by_event_id, by_target, without_measures};

#[derive(Debug)]
pub(crate) struct StopWriter {
    pub(crate) link: Link,
}

impl StopWriter {
    async fn end_alone(
        &self,
        write: &StopWrite,
        send_by: Instant,
    ) -> Result<WriteResult<StopOutcome, CallError>, CallError> {
        if Instant::now() >= send_by {
            return Err(CallError::TooLate);
        }
        let statement = decoded(&write.statement);
        let part = |name| statement.get_document(name).cloned().unwrap_or_default();
        let update =
            self.link
                .find_and_update(part("q"), part("u"), (index::SPAN, Document::new()));
        match update.await {
            Ok(true) => Ok(WriteResult::Settled(StopOutcome::Ended)),
            Ok(false) => Ok(WriteResult::Unresolved),
            Err(error) if error.is_duplicate_key() => Ok(WriteResult::Unresolved),
            Err(error) => Err(error),
        }
    }
}

/// A stop, and the statement that makes it. The index of spans refuses the same update a second time,
/// because the target has a span with this end and `correlation_id` then.
#[derive(Debug)]
pub(crate) struct StopWrite {
    event: StopEvent,
    correlation_id: String,
    statement: RawDocumentBuf,
}

impl StopWrite {
    pub(crate) fn new(new: NewStop) -> Self {
        let correlation_id = new.correlation_id.to_string();
        Self {
            statement: statement(&new, &correlation_id),
            event: new.event,
            correlation_id,
        }
    }

    fn event(&self) -> Option<EventKey> {
        Some((self.event.target.clone(), self.event.id.clone()?))
    }
}

/// Ends the open span of the target. The condition is the rule of [`decide_stop`] as a query;
/// `unique_stop` has its rule of the id. That the stop is not dated before the start is a part of it,
/// so no race can leave a span that ends before it starts.
fn statement(new: &NewStop, correlation_id: &str) -> RawDocumentBuf {
    let event = &new.event;
    rawdoc! {
        "q": {
            "processing.key": key_as_binary(Key::of(&event.target)),
            "end": RawBson::Null,
            "target.correlation_id": OPEN,
            "start": { "$lte": event.timestamp.as_millis() },
        },
        "u": update(new, correlation_id),
        "hint": index::SPAN,
    }
}

/// It makes the span due by its end.
fn update(new: &NewStop, correlation_id: &str) -> RawDocumentBuf {
    let event = &new.event;
    let end = event.timestamp.as_millis();
    let mut set = rawdoc! {
        "end": end,
        "target.correlation_id": correlation_id,
    };
    if let Some(id) = &event.id {
        set.append(cstr!("end_dedup_id"), id.as_str());
    }
    if let Some(client) = &new.client {
        set.append(cstr!("stop_client"), client.as_str());
    }
    rawdoc! {
        "$set": set,
        "$inc": { "processing.version": 1_i64 },
        "$min": { "processing.due_at": end },
    }
}

#[async_trait]
impl GroupWriter for StopWriter {
    type Write = StopWrite;
    type Answer = StopOutcome;
    type Failure = CallError;

    fn size(write: &StopWrite) -> usize {
        write.statement.as_bytes().len()
    }

    /// A stop that is alone is a `findOneAndUpdate` (section 6.2).
    async fn send(&self, batch: &[Arc<StopWrite>], send_by: Instant) -> CommandResult<Self> {
        if let [write] = batch {
            let ended = self.end_alone(write, send_by).await?;
            return Ok(vec![ended]);
        }
        let statements = batch.iter().map(|write| &write.statement);
        let updated = self.link.update(statements, send_by).await?;
        Ok(updated.write_results(batch.len(), |_| StopOutcome::Ended))
    }

    /// Reads the span that this stop ended and the open span, then an earlier event with the same `id`. The
    /// ended span decides; without it the earlier event, even if it appeared between the reads; without both
    /// the open span.
    async fn resolve(
        &self,
        batch: &[Arc<StopWrite>],
    ) -> Result<Vec<Resolution<StopOutcome>>, CallError> {
        let either = batch.iter().flat_map(|write| {
            let target = &write.event.target;
            let ended = SpanOf {
                target,
                end: moment(write.event.timestamp),
                correlation_id: &write.correlation_id,
            };
            [SpanOf::open(target), ended]
        });
        let spans = by_target(&self.link, either).await?;
        let events = batch.iter().filter_map(|write| {
            let id = write.event.id.as_ref()?;
            Some((&write.event.target, id))
        });
        let measures = without_measures();
        let earlier = by_event_id(&self.link, IdKind::Stop, events, measures).await?;
        let resolutions = batch.iter().map(|write| {
            let by_id = write.event().and_then(|event| earlier.get(&event));
            resolve_one(write, by_id, &spans).map(Ok)
        });
        Ok(resolutions.collect())
    }
}

/// The outcome of a stop whose update has changed nothing; none where it is to be sent again.
fn resolve_one(write: &StopWrite, by_id: Option<&Span>, spans: &ByTarget) -> Option<StopOutcome> {
    let event = &write.event;
    if spans.contains_key(&(event.target.clone(), write.correlation_id.clone())) {
        return Some(StopOutcome::Ended);
    }
    let open = spans.get(&(event.target.clone(), OPEN.to_owned()));
    StopOutcome::found(decide_stop(event, by_id, open))
}
