//! Batches of events, and CloudEvents. A body is divided into the bytes of its events. Each event is parsed when its
//! turn comes, so a batch takes only as much memory as its events would alone.

use std::collections::HashMap;

use axum::Json;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use axum::response::{IntoResponse, Response};
use futures_util::{StreamExt, stream};
use sampler_api as api;
use sampler_api::{Batch, BatchResult, EventType};
use sampler_service::http::log_refusal;
use sampler_service::problem::{FieldError, Pointer, Problem};
use sampler_store::Arrival;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use crate::Caller;
use crate::body::{self, JSON};
use crate::cloud_event::{self, Attributes};
use crate::event::Form;
use crate::events::Kept;
use crate::{json, problems};

/// The media types of batches and CloudEvents, beside JSON.
const NDJSON: &str = "application/x-ndjson";
const CLOUD_EVENTS: &str = "application/cloudevents-batch+json";
const CLOUD_EVENT: &str = "application/cloudevents+json";
const ACCEPTED: [&str; 4] = [JSON, NDJSON, CLOUD_EVENTS, CLOUD_EVENT];

const EVENTS_MAX: usize = 1_000;

/// Events of a batch that are processed at a time, each of another instance. While some are in a command of
/// the store, as many gather for the next one; more would keep other batches waiting.
const AT_ONCE: usize = 512;

/// The wrong fields that the answer to a batch names in all.
const ERRORS_MAX: usize = 10_000;

/// The largest body of a batch, before and after decompression, in bytes.
const BATCH_LEN_MAX: usize = 4 << 20;

#[utoipa::path(
    post, path = "/v1/events", operation_id = "post_events", tag = "Events",
    summary = "Up to 1,000 events, or CloudEvents",
    description = "Each event of a batch gets the status and the problem that it would get alone. \
        A CloudEvent that is sent alone is answered as at the address of its kind: in structured mode, \
        or in binary mode, with `ce-` headers and its data as the body. Sending a whole \
        batch again with the same ids is always safe.",
    request_body(content(
        (Vec<api::Event> = "application/json"),
        (String = "application/x-ndjson"),
        (Vec<api::CloudEvent> = "application/cloudevents-batch+json"),
        (api::CloudEvent = "application/cloudevents+json"),
    )),
    responses(
        (status = 200, description = "The result of each event.", body = Batch),
        (status = 201, description = "The CloudEvent is kept."),
    ),
)]
pub(crate) async fn post(caller: Caller, request: Request<Body>) -> Result<Response, Problem> {
    caller.grant.require_write()?;
    caller.parameters().finish()?;
    let receiver = &caller.receiver;
    let headers = request.headers().clone();
    let media_type = body::media_type(&headers, &ACCEPTED)?;
    let form = match (media_type, Attributes::of(&headers)) {
        (CLOUD_EVENTS | CLOUD_EVENT, _) => Form::CloudEvent,
        (JSON, Some(attributes)) => Form::Binary(attributes),
        _ => Form::Typed,
    };
    if media_type == CLOUD_EVENT || matches!(form, Form::Binary(_)) {
        let max = receiver.settings.limits.payload;
        let body = body::read_up_to(request, &caller, max).await;
        let outcome = caller.receive_one(body, form).await;
        return outcome.map(IntoResponse::into_response);
    }
    let body = body::read_up_to(request, &caller, BATCH_LEN_MAX).await?;
    let _counted = receiver.count(false)?;
    let events = match media_type {
        NDJSON => lines(body.as_ref())?,
        _ => list(form, body.as_ref())?,
    };
    let batch = Posted {
        caller: &caller,
        form,
        events: &events,
    };
    Ok(Json(counted(batch.process_all().await)).into_response())
}

fn result(index: usize, outcome: Result<Kept, Problem>) -> BatchResult {
    match outcome {
        Ok(kept) => BatchResult {
            index,
            status: StatusCode::CREATED.as_u16(),
            replayed: Some(kept.is_replayed),
            span: kept.started.map(|span| span.to_string()),
            ..BatchResult::default()
        },
        Err(problem) => BatchResult {
            index,
            status: problem.status().as_u16(),
            retry_after: problem.seconds_to_wait(),
            problem: Some(problem.into()),
            ..BatchResult::default()
        },
    }
}

