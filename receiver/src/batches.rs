//! Batches of events, and CloudEvents.

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::{Request, StatusCode};
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt;
use futures_util::stream;
use sampler_api as api;
use sampler_api::{Batch, BatchResult};
use sampler_service::http::log_refusal;
use sampler_service::problem::Problem;
use sampler_service::security::Grant;
use sampler_store::Arrival;

use crate::Receiver;
use crate::batch::{self, Item, Layout};
use crate::body::{self, JSON, NDJSON};
use crate::cloud_event::Attributes;
use crate::event::Form;
use crate::events::{Kept, client};
use crate::parameters::Parameters;

/// The media types of batches and CloudEvents.
const CLOUD_EVENTS: &str = "application/cloudevents-batch+json";
const CLOUD_EVENT: &str = "application/cloudevents+json";
const ACCEPTED: [&str; 4] = [JSON, NDJSON, CLOUD_EVENTS, CLOUD_EVENT];

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
pub(crate) async fn post(
    State(receiver): State<Arc<Receiver>>,
    grant: Grant,
    parameters: Parameters,
    request: Request<Body>,
) -> Result<Response, Problem> {
    grant.require_write()?;
    parameters.finish()?;
    let headers = request.headers().clone();
    let layout = match body::media_type(&headers, &ACCEPTED)? {
        CLOUD_EVENT => {
            return receiver
                .receive_alone(&grant, request, Form::CloudEvent)
                .await;
        }
        CLOUD_EVENTS => Layout::CloudEvents,
        NDJSON => Layout::Lines,
        _ => match Attributes::of(&headers) {
            Some(attributes) => {
                let form = Form::Binary(attributes);
                return receiver.receive_alone(&grant, request, form).await;
            }
            None => Layout::List,
        },
    };
    let body = body::read_up_to(request, &receiver, client(&grant, ""), BATCH_LEN_MAX).await?;
    let _counted = receiver.count(false)?;
    let events = batch::split(layout, body.as_ref())?;
    let batch = Posted {
        receiver: &receiver,
        grant: &grant,
        layout,
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

impl Receiver {
    /// Receives a CloudEvent that is sent alone: it is answered as at the address of its kind.
    async fn receive_alone(
        &self,
        grant: &Grant,
        request: Request<Body>,
        form: Form<'_>,
    ) -> Result<Response, Problem> {
        let max = self.settings.limits.payload;
        let body = body::read_up_to(request, self, client(grant, ""), max).await;
        let outcome = self.receive_one(grant, body, form).await;
        outcome.map(IntoResponse::into_response)
    }
}

/// A batch in progress.
struct Posted<'b> {
    receiver: &'b Receiver,
    grant: &'b Grant,
    layout: Layout,
    events: &'b [Item<'b>],
}

impl Posted<'_> {
    /// Events of different instances do not wait for each other, so they share commands.
    async fn process_all(&self) -> Vec<BatchResult> {
        let chains = batch::chains(self.events).into_iter();
        let results = stream::iter(chains.map(|chain| self.process_chain(chain)));
        let results: Vec<_> = results.buffer_unordered(AT_ONCE).collect().await;
        results.into_iter().flatten().collect()
    }

    /// Processes events that have to follow each other. After one without a final answer the others are not
    /// processed: their answers could depend on it. Of any error of the server it is open whether the event was kept,
    /// or will be by its repeat.
    async fn process_chain(&self, chain: Vec<usize>) -> Vec<BatchResult> {
        let mut held_back: Option<Problem> = None;
        let mut results = Vec::with_capacity(chain.len());
        for index in chain {
            let event = &self.events[index];
            let outcome = match held_back.clone() {
                Some(problem) => Err(problem),
                None => self.process(event.bytes).await,
            };
            self.receiver.events.count(event.kind, &outcome);
            let outcome = outcome.map_err(|mut problem| {
                log_refusal("batch", self.grant.client(), &problem);
                if problem.status().is_server_error() && held_back.is_none() {
                    held_back = Some(self.receiver.held_back_by(&problem));
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
        let max = self.receiver.settings.limits.payload;
        if event.len() > max {
            return Err(body::too_large(max));
        }
        let (form, arrival) = (self.layout.form(), Arrival::InBatch);
        self.receiver
            .process(self.grant, event, form, arrival)
            .await
    }
}
