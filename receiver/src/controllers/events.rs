//! Starts, stops and updates (sections 6.1 and 6.2 of the paper).

mod decision;
mod refusals;
mod update;
mod view;

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::header::LOCATION;
use axum::http::{HeaderName, HeaderValue, Request, StatusCode};
use axum::response::{IntoResponse, Response};
use sampler_api as api;
use sampler_domain::{SpanId, StopEvent};
use sampler_service::problem::Problem;
use sampler_service::security::Grant;
use sampler_store::{Arrival, ReadConcern, SpansBy};

pub(super) use decision::EventOutcome;
pub(super) use view::View;

use super::{Admitted, answer, spans};
use crate::admission::{InFlightPermit, RequestKind};
use crate::body::Received;
use crate::event::{Event, EventKind};
use crate::event_headers::{DryRunQuery, EventForm, REPRESENTATION};
use crate::form::EventFormat;
use crate::openapi::params::{AskedParams, DryRunParams};
use crate::openapi::problem_answers::{OfAnyEvent, OfStart, OfStop};
use crate::{Receiver, body};

/// The header of an answer to an event that was kept before, so that nothing was done this time.
const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");

/// The same, by the name that other APIs have given it.
const REPLAYED_BY_KEY: HeaderName = HeaderName::from_static("idempotent-replayed");

/// Which preference was heeded (RFC 7240).
const PREFERENCE_APPLIED: HeaderName = HeaderName::from_static("preference-applied");

impl IntoResponse for EventOutcome {
    fn into_response(self) -> Response {
        let mut response = StatusCode::CREATED.into_response();
        let headers = response.headers_mut();
        if self.is_replayed {
            for name in [REPLAYED, REPLAYED_BY_KEY] {
                headers.insert(name, HeaderValue::from_static("true"));
            }
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
    params(DryRunParams, AskedParams),
    request_body(content = api::StartEvent, content_type = "application/json"),
    responses(
        (status = 200, description = "A dry run: the answer that the event would get.", body = api::DryRun),
        (status = 201, description = "It is kept. The body has the span only with `Prefer: return=representation`.", body = api::Span,
            headers(("Location" = String, description = "The address of the span."), ("Idempotency-Replayed" = Option<bool>, description = "It was kept before, and nothing was done this time."), ("Idempotent-Replayed" = Option<bool>, description = "The same."))),
        OfStart,
    ),
)]
pub async fn start(
    State(receiver): State<Arc<Receiver>>,
    grant: Grant,
    request: Request<Body>,
) -> Response {
    let outcome = receiver.receive(EventKind::Start, &grant, request).await;
    answer("start", &grant, outcome)
}

#[utoipa::path(
    post, path = "/v1/events/stop", operation_id = "stop", tag = "Events",
    summary = "A usage stops",
    description = "The timestamp may be equal to that of the start: then nothing is billed.",
    params(DryRunParams, AskedParams),
    request_body(content = api::StopEvent, content_type = "application/json"),
    responses(
        (status = 200, description = "A dry run: the answer that the event would get.", body = api::DryRun),
        (status = 201, description = "It is kept. The body has the span only with `Prefer: return=representation`.", body = api::Span,
            headers(("Idempotency-Replayed" = Option<bool>, description = "It was kept before, and nothing was done this time."), ("Idempotent-Replayed" = Option<bool>, description = "The same."))),
        OfStop,
    ),
)]
pub async fn stop(
    State(receiver): State<Arc<Receiver>>,
    grant: Grant,
    request: Request<Body>,
) -> Response {
    let outcome = receiver.receive(EventKind::Stop, &grant, request).await;
    answer("stop", &grant, outcome)
}

#[utoipa::path(
    post, path = "/v1/events/update", operation_id = "update", tag = "Events",
    summary = "A usage continues with another plan or other quantities",
    description = "The previous span stops and a new one starts at the same time. A repeat with the same `id` completes an update that a crash has left incomplete.",
    params(DryRunParams, AskedParams),
    request_body(content = api::UpdateEvent, content_type = "application/json"),
    responses(
        (status = 200, description = "A dry run: the answer that the event would get.", body = api::DryRun),
        (status = 201, description = "It is kept: both the stop and the start. The body has the span only with `Prefer: return=representation`.", body = api::Span,
            headers(("Location" = String, description = "The address of the span."), ("Idempotency-Replayed" = Option<bool>, description = "It was kept before, and nothing was done this time."), ("Idempotent-Replayed" = Option<bool>, description = "The same."))),
        OfAnyEvent,
    ),
)]
pub async fn update(
    State(receiver): State<Arc<Receiver>>,
    grant: Grant,
    request: Request<Body>,
) -> Response {
    let outcome = receiver.receive(EventKind::Update, &grant, request).await;
    answer("update", &grant, outcome)
}

/// A request that is one event: its body, its form, and its place in `MAX_INFLIGHT`.
type ReadEvent = (Received, EventForm, Option<InFlightPermit>);

impl Receiver {
    /// Counts an event by its answer. `kind` is `None` if the event does not say its kind.
    pub(super) fn count(&self, kind: Option<EventKind>, outcome: &Result<EventOutcome, Problem>) {
        let is_replayed = outcome.as_ref().map(|accepted| accepted.is_replayed);
        let event = kind.map_or("unknown", EventKind::name);
        self.metrics
            .note(event, is_replayed, self.parts.clock.now());
    }