/// The results in the order of the events, counted.
fn counted(mut results: Vec<BatchResult>) -> Batch {
    results.sort_unstable_by_key(|result| result.index);
    let mut batch = Batch::default();
    for result in &results {
        match (result.status, result.replayed) {
            (_, Some(false)) => batch.accepted += 1,
            (_, Some(true)) => batch.replayed += 1,
            (400..500, None) => batch.refused += 1,
            _ => batch.failed += 1,
        }
    }
    Batch { results, ..batch }
}

/// The events of a body that has one a line.
fn lines(body: &[u8]) -> Result<Vec<Item<'_>>, Problem> {
    let lines = body.split(|byte| *byte == b'\n');
    let lines = lines.filter(|line| !line.iter().all(u8::is_ascii_whitespace));
    let events: Vec<_> = lines.take(EVENTS_MAX + 1).collect();
    require_few(events.len())?;
    Ok(events.into_iter().map(|it| item(Form::Typed, it)).collect())
}

/// The events of a body that is a list. They are counted first: what is not kept of a list takes no memory.
fn list<'b>(form: Form<'_>, body: &'b [u8]) -> Result<Vec<Item<'b>>, Problem> {
    let counted: Result<Vec<IgnoredAny>, _> = serde_json::from_slice(body);
    let count = counted.map_err(|error| {
        // What is no list may be no JSON either.
        let is_json = serde_json::from_slice::<IgnoredAny>(body);
        let error = is_json.err().or((!error.is_data()).then_some(error));
        error.map_or_else(no_list, |error| json::malformed(body, &error))
    });
    require_few(count?.len())?;
    let events: Vec<&RawValue> =
        serde_json::from_slice(body).map_err(|error| json::malformed(body, &error))?;
    let events = events.into_iter();
    Ok(events.map(|raw| item(form, raw.get().as_bytes())).collect())
}

fn no_list() -> Problem {
    let error = FieldError::new(Pointer::root(), "The body must be a list of events.");
    json::invalid(&problems::INVALID_EVENT, [error])
}

fn require_few(events: usize) -> Result<(), Problem> {
    if events <= EVENTS_MAX {
        return Ok(());
    }
    let detail = "The batch has more than 1,000 events. Nothing was kept.";
    Err(Problem::new(&problems::PAYLOAD_TOO_LARGE, detail))
}

/// An event of a batch.
struct Item<'b> {
    bytes: &'b [u8],
    kind: Option<EventType>,
    /// The instances that it is about; an update may be about two.
    instances: Vec<String>,
}

/// The members of an event by which its kind and its order are known before it is read, as far as they can be
/// read.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Glimpse {
    r#type: Option<String>,
    resource_instance_id: Option<String>,
    previous: Option<Box<Glimpse>>,
}

/// The same of a CloudEvent, whose other attributes may be anything.
#[derive(Default, Deserialize)]
#[serde(default)]
struct CloudGlimpse {
    r#type: Option<String>,
    data: Option<Glimpse>,
}

