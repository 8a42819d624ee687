//! Ending spans (section 6.2 of the paper), many with one command.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bson::raw::{RawBson, RawDocumentBuf, cstr};
use bson::rawdoc;
use sampler_domain::{Span, StopEvent};
use sampler_store::group::{Seen, Verdict, Verdicts, Writes};
use sampler_store::{NewStop, Stopped};
use tokio::time::Instant;

use crate::call::{Fault, Link};
use crate::document::OPEN;
use crate::look::{by_event_id, by_target, kept_as_uuids, readable};

/// Sets the ends of open spans.
#[derive(Debug)]
pub(crate) struct Stops {
    link: Link,
}

/// A stop, and the statement that makes it. `unique_target` refuses the same statement a second
/// time, because the target has a span with this `correlation_id` then.
#[derive(Debug)]
pub(crate) struct Ending {
    event: StopEvent,
    correlation_id: String,
    statement: RawDocumentBuf,
}

impl Ending {
    pub(crate) fn new(new: NewStop) -> Self {
        let correlation_id = new.correlation_id.to_string();
        Self {
            statement: statement(&new, &correlation_id),
            event: new.event,
            correlation_id,
        }
    }
}

/// Ends the open span of the target. Whether the stop lies before the start is part of the
/// condition, so no race can leave a span that ends before it starts.
///
/// It leaves `processing.version` alone, and makes the span due by its end; `end_is_set` is what a
/// worker of the original looks for.
fn statement(new: &NewStop, correlation_id: &str) -> RawDocumentBuf {
    let event = &new.event;
    let target = &event.target;
    let end = event.timestamp.as_millis();
    let mut set = rawdoc! {
        "end": end,
        "end_is_set": true,
        "target.correlation_id": correlation_id,
    };
    if let Some(id) = &event.id {
        set.append(cstr!("end_dedup_id"), id.as_str());
    }
    if let Some(client) = &new.client {
        set.append(cstr!("stop_client"), client.as_str());
    }
    rawdoc! {
        // Field by field, not as a sub-document: that is what the index serves.
        "q": {
            "target.organization_id": target.organization_id.as_str(),
            "target.space_id": target.space_id.as_str(),
            "target.consumer_id": target.consumer_id.as_str(),
            "target.resource_id": target.resource_id.as_str(),
            "target.plan_id": target.plan_id.as_str(),
            "target.resource_instance_id": target.resource_instance_id.as_str(),
            "target.correlation_id": OPEN,
            "end": RawBson::Null,
            "start": { "$lte": end },
        },
        "u": { "$set": set, "$min": { "processing.due_at": end } },
        "hint": "unique_target",
    }
}

impl Stops {
    pub(crate) fn new(link: Link) -> Self {
        Self { link }
    }
}

#[async_trait]
impl Writes for Stops {
    type Write = Ending;
    type Answer = Stopped;
    type Failure = Fault;

    fn size(write: &Ending) -> usize {
        write.statement.as_bytes().len()
    }

    fn carried_out_within(&self) -> Duration {
        self.link.carried_out_within()
    }

    /// A stop that comes late ends whatever span is open then.
    fn outlasts_late_commands(answer: &Stopped) -> bool {
        match answer {
            Stopped::Ended | Stopped::Repeated => true,
            Stopped::IdTaken(_) | Stopped::NotOpen | Stopped::BeforeStart { .. } => false,
        }
    }

    async fn write(&self, batch: &[Arc<Ending>], send_by: Instant) -> Verdicts<Self> {
        let ids = batch.iter().filter_map(|ending| ending.event.id.as_ref());
        let kept_as_uuids = kept_as_uuids(&self.link, "end_dedup_id", ids).await?;
        let is_free = |ending: &&Arc<Ending>| {
            let id = ending.event.id.as_ref();
            !id.is_some_and(|id| kept_as_uuids.contains(id.as_str()))
        };
        let free: Vec<&RawDocumentBuf> = batch
            .iter()
            .filter(is_free)
            .map(|ending| &ending.statement)
            .collect();
        if free.is_empty() {
            return Ok(batch.iter().map(|_| Verdict::Open).collect());
        }
        let count = free.len();
        let updated = self.link.update(free, send_by).await?;
        let mut updated = updated.verdicts(count, |_| Stopped::Ended).into_iter();
        let verdict = |ending| {
            let updated = is_free(&ending).then(|| updated.next()).flatten();
            updated.unwrap_or(Verdict::Open)
        };
        Ok(batch.iter().map(verdict).collect())
    }

    /// The span that this stop ended, an open span of the target, or an earlier event with the
    /// same id. The id comes last: what has it is a repeat, even if it came between two looks.
    async fn look(&self, batch: &[Arc<Ending>]) -> Result<Vec<Seen<Stopped>>, Fault> {
        let either = batch.iter().map(|ending| {
            let correlation_ids = vec![OPEN, ending.correlation_id.as_str()];
            (&ending.event.target, correlation_ids)
        });
        let spans = by_target(&self.link, either).await?;
        let ids = batch.iter().filter_map(|ending| ending.event.id.as_ref());
        let earlier = by_event_id(&self.link, "end_dedup_id", ids).await?;
        let seen = |ending: &Arc<Ending>| {
            let event = &ending.event;
            let span = |correlation_id: &str| {
                spans.get(&(event.target.clone(), correlation_id.to_owned()))
            };
            if span(&ending.correlation_id).is_some() {
                return Some(Ok(Stopped::Ended));
            }
            let id = event.id.as_ref();
            if let Some(earlier) = id.and_then(|id| earlier.get(id.as_str())) {
                return Some(readable(earlier).map(|earlier| repeated(event, &earlier)));
            }
            match span(OPEN).map(readable) {
                None => Some(Ok(Stopped::NotOpen)),
                Some(Err(error)) => Some(Err(error)),
                Some(Ok(open)) => before_start(event, &open).map(Ok),
            }
        };
        Ok(batch.iter().map(seen).collect())
    }
}

/// What a stop is told whose id an earlier one has.
fn repeated(event: &StopEvent, earlier: &Span) -> Stopped {
    let differences = event.differences(earlier);
    if differences.is_empty() {
        Stopped::Repeated
    } else {
        Stopped::IdTaken(differences)
    }
}

/// What a stop is told that lies before the start of the open span.
fn before_start(event: &StopEvent, open: &Span) -> Option<Stopped> {
    let before = event.timestamp < open.start;
    before.then_some(Stopped::BeforeStart { start: open.start })
}
