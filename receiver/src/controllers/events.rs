//! Start and stop events (sections 6.1 and 6.2 of the paper).

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::header::LOCATION;
use axum::http::{HeaderName, HeaderValue, Request, StatusCode};
use axum::response::{IntoResponse, Response};
use sampler_domain::{EventId, Field, Span, SpanId, StartEvent, StopEvent, Target, Timestamp};
use sampler_service::problem::{FieldError, Pointer, Problem};
use sampler_service::security::Grant;
use sampler_store::{NewSpan, NewStop, StartOutcome, StopOutcome};

use super::{Admitted, answer, spans};
use crate::admission::RequestKind;
use crate::{Receiver, event, problems};

/// Says that an event was kept before, and nothing was done this time.
const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");

/// How an event was accepted.
struct Accepted {
    /// Whether that was before.
    is_replayed: bool,
    /// The span that it started.
    started: Option<SpanId>,
}

impl Accepted {
    /// Just now.
    const NEW: Self = Self {
        is_replayed: false,
        started: None,
    };

    /// Before.
    const REPLAYED: Self = Self {
        is_replayed: true,
        started: None,
    };

    /// The same for a start.
    fn started(self, span: SpanId) -> Self {
        let started = Some(span);
        Self { started, ..self }
    }
}

impl IntoResponse for Accepted {
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

/// `POST /v1/events/start`.
pub async fn start(
    State(receiver): State<Arc<Receiver>>,
    grant: Grant,
    request: Request<Body>,
) -> Response {
    let outcome = receiver.start(&grant, request).await;
    receiver
        .metrics
        .note("start", &outcome, |it| it.is_replayed);
    answer(&receiver, "start", &grant, outcome)
}

/// `POST /v1/events/stop`.
pub async fn stop(
    State(receiver): State<Arc<Receiver>>,
    grant: Grant,
    request: Request<Body>,
) -> Response {
    let outcome = receiver.stop(&grant, request).await;
    receiver.metrics.note("stop", &outcome, |it| it.is_replayed);
    answer(&receiver, "stop", &grant, outcome)
}

impl Receiver {
    async fn start(&self, grant: &Grant, request: Request<Body>) -> Result<Accepted, Problem> {
        grant.require_write()?;
        let _counted = self.acquire_in_flight(RequestKind::Start)?;
        let admitted = self
            .admit(RequestKind::Start, grant, request, event::start, |event| {
                self.range(&event.target)
            })
            .await?;
        let Admitted { event, _permit } = admitted;
        self.require_prepared()?;
        let now = self.parts.clock.now();
        if !self.options.slack.admits(event.timestamp, now) {
            return self.start_outside_slack(&event, now).await;
        }
        let mut span = Span::open(SpanId::new(now, self.parts.random.u64()), event);
        span.start_client = grant.client().cloned();
        let due_at = self.options.policy.open_due_at(&span.target, span.start);
        let id = span.id.clone();
        // A lenient repeat differs from the event that was kept. `Location` needs the span of that event, so it is read by its id.
        let lenient = self.options.events.lenient_repeats;
        let lenient = lenient.then(|| (span.target.clone(), span.start_id.clone()));
        let new = NewSpan {
            span,
            due_at,
            now,
            may_overlap: self.options.events.allow_overlap,
        };
        match self
            .parts
            .events
            .start(new)
            .await
            .map_err(|failure| self.store_problem(&failure))?
        {
            StartOutcome::Opened => Ok(Accepted::NEW.started(id)),
            StartOutcome::Repeated { span } => Ok(Accepted::REPLAYED.started(span)),
            StartOutcome::IdTaken(fields) => {
                let accepted = self.id_taken(&fields)?;
                let earlier = match lenient {
                    Some((target, Some(id))) => self.find_by_start_id(&target, &id).await?,
                    _ => None,
                };
                let started = earlier.map(|span| span.id);
                Ok(Accepted {
                    started,
                    ..accepted
                })
            }
            StartOutcome::IdTakenElsewhere => Err(id_taken_elsewhere()),
            StartOutcome::AlreadyOpen => Err(already_open()),
            StartOutcome::Overlaps { until } => Err(overlaps(until)),
        }
    }

    /// A start outside the slack is taken only where it is the repeat of one that was kept.
    async fn start_outside_slack(
        &self,
        event: &StartEvent,
        now: Timestamp,
    ) -> Result<Accepted, Problem> {
        let earlier = match &event.id {
            Some(id) => self.find_by_start_id(&event.target, id).await?,
            None => None,
        };
        let Some(earlier) = earlier else {
            return Err(self.outside_slack(now));
        };
        let differences = event.differences(&earlier);
        let accepted = if differences.is_empty() {
            Accepted::REPLAYED
        } else {
            self.id_taken(&differences)?
        };
        Ok(accepted.started(earlier.id))
    }