fn item<'b>(form: Form<'_>, bytes: &'b [u8]) -> Item<'b> {
    let (kind, event) = if let Form::CloudEvent = form {
        let seen: CloudGlimpse = serde_json::from_slice(bytes).unwrap_or_default();
        let kind = seen.r#type.as_deref().and_then(cloud_event::kind_of);
        (kind, seen.data.unwrap_or_default())
    } else {
        let seen: Glimpse = serde_json::from_slice(bytes).unwrap_or_default();
        (seen.r#type.as_deref().and_then(EventType::from_name), seen)
    };
    let before = event.previous.and_then(|it| it.resource_instance_id);
    let instances = event.resource_instance_id.into_iter().chain(before);
    Item {
        bytes,
        kind,
        instances: instances.collect(),
    }
}

/// The kind of an event, where that is known before the event is read.
pub(crate) fn kind(form: Form<'_>, event: &[u8]) -> Option<EventType> {
    match form {
        Form::Addressed(kind) => Some(kind),
        Form::Binary(attributes) => attributes.kind(),
        Form::Typed | Form::CloudEvent => item(form, event).kind,
    }
}

/// The events that must be processed in order: all of one instance, or of instances that an update joins.
/// Events are named by their places in the batch.
fn chains(items: &[Item<'_>]) -> Vec<Vec<usize>> {
    let mut chains: Vec<Vec<usize>> = Vec::new();
    let mut chain_of: HashMap<&str, usize> = HashMap::new();
    for (index, item) in items.iter().enumerate() {
        let own = chains.len();
        chains.push(vec![index]);
        for instance in &item.instances {
            let other = *chain_of.entry(instance).or_insert(own);
            if other != own {
                let mut joined = std::mem::take(&mut chains[other]);
                joined.append(&mut chains[own]);
                joined.sort_unstable();
                chains[own] = joined;
                let moved = chain_of.values_mut().filter(|chain| **chain == other);
                moved.for_each(|chain| *chain = own);
            }
        }
    }
    chains.retain(|chain| !chain.is_empty());
    chains
}

/// A batch in progress.
struct Posted<'b> {
    caller: &'b Caller,
    form: Form<'b>,
    events: &'b [Item<'b>],
}

impl Posted<'_> {
    /// Events of different instances do not wait for each other, so they share commands.
    async fn process_all(&self) -> Vec<BatchResult> {
        let chains = chains(self.events).into_iter();
        let results = stream::iter(chains.map(|chain| self.process_chain(chain)));
        let results: Vec<_> = results.buffer_unordered(AT_ONCE).collect().await;
        results.into_iter().flatten().collect()
    }

    /// Processes events that have to follow each other. After one without a final answer the others are not
    /// processed: their answers could depend on it. Of any error of the server it is open whether the event was kept,
    /// or will be by its repeat.
    async fn process_chain(&self, chain: Vec<usize>) -> Vec<BatchResult> {
        let caller = self.caller;
        let mut held_back: Option<Problem> = None;
        let mut results = Vec::with_capacity(chain.len());
        for index in chain {
            let event = &self.events[index];
            let outcome = match held_back.clone() {
                Some(problem) => Err(problem),
                None => self.process(event.bytes).await,
            };
            caller.receiver.events.count(event.kind, &outcome);
            let outcome = outcome.map_err(|mut problem| {
                log_refusal("batch", caller.grant.client(), &problem);
                if problem.status().is_server_error() && held_back.is_none() {
                    held_back = Some(caller.receiver.held_back_by(&problem));
                }
                // The memory of the answer is limited.
                problem.cut_errors(ERRORS_MAX / self.events.len());
                problem
            });
            results.push(result(index, outcome));
        }
        results
    }

    async fn process(&self, event: &[u8]) -> Result<Kept, Problem> {
        let max = self.caller.receiver.settings.limits.payload;
        if event.len() > max {
            return Err(body::too_large(max));
        }
        let processed = self.caller.process(event, self.form, Arrival::InBatch);
        processed.await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Attributes of a CloudEvent that mean nothing to us may have the names of our members.
    #[test]
    fn events_of_an_instance_are_in_order_whatever_attributes_a_cloud_event_has() {
        let event = |kind: &str| {
            format!(
                r#"{{"type": "com.example.{kind}", "previous": "x", "resource_instance_id": 1,
                    "data": {{"resource_instance_id": "i"}}}}"#
            )
        };
        let body = format!("[{}, {}]", event("start"), event("stop"));
        let items = list(Form::CloudEvent, body.as_bytes()).expect("a list");
        let kinds = items.iter().map(|item| item.kind);
        let expected = [EventType::Start, EventType::Stop].map(Some);
        assert_eq!(kinds.collect::<Vec<_>>(), expected);
        assert_eq!(chains(&items), [vec![0, 1]]);
    }
}
