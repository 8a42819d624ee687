//! Starting and stopping spans (sections 6.1 and 6.2 of the paper).

use bson::{Bson, Document, doc};
use sampler_domain::{Span, StartEvent, StopEvent, Target, Timestamp};
use sampler_store::{NewSpan, NewStop, Started, Stopped, StoreError};

use crate::document::{OPEN, moment, read, started, target_fields};
use crate::{MongoStore, adopt};

/// How often a start or stop is tried when what stood in its way is gone by the time we look.
const TRIES: usize = 5;

impl MongoStore {
    /// Inserts the span. What can stand in its way are the unique indexes, and the previous span
    /// of the target, which is looked at first: two starts of one target that are in flight at the
    /// same moment have no order, so nothing is gained by looking in the same operation.
    pub(crate) async fn start_span(&self, new: NewSpan) -> Result<Started, StoreError> {
        let event = StartEvent {
            id: new.span.start_id.clone(),
            timestamp: new.span.start,
            target: new.span.target.clone(),
            measures: new.span.measures.clone(),
        };
        for _ in 0..TRIES {
            if !new.may_overlap
                && let Some(until) = self.previous_end(&event).await?
            {
                let overlaps = Started::Overlaps { until };
                return Ok(self.why_not_started(&event).await?.unwrap_or(overlaps));
            }
            let (spans, document) = (self.spans.clone(), started(&new));
            match self
                .run(async move { spans.insert_one(document).await })
                .await
            {
                Ok(_) => return Ok(Started::Opened),
                Err(fault) if fault.is_duplicate_key() => {}
                Err(fault) => return Err(fault.into()),
            }
            if let Some(answer) = self.why_not_started(&event).await? {
                return Ok(answer);
            }
        }
        Err(contended())
    }

    /// The end of a span of the target that ends after this start, if there is one.
    async fn previous_end(&self, event: &StartEvent) -> Result<Option<Timestamp>, StoreError> {
        let mut filter = target_fields(&event.target, "target.");
        filter.insert("end", doc! { "$gt": moment(event.timestamp) });
        let spans = self.spans.clone();
        let found = self
            .run(async move {
                spans
                    .find_one(filter)
                    .hint(adopt::hint("previous_end"))
                    .await
            })
            .await?;
        Ok(found
            .map(|document| readable(&document))
            .transpose()?
            .and_then(|span| span.end))
    }

    /// Looks for what stood in the way of a start; none where it is gone.
    async fn why_not_started(&self, event: &StartEvent) -> Result<Option<Started>, StoreError> {
        if let Some(id) = &event.id {
            let filter = doc! { "start_dedup_id": id.as_str() };
            if let Some(earlier) = self.find_exactly(filter).await? {
                let differences = event.differences(&earlier);
                return Ok(Some(if differences.is_empty() {
                    Started::Repeated
                } else {
                    Started::IdTaken(differences)
                }));
            }
        }
        let open = self.find_exactly(open_span(&event.target)).await?;
        Ok(open.map(|_| Started::AlreadyOpen))
    }

    /// Sets the end of the open span. Whether the stop lies before the start is part of the
    /// condition, so no race can leave a span that ends before it starts.
    pub(crate) async fn stop_span(&self, new: NewStop) -> Result<Stopped, StoreError> {
        let NewStop {
            event,
            correlation_id,
        } = new;
        let mut filter = open_span(&event.target);
        filter.insert("start", doc! { "$lte": moment(event.timestamp) });
        let update = ended(&event, &correlation_id.to_string());
        for _ in 0..TRIES {
            let (spans, filter, update) = (self.spans.clone(), filter.clone(), update.clone());
            let call = async move {
                spans
                    .update_one(filter, update)
                    .hint(adopt::hint("unique_target"))
                    .await
            };
            match self.run(call).await {
                Ok(result) if result.matched_count == 1 => return Ok(Stopped::Ended),
                Ok(_) => {}
                Err(fault) if fault.is_duplicate_key() => {}
                Err(fault) => return Err(fault.into()),
            }
            if let Some(answer) = self.why_not_stopped(&event).await? {
                return Ok(answer);
            }
        }
        Err(contended())
    }

    /// Looks for what stood in the way of a stop; none where it is gone.
    async fn why_not_stopped(&self, event: &StopEvent) -> Result<Option<Stopped>, StoreError> {
        if let Some(id) = &event.id {
            let filter = doc! { "end_dedup_id": id.as_str() };
            if let Some(earlier) = self.find_exactly(filter).await? {
                let differences = event.differences(&earlier);
                return Ok(Some(if differences.is_empty() {
                    Stopped::Repeated
                } else {
                    Stopped::IdTaken(differences)
                }));
            }
        }
        match self.find_exactly(open_span(&event.target)).await? {
            None => Ok(Some(Stopped::NotOpen)),
            Some(open) if event.timestamp < open.start => {
                Ok(Some(Stopped::BeforeStart { start: open.start }))
            }
            Some(_) => Ok(None),
        }
    }

    /// The span that matches, as no other primary can know better: what an answer is based on
    /// must not be rolled back.
    pub(crate) async fn find_exactly(&self, filter: Document) -> Result<Option<Span>, StoreError> {
        let (spans, limit) = (self.linearizable.clone(), self.operation_timeout);
        let found = self
            .run(async move { spans.find_one(filter).max_time(limit).await })
            .await?;
        found.map(|document| readable(&document)).transpose()
    }
}

/// The open span of a target.
fn open_span(target: &Target) -> Document {
    let mut filter = target_fields(target, "target.");
    filter.insert("target.correlation_id", OPEN.to_string());
    filter.insert("end", Bson::Null);
    filter
}

/// What a stop changes. It leaves `processing.version` alone, and makes the span due by its end;
/// `end_is_set` is what a worker of the original looks for.
fn ended(event: &StopEvent, correlation_id: &str) -> Document {
    let mut set = doc! {
        "end": moment(event.timestamp),
        "end_is_set": true,
        "target.correlation_id": correlation_id,
    };
    if let Some(id) = &event.id {
        set.insert("end_dedup_id", id.as_str());
    }
    doc! { "$set": set, "$min": { "processing.due_at": moment(event.timestamp) } }
}

pub(crate) fn readable(document: &Document) -> Result<Span, StoreError> {
    read(document).map_err(|error| StoreError::Refused(Box::new(error)))
}

fn contended() -> StoreError {
    #[derive(Debug, thiserror::Error)]
    #[error("other events for the same target or id kept coming between")]
    struct Contended;
    StoreError::Unknown(Box::new(Contended))
}