    /// The span of the target that was started by the event with this id.
    async fn find_by_start_id(
        &self,
        target: &Target,
        id: &EventId,
    ) -> Result<Option<Span>, Problem> {
        let found = self.parts.events.find_by_start_id(target, id).await;
        found.map_err(|failure| self.store_problem(&failure))
    }

    async fn stop(&self, grant: &Grant, request: Request<Body>) -> Result<Accepted, Problem> {
        grant.require_write()?;
        let _counted = self.acquire_in_flight(RequestKind::Stop)?;
        let admitted = self
            .admit(RequestKind::Stop, grant, request, event::stop, |event| {
                self.range(&event.target)
            })
            .await?;
        let Admitted { event, _permit } = admitted;
        self.require_prepared()?;
        let now = self.parts.clock.now();
        if !self.options.slack.admits(event.timestamp, now) {
            return self.stop_outside_slack(&event, now).await;
        }
        let new = NewStop {
            event,
            client: grant.client().cloned(),
            correlation_id: self.parts.random.uuid_v4(),
        };
        match self
            .parts
            .events
            .stop(new)
            .await
            .map_err(|failure| self.store_problem(&failure))?
        {
            StopOutcome::Ended => Ok(Accepted::NEW),
            StopOutcome::Repeated => Ok(Accepted::REPLAYED),
            StopOutcome::IdTaken(fields) => self.id_taken(&fields),
            StopOutcome::IdTakenElsewhere => Err(id_taken_elsewhere()),
            StopOutcome::NotOpen => Err(not_open()),
            StopOutcome::BeforeStart { start } => Err(before_start(start)),
        }
    }

    /// A stop outside the slack is taken only where it is the repeat of one that was kept.
    async fn stop_outside_slack(
        &self,
        event: &StopEvent,
        now: Timestamp,
    ) -> Result<Accepted, Problem> {
        let earlier = match &event.id {
            Some(id) => self
                .parts
                .events
                .find_by_stop_id(&event.target, id)
                .await
                .map_err(|failure| self.store_problem(&failure))?,
            None => None,
        };
        match earlier.map(|span| event.differences(&span)) {
            None => Err(self.outside_slack(now)),
            Some(fields) if fields.is_empty() => Ok(Accepted::REPLAYED),
            Some(fields) => self.id_taken(&fields),
        }
    }

    /// An id was seen before in an event that is not the same. An original answers 201 where only
    /// timestamp or measures differ, and keeps the first; a setting does the same here.
    fn id_taken(&self, fields: &[Field]) -> Result<Accepted, Problem> {
        let same_target = fields
            .iter()
            .all(|field| !matches!(field, Field::Target(_)));
        if self.options.events.lenient_repeats && same_target {
            return Ok(Accepted::REPLAYED);
        }
        let detail = "An event with this id was kept before, and differs in the fields named. \
                      This one was not kept.";
        let differs = |field: &Field| {
            let pointer = Pointer::root().field(field.name());
            FieldError::new(pointer, "It differs from the event that was kept.")
        };
        Err(Problem::new(&problems::ID_TAKEN, detail).errors(fields.iter().map(differs)))
    }

    fn outside_slack(&self, now: Timestamp) -> Problem {
        let slack = self.options.slack;
        let (from, to) = (now.plus(-slack.past), now.plus(slack.future));
        let detail = "The timestamp is too far from now. Nothing was kept.";
        let error = format!("It must lie between {from} and {to}.");
        Problem::new(&problems::OUTSIDE_SLACK, detail)
            .errors([FieldError::new(Pointer::root().field("timestamp"), error)])
    }
}

/// As long as an original Sampler writes to the same database, its index lets in each id once. The
/// other target is somebody else's, so nothing of it is told.
fn id_taken_elsewhere() -> Problem {
    let detail = "An event with this id was kept before. An original Sampler writes to the same \
                  database, and as long as it does, each id can be used once. This event was not \
                  kept: send it with another id.";
    Problem::new(&problems::ID_TAKEN, detail)
}

fn already_open() -> Problem {
    let detail = "The target has an open span: it was started before, and not stopped since.";
    Problem::new(&problems::OPEN_SPAN, detail)
}

fn not_open() -> Problem {
    let detail = "The target has no open span: it was not started, or stopped since.";
    Problem::new(&problems::NO_OPEN_SPAN, detail)
}

fn overlaps(until: Timestamp) -> Problem {
    let detail = "The target's previous span ends later than this one starts. Nothing was kept.";
    let error = format!("It must not lie before {until}, the end of the previous span.");
    Problem::new(&problems::OVERLAPPING_START, detail)
        .errors([FieldError::new(Pointer::root().field("timestamp"), error)])
}

fn before_start(start: Timestamp) -> Problem {
    let detail = "The stop lies before the start of the target's open span. Nothing was kept.";
    let error = format!("It must not lie before {start}, the start of the span.");
    Problem::new(&problems::STOP_BEFORE_START, detail)
        .errors([FieldError::new(Pointer::root().field("timestamp"), error)])
}
