//! Starts, stops and updates (sections 6.1 and 6.2 of the paper): from a request to its answer.

use axum::body::Body;
use axum::http::header::LOCATION;
use axum::http::{HeaderName, HeaderValue, Request, StatusCode};
use axum::response::{IntoResponse, Response};
use metrics::{Counter, counter};
use sampler_api as api;
use sampler_api::EventType;
use sampler_domain::SpanId;
use sampler_service::problem::Problem;
use sampler_service::problem::kinds::OVERLOADED;
use sampler_store::Arrival;

use crate::Caller;
use crate::admission::{self, Client, Kind, LARGE_REQUEST};
use crate::event::{self, Event, Form};
use crate::problems::THROTTLED;
use crate::{batch, body, spans};

/// The header of an answer to an event that was kept before, so that nothing was done this time.
const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

/// An event that is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Kept {
    /// Whether an earlier request has kept the event, so that nothing was done this time.
    pub(crate) is_replayed: bool,
    /// The span that the event started, where it is known.
    pub(crate) started: Option<SpanId>,
}

impl Kept {
    pub(crate) fn now(started: Option<SpanId>) -> Self {
        Self {
            is_replayed: false,
            started,
        }
    }

    pub(crate) fn before(started: Option<SpanId>) -> Self {
        Self {
            is_replayed: true,
            started,
        }
    }
}

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
    responses((status = 201, description = "The event is kept.")),
)]
pub(crate) async fn start(caller: Caller, request: Request<Body>) -> Result<Kept, Problem> {
    caller.receive(EventType::Start, request).await
}

#[utoipa::path(
    post, path = "/v1/events/stop", operation_id = "stop", tag = "Events",
    summary = "A usage stops",
    description = "The timestamp may be equal to that of the start: then nothing is billed.",
    request_body(content = api::StopEvent, content_type = "application/json"),
    responses((status = 201, description = "The event is kept.")),
)]
pub(crate) async fn stop(caller: Caller, request: Request<Body>) -> Result<Kept, Problem> {
    caller.receive(EventType::Stop, request).await
}

#[utoipa::path(
    post, path = "/v1/events/update", operation_id = "update", tag = "Events",
    summary = "A usage continues with another plan or other quantities",
    description = "The previous span stops and a new one starts at the same time. If the stop was kept and the start was not, the problem has `\"stopped\": true`, and the same request again completes the update.",
    request_body(content = api::UpdateEvent, content_type = "application/json"),
    responses((status = 201, description = "The event is kept: both the stop and the start.")),
)]
pub(crate) async fn update(caller: Caller, request: Request<Body>) -> Result<Kept, Problem> {
    caller.parameters().finish()?;
    caller.receive(EventType::Update, request).await
}

impl Caller {
    /// Receives a request that is one event, of the kind that its address says.
    async fn receive(&self, kind: EventType, request: Request<Body>) -> Result<Kept, Problem> {
        let body = match self.grant.require_write() {
            Ok(()) => body::read(request, self, self.receiver.settings.limits.payload).await,
            Err(problem) => Err(problem),
        };
        self.receive_one(body, Form::Addressed(kind)).await
    }

    /// Processes and counts an event that came alone, unless its body could not be read.
    pub(crate) async fn receive_one(
        &self,
        body: Result<body::Received, Problem>,
        form: Form<'_>,
    ) -> Result<Kept, Problem> {
        let bytes = body.as_ref().map_or(&[][..], AsRef::as_ref);
        let kind = batch::kind(form, bytes);
        let processing = async {
            let body = body?;
            let _counted = self.receiver.count(kind == Some(EventType::Stop))?;
            self.process(body, form, Arrival::Alone).await
        };
        let outcome = processing.await;
        self.receiver.events.count(kind, &outcome);
        outcome
    }

    /// Processes one event, which came alone or in a batch: reads it, waits for its client's turn, and
    /// keeps it.
    ///
    /// A body that takes much memory once it is parsed waits before it is parsed. Any other is parsed and
    /// checked first, so that only valid events hold permits.
    pub(crate) async fn process(
        &self,
        body: impl AsRef<[u8]>,
        form: Form<'_>,
        arrival: Arrival,
    ) -> Result<Kept, Problem> {
        let (receiver, grant) = (&self.receiver, &self.grant);
        let weight = admission::weight(body.as_ref());
        let mut turn = None;
        if weight > LARGE_REQUEST {
            turn = Some(receiver.turn(Kind::Large, self.client(), weight).await?);
        }
        let event = event::read(body.as_ref(), form, grant)?;
        if turn.is_none() {
            let client = Client::of(grant, event.target().resource_id.as_str());
            let kind = kind_of(&event, arrival);
            turn = Some(receiver.turn(kind, client, weight).await?);
        }
        // While the event waits, memory holds its body, too.
        drop(body);
        let kept = receiver.keep(event, grant, arrival).await;
        drop(turn);
        kept
    }
}

/// The turn that an event waits for. An update waits as a start.
fn kind_of(event: &Event, arrival: Arrival) -> Kind {
    match (event, arrival) {
        (Event::Stop(_), Arrival::Alone) => Kind::Stop,
        (Event::Stop(_), Arrival::InBatch) => Kind::BatchStop,
        (Event::Start(_) | Event::Update(_), Arrival::Alone) => Kind::Start,
        (Event::Start(_) | Event::Update(_), Arrival::InBatch) => Kind::BatchStart,
    }
}

/// The counters of events. They are kept: to find one by its labels costs more than to count.
pub(crate) struct Counters([[Counter; OUTCOMES.len()]; KINDS.len()]);

const KINDS: [&str; 4] = ["start", "stop", "update", "unknown"];

const OUTCOMES: [&str; 5] = ["accepted", "replayed", "refused", "turned_away", "failed"];

impl Counters {
    pub(crate) fn new() -> Self {
        let counter = |event, outcome| {
            let name = "sampler_events_total";
            counter!(name, "event" => event, "outcome" => outcome)
        };
        Self(KINDS.map(|event| OUTCOMES.map(|outcome| counter(event, outcome))))
    }

    /// Counts an event by its answer: whether it was kept before, or the problem. `kind` is `None` if the event does
    /// not say its kind.
    pub(crate) fn count(&self, kind: Option<EventType>, outcome: &Result<Kept, Problem>) {
        let event = kind.map_or("unknown", EventType::name);
        let outcome = match outcome {
            Ok(kept) if kept.is_replayed => "replayed",
            Ok(_) => "accepted",
            Err(problem) if [OVERLOADED.slug, THROTTLED.slug].contains(&problem.kind().slug) => {
                "turned_away"
            }
            Err(problem) if problem.status().is_server_error() => "failed",
            Err(_) => "refused",
        };
        let event = KINDS.iter().position(|it| *it == event);
        let outcome = OUTCOMES.iter().position(|it| *it == outcome);
        if let (Some(event), Some(outcome)) = (event, outcome) {
            self.0[event][outcome].increment(1);
        }
    }
}
