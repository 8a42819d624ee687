//! Batches of events, and CloudEvents.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::{Request, StatusCode};
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt;
use futures_util::stream;
use sampler_api as api;
use sampler_api::{Batch, BatchResult};
use sampler_service::problem::Problem;
use sampler_service::security::Grant;
use sampler_store::Arrival;

use super::events::Kept;
use super::{answer, log_refusal};
use crate::admission::RequestKind;
use crate::batch::{self, Item, Layout};
use crate::body::NDJSON;
use crate::form::EventFormat;
use crate::metrics::note_event;
use crate::openapi::problem_answers;
use crate::reading::Parameters;
use crate::{Receiver, body, cloud_event};

/// The media types of batches and CloudEvents.
const CLOUD_EVENTS: &str = "application/cloudevents-batch+json";
const CLOUD_EVENT: &str = "application/cloudevents+json";
const ACCEPTED: [&str; 4] = [body::JSON, NDJSON, CLOUD_EVENTS, CLOUD_EVENT];

/// Events of a batch that are processed at a time, each of another target. While some are in a command of
/// the store, as many gather for the next one; more would keep other batches waiting.
const AT_ONCE: usize = 512;

/// The wrong fields that the answer to a batch names in all. Beyond that each event names one.
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
        (status = 201, description = "The CloudEvent is kept.",
            headers(("Location" = Option<String>, description = "The address of the span that was started."),
                ("Idempotent-Replayed" = Option<bool>, description = "It was kept before, and nothing was done this time."))),
        problem_answers::OfAnyEvent,
    ),
)]
pub async fn post(
    State(receiver): State<Arc<Receiver>>,
    grant: Grant,
    request: Request<Body>,
) -> Response {
    let outcome = receiver.receive_any(&grant, request).await;
    answer("events", &grant, outcome)
}

fn result(index: usize, outcome: Result<Kept, Problem>) -> BatchResult {
    match outcome {
        Ok(kept) => BatchResult {
            index,
            status: StatusCode::CREATED.as_u16(),
            replayed: Some(kept.is_replayed),
            span: kept.started.map(|span| span.to_string()),
            retry_after: None,
            problem: None,
        },
        Err(problem) => BatchResult {
            index,
            status: problem.status().as_u16(),
            replayed: None,
            span: None,
            retry_after: problem.seconds_to_wait(),
            problem: Some(problem.into()),
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

struct BatchInProgress<'b> {
    receiver: &'b Receiver,
    grant: &'b Grant,
    layout: Layout,
    items: &'b [Item<'b>],
    /// The number of wrong fields that may still be named.
    errors: AtomicUsize,
}

impl Receiver {
    /// Receives a batch, or a CloudEvent that comes alone.
    async fn receive_any(
        &self,
        grant: &Grant,
        request: Request<Body>,
    ) -> Result<Response, Problem> {
        grant.require_write()?;
        Parameters::of(request.uri()).finish()?;
        let headers = request.headers();
        let media_type = body::media_type(headers, &ACCEPTED)?;
        let layout = match media_type {
            CLOUD_EVENT => {
                return self
                    .receive_alone(grant, request, EventFormat::CloudEvent)
                    .await;
            }
            CLOUD_EVENTS => Layout::CloudEvents,
            NDJSON => Layout::Lines,
            _ => match cloud_event::binary(headers) {
                Some(attributes) => {
                    let form = EventFormat::Binary(Box::new(attributes));
                    return self.receive_alone(grant, request, form).await;
                }
                None => Layout::List,
            },
        };
        let body = body::read_up_to(request, self, self.sender(grant), BATCH_LEN_MAX).await?;
        let _in_flight = self.acquire_in_flight(RequestKind::BatchStart)?;
        let items = batch::read(layout, body.as_ref())?;
        let batch = BatchInProgress {
            receiver: self,
            grant,
            layout,
            items: &items,
            errors: AtomicUsize::new(ERRORS_MAX),
        };
        let results = batch.process_all().await;
        Ok(Json(counted(results)).into_response())
    }

    /// Receives a CloudEvent that is sent alone: it is answered as at the address of its kind.
    async fn receive_alone(
        &self,
        grant: &Grant,
        request: Request<Body>,
        form: EventFormat,
    ) -> Result<Response, Problem> {
        let of_headers = match &form {
            EventFormat::Binary(attributes) => Some(attributes.kind()),
            _ => None,
        };
        let max = self.settings.limits.payload;
        let body = body::read_up_to(request, self, self.sender(grant), max).await;
        let kind =
            of_headers.unwrap_or_else(|| batch::kind_of_cloud_event(body.as_ref().ok()?.as_ref()));
        let outcome = self.process_one(kind, grant, body, form).await;
        outcome.map(IntoResponse::into_response)
    }
}

impl BatchInProgress<'_> {
    /// Events of different targets do not wait for each other, so they share commands.
    async fn process_all(&self) -> Vec<BatchResult> {
        let chains = batch::chains(self.items)
            .into_iter()
            .map(|chain| self.process_chain(chain));
        let results: Vec<Vec<BatchResult>> = stream::iter(chains)
            .buffer_unordered(AT_ONCE)
            .collect()
            .await;
        results.into_iter().flatten().collect()
    }

    /// Processes events that have to follow each other.
    async fn process_chain(&self, chain: Vec<usize>) -> Vec<BatchResult> {
        let mut stalled = Stalled::default();
        let mut results = Vec::with_capacity(chain.len());
        for index in chain {
            let item = &self.items[index];
            let outcome = match stalled.problem_of(item) {
                Some(problem) => Err(problem),
                None => self.process(item).await,
            };
            note_event(item.kind, outcome.as_ref().map(|kept| kept.is_replayed));
            let outcome = outcome.map_err(|problem| {
                log_refusal("batch", self.grant, &problem);
                stalled.note(item, &problem, self.receiver);
                self.limit_errors(problem)
            });
            results.push(result(index, outcome));
        }
        results
    }

    async fn process(&self, item: &Item<'_>) -> Result<Kept, Problem> {
        let max = self.receiver.settings.limits.payload;
        if item.bytes.len() > max {
            return Err(body::too_large(max));
        }
        let form = EventFormat::of(self.layout);
        let arrival = Arrival::InBatch;
        self.receiver
            .process_event(self.grant, item.bytes, form, arrival)
            .await
    }

    /// Limits the memory of the answer.
    fn limit_errors(&self, mut problem: Problem) -> Problem {
        let wanted = problem.error_count();
        let left = self.errors.load(Ordering::Relaxed);
        self.errors
            .store(left.saturating_sub(wanted), Ordering::Relaxed);
        problem.cut_errors(left.max(1));
        problem
    }
}

/// Targets with an event that has no final answer. Later events of these targets are not processed:
/// their answers could depend on that event.
#[derive(Default)]
struct Stalled {
    targets: BTreeSet<usize>,
    /// The problem of what follows such an event.
    problem: Option<Problem>,
}

impl Stalled {
    /// The problem of an event that is not processed; `None` if it can be.
    fn problem_of(&self, item: &Item<'_>) -> Option<Problem> {
        let is_behind = item
            .targets
            .iter()
            .any(|target| self.targets.contains(target));
        self.problem.clone().filter(|_| is_behind)
    }

    /// Notes the targets of an event without a final answer. Of any error of the server it is open whether
    /// the event was kept, or will be by its repeat.
    fn note(&mut self, item: &Item<'_>, problem: &Problem, receiver: &Receiver) {
        if problem.status().is_server_error() {
            self.targets.extend(&item.targets);
            self.problem
                .get_or_insert_with(|| receiver.held_back_by(problem));
        }
    }
}
