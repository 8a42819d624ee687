//! Starts, stops and updates (sections 6.1 and 6.2 of the paper).

mod decision;
mod refusals;
mod update;

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::header::LOCATION;
use axum::http::{HeaderName, HeaderValue, Request, StatusCode};
use axum::response::{IntoResponse, Response};
use sampler_api as api;
use sampler_api::EventType;
use sampler_service::problem::Problem;
use sampler_service::security::Grant;
use sampler_store::Arrival;

pub(super) use decision::Kept;

use super::{Admitted, answer, spans};
use crate::admission::RequestKind;
use crate::body::Received;
use crate::event::Event;
use crate::form::EventFormat;
use crate::metrics::note_event;
use crate::openapi::problem_answers::{OfAnyEvent, OfStart, OfStop};
use crate::reading::Parameters;
use crate::{Receiver, body};

/// The header of an answer to an event that was kept before, so that nothing was done this time.
const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

impl IntoResponse for Kept {
    fn into_response(self) -> Response {
        let mut response = StatusCode::CREATED.into_response();
        let headers = response.headers_mut();
        if self.is_replayed {
            headers.insert(REPLAYED, HeaderValue::from_static("true"));
        }
        if let Some(span) = self.started {
            headers.insert(LOCATION, spans::location(&span));
        }
        response
    }
}

#[utoipa::path(
    post, path = "/v1/events/start", operation_id = "start", tag = "Events",
    summary = "A usage starts",
    description = "A repeat with the same `id` is recognised.",
    request_body(content = api::StartEvent, content_type = "application/json"),
    responses(
        (status = 201, description = "It is kept.",
            headers(("Location" = String, description = "The address of the span."), ("Idempotent-Replayed" = Option<bool>, description = "It was kept before, and nothing was done this time."))),
        OfStart,
    ),
)]
pub async fn start(
    State(receiver): State<Arc<Receiver>>,
    grant: Grant,
    request: Request<Body>,
) -> Response {
    let outcome = receiver.receive(EventType::Start, &grant, request).await;
    answer("start", &grant, outcome)
}

#[utoipa::path(
    post, path = "/v1/events/stop", operation_id = "stop", tag = "Events",
    summary = "A usage stops",
    description = "The timestamp may be equal to that of the start: then nothing is billed.",
    request_body(content = api::StopEvent, content_type = "application/json"),
    responses(
        (status = 201, description = "It is kept.",
            headers(("Idempotent-Replayed" = Option<bool>, description = "It was kept before, and nothing was done this time."))),
        OfStop,
    ),
)]
pub async fn stop(
    State(receiver): State<Arc<Receiver>>,
    grant: Grant,
    request: Request<Body>,
) -> Response {
    let outcome = receiver.receive(EventType::Stop, &grant, request).await;
    answer("stop", &grant, outcome)
}

#[utoipa::path(
    post, path = "/v1/events/update", operation_id = "update", tag = "Events",
    summary = "A usage continues with another plan or other quantities",
    description = "The previous span stops and a new one starts at the same time. If the stop was kept and the start was not, the problem has `\"stopped\": true`, and the same request again completes the update.",
    request_body(content = api::UpdateEvent, content_type = "application/json"),
    responses(
        (status = 201, description = "It is kept: both the stop and the start.",
            headers(("Location" = String, description = "The address of the span."), ("Idempotent-Replayed" = Option<bool>, description = "It was kept before, and nothing was done this time."))),
        OfAnyEvent,
    ),
)]
pub async fn update(
    State(receiver): State<Arc<Receiver>>,
    grant: Grant,
    request: Request<Body>,
) -> Response {
    let outcome = receiver.receive(EventType::Update, &grant, request).await;
    answer("update", &grant, outcome)
}

impl Receiver {
    /// Receives a request that is one event, of the kind that its address says.
    async fn receive(
        &self,
        kind: EventType,
        grant: &Grant,
        request: Request<Body>,
    ) -> Result<Kept, Problem> {
        // The original has the addresses of starts and stops, and ignores their queries.
        if kind == EventType::Update {
            Parameters::of(request.uri()).finish()?;
        }
        let body = match grant.require_write() {
            Ok(()) => body::read(request, self, self.sender(grant)).await,
            Err(problem) => Err(problem),
        };
        let form = EventFormat::Addressed(kind);
        self.process_one(Some(kind), grant, body, form).await
    }

    /// Processes and counts an event that came alone, unless its body could not be read.
    pub(super) async fn process_one(
        &self,
        kind: Option<EventType>,
        grant: &Grant,
        body: Result<Received, Problem>,
        form: EventFormat,
    ) -> Result<Kept, Problem> {
        let read = body.and_then(|body| Ok((body, self.acquire_in_flight(counted_as(kind))?)));
        let outcome = match read {
            Ok((body, _in_flight)) => self.process_event(grant, body, form, Arrival::Alone).await,
            Err(problem) => Err(problem),
        };
        note_event(kind, outcome.as_ref().map(|kept| kept.is_replayed));
        outcome
    }

    /// Processes one event, which came alone or in a batch: reads it, waits for its client's turn, and
    /// keeps it.
    pub(super) async fn process_event(
        &self,
        grant: &Grant,
        body: impl AsRef<[u8]>,
        form: EventFormat,
        arrival: Arrival,
    ) -> Result<Kept, Problem> {
        let admitted = self.admit(grant, body, form, |event| turns(event, arrival));
        let Admitted { event, _permits } = admitted.await?;
        self.keep(event, grant, arrival).await
    }
}

/// The turns that an event waits for.
fn turns(event: &Event, arrival: Arrival) -> Vec<RequestKind> {
    let (start, stop) = match arrival {
        Arrival::Alone => (RequestKind::Start, RequestKind::Stop),
        Arrival::InBatch => (RequestKind::BatchStart, RequestKind::BatchStop),
    };
    match event {
        Event::Start(_) => vec![start],
        Event::Stop(_) => vec![stop],
        Event::Update(_) => vec![start, stop],
    }
}

/// What an event counts as in `MAX_INFLIGHT`. An event without a kind counts as a start.
fn counted_as(kind: Option<EventType>) -> RequestKind {
    match kind {
        Some(EventType::Stop) => RequestKind::Stop,
        Some(EventType::Start | EventType::Update) | None => RequestKind::Start,
    }
}