    /// Receives a request that is one event, of the kind that its address says.
    async fn receive(
        &self,
        kind: EventKind,
        grant: &Grant,
        request: Request<Body>,
    ) -> Result<Response, Problem> {
        // The original has the addresses of starts and stops, and ignores their queries.
        let dry_run = DryRunQuery::of(request.uri(), kind != EventKind::Update)?;
        let form = EventForm::of(EventFormat::Addressed(kind), request.headers());
        let read = self.read_body(kind, grant, request).await;
        let read = read.and_then(|(body, in_flight)| Ok((body, form?, in_flight)));
        self.answer_one(Some(kind), grant, dry_run, read).await
    }

    /// Answers a request that is one event. `read` is its body and form, or why they cannot be read.
    pub(super) async fn answer_one(
        &self,
        kind: Option<EventKind>,
        grant: &Grant,
        dry_run: Option<DryRunQuery>,
        read: Result<ReadEvent, Problem>,
    ) -> Result<Response, Problem> {
        if let Some(dry_run) = dry_run {
            let (body, form, _in_flight) = read?;
            return self.dry_run_one(dry_run, grant, body.as_ref(), form).await;
        }
        let wants_span = read.as_ref().is_ok_and(|(_, form, _)| form.wants_span);
        let outcome = match read {
            Ok((body, form, _in_flight)) => {
                self.process_event(grant, body, form, Arrival::Alone).await
            }
            Err(problem) => Err(problem),
        };
        self.count(kind, &outcome);
        Ok(self.answer_kept(outcome?, grant, wants_span).await)
    }

    /// The answer to an event that was kept: with its span, where the client prefers that and it can be
    /// read. If it cannot, the answer still says what was kept.
    pub(super) async fn answer_kept(
        &self,
        kept: EventOutcome,
        grant: &Grant,
        wants_span: bool,
    ) -> Response {
        let id = kept.started.clone().or_else(|| kept.ended.clone());
        let answer = kept.into_response();
        let Some(id) = id.filter(|_| wants_span) else {
            return answer;
        };
        let Some(span) = self.span_of(&id, grant).await else {
            return answer;
        };
        let mut told = (StatusCode::CREATED, Json(span)).into_response();
        let headers = told.headers_mut();
        headers.extend(answer.into_parts().0.headers);
        headers.insert(PREFERENCE_APPLIED, HeaderValue::from_static(REPRESENTATION));
        told
    }

    async fn span_of(&self, id: &SpanId, grant: &Grant) -> Option<api::Span> {
        let id = id.to_string();
        let listed = self
            .read_store(grant, |store| async move { store.span(&id, None).await })
            .await
            .ok()?;
        let now = self.parts.clock.now();
        listed.map(|listed| spans::shown(&listed, now))
    }

    async fn read_body(
        &self,
        kind: EventKind,
        grant: &Grant,
        request: Request<Body>,
    ) -> Result<(Received, Option<InFlightPermit>), Problem> {
        grant.require_write()?;
        let body = body::read(request, self, self.sender(grant)).await?;
        let in_flight = self.acquire_in_flight(counted_as(Some(kind)))?;
        Ok((body, in_flight))
    }

    /// Processes one event, which came alone or in a batch: reads it, waits for its client's turn, and
    /// keeps it.
    pub(super) async fn process_event(
        &self,
        grant: &Grant,
        body: impl AsRef<[u8]>,
        form: impl Into<EventForm>,
        arrival: Arrival,
    ) -> Result<EventOutcome, Problem> {
        let form = form.into();
        let wants_span = form.wants_span;
        let admitted = self.admit(grant, body, form, |event| turns(event, arrival));
        let Admitted { event, _permits } = admitted.await?;
        // It takes another read to know which span a stop has ended: only where the client wants the
        // span.
        let stop = match &event {
            Event::Stop(stop) if wants_span => Some(stop.clone()),
            _ => None,
        };
        let mut kept = self.keep(event, grant, arrival).await?;
        if let (Some(stop), None) = (stop, &kept.ended) {
            kept.ended = self.ended_by(&stop).await;
        }
        Ok(kept)
    }

    /// Very many may ask at once: linearizable reads have turns, and leave out the measures.
    async fn ended_by(&self, stop: &StopEvent) -> Option<SpanId> {
        let end = stop.timestamp;
        let by = match &stop.id {
            Some(id) => SpansBy::StoppedBy(id.clone()),
            None => SpansBy::NotEndedBy(end.plus(-1)),
        };
        let found = self
            .find_spans(&stop.target, &by, ReadConcern::Linearizable)
            .await
            .ok()?;
        let mut ended = found.into_iter().filter(|span| span.end == Some(end));
        ended.next().map(|span| span.id)
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
pub(super) fn counted_as(kind: Option<EventKind>) -> RequestKind {
    match kind {
        Some(EventKind::Stop) => RequestKind::Stop,
        Some(EventKind::Start | EventKind::Update) | None => RequestKind::Start,
    }
}
