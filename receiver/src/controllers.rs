//! What each request comes to, and what it is answered.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderName, HeaderValue, Request, StatusCode};
use axum::response::{IntoResponse, Response};
use sampler_abacus::Mapped;
use sampler_domain::{ClientId, Field, Span, SpanId, StartEvent, StopEvent, Target, Timestamp};
use sampler_service::problem::{FieldError, Pointer, Problem};
use sampler_service::security::Grant;
use sampler_store::{NewSpan, NewStop, Started, Stopped, StoreError};
use tracing::{error, info, warn};

use crate::admission::{self, InFlightPermit, Kind, Lane, ServingPermit, TurnedAway};
use crate::json::{self, Json};
use crate::problems;
use crate::{Receiver, body, event};

/// Says that an event was kept before, and nothing was done this time.
const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");

/// Seconds after which it makes sense to come again when the database is away, at the least. With
/// [`SPREAD_MIN`] it becomes 5 to 9: an election takes some ten seconds, so the second repeat at the
/// latest finds a primary.
const RETRY_AFTER_OUTAGE: u64 = 5;

/// Seconds after which it makes sense to come again when the receiver is overloaded.
const RETRY_AFTER_OVERLOAD: u64 = 1;

/// Seconds after which it makes sense to come again when provisioning does not say.
const RETRY_AFTER_BUSY: u64 = 5;

/// Seconds over which clients that were turned away at one moment come back, at the least.
const SPREAD_MIN: u64 = 4;

/// How an event was accepted.
enum Accepted {
    /// Just now.
    New,
    /// Before.
    Replayed,
}

impl IntoResponse for Accepted {
    fn into_response(self) -> Response {
        match self {
            Self::New => StatusCode::CREATED.into_response(),
            Self::Replayed => {
                let replayed = [(REPLAYED, HeaderValue::from_static("true"))];
                (StatusCode::CREATED, replayed).into_response()
            }
        }
    }
}

/// `POST /v1/events/start`.
pub async fn start(
    State(receiver): State<Arc<Receiver>>,
    grant: Grant,
    request: Request<Body>,
) -> Response {
    let outcome = receiver.start(&grant, request).await;
    answer(&receiver, "start", &grant, outcome)
}

/// `POST /v1/events/stop`.
pub async fn stop(
    State(receiver): State<Arc<Receiver>>,
    grant: Grant,
    request: Request<Body>,
) -> Response {
    let outcome = receiver.stop(&grant, request).await;
    answer(&receiver, "stop", &grant, outcome)
}

/// `POST /v1/mappings`.
pub async fn map(
    State(receiver): State<Arc<Receiver>>,
    grant: Grant,
    request: Request<Body>,
) -> Response {
    let outcome = receiver.map(&grant, request).await;
    answer(&receiver, "mapping", &grant, outcome)
}

/// Answers, with a line in the log for what was refused, unless there were too many of them.
fn answer(
    receiver: &Receiver,
    request: &'static str,
    grant: &Grant,
    outcome: Result<impl IntoResponse, Problem>,
) -> Response {
    match outcome {
        Ok(kept) => kept.into_response(),
        Err(problem) => {
            let (kind, status) = (problem.kind().slug, problem.status().as_u16());
            if let Some(suppressed) = receiver.refusals.admit(grant.client(), kind) {
                info!(
                    request,
                    client = grant.client().map(ClientId::as_str),
                    problem = kind,
                    status,
                    detail = problem.detail(),
                    suppressed,
                    "refused"
                );
            }
            problem.into_response()
        }
    }
}

/// An event that was read, and the permission to go on with it.
struct Admitted<T> {
    event: T,
    _permit: ServingPermit,
}

impl Receiver {
    /// Reads the body as what `read` makes of it, and waits for the client's turn.
    ///
    /// Whether the token is for the body's resource is checked before all else in it: a client that
    /// may not write to the resource is told nothing more. A body that takes much memory once it is
    /// parsed waits before that; any other is parsed and checked first, so that a permit is held by
    /// valid events alone.
    async fn admit<T>(
        &self,
        kind: Kind,
        grant: &Grant,
        request: Request<Body>,
        read: impl FnOnce(Json<'_>) -> Result<T, Problem>,
        lane: impl FnOnce(&T) -> Lane,
    ) -> Result<Admitted<T>, Problem> {
        let with_token = grant.client().map(|id| self.admission.client(id.as_str()));
        let unknown = self.admission.client_of_resource("");
        let sender = with_token.unwrap_or(unknown);
        let body = body::read(request, self, sender).await?;
        let weight = admission::weight(&body.bytes);
        let large = self.admission.large(sender, weight).await;
        let large = large.map_err(|reason| self.turned_away(reason))?;
        let json = json::parse(&body.bytes)?;
        let resource = json.get("resource_id").and_then(Json::as_str);
        grant.require(resource)?;
        let of_resource = resource.map(|id| self.admission.client_of_resource(id));
        let client = with_token.or(of_resource).unwrap_or(unknown);
        let event = read(json)?;
        drop(body);
        let (admission, lane) = (&self.admission, lane(&event));
        let permit = match large {
            Some(parsed) => {
                let serving = admission.serve_large(parsed, kind, lane, client, weight);
                serving.await
            }
            None => admission.serve(kind, lane, client, weight).await,
        };
        Ok(Admitted {
            event,
            _permit: permit.map_err(|reason| self.turned_away(reason))?,
        })
    }

    /// The range of the collection that the target is in.
    fn lane(&self, target: &Target) -> Lane {
        Lane(self.store.range_of(target))
    }

    /// Counts the request against `MAX_INFLIGHT`, where that is set.
    fn count(&self, kind: Kind) -> Result<Option<InFlightPermit>, Problem> {
        let counted = self.admission.count(kind);
        counted.map_err(|reason| self.turned_away(reason))
    }

    async fn start(&self, grant: &Grant, request: Request<Body>) -> Result<Accepted, Problem> {
        let _counted = self.count(Kind::Start)?;
        let admitted = self
            .admit(Kind::Start, grant, request, event::start, |event| {
                self.lane(&event.target)
            })
            .await?;
        let Admitted { event, _permit } = admitted;
        self.require_prepared()?;
        let now = self.clock.now();
        if !self.options.slack.admits(event.timestamp, now) {
            return self.old_start(&event, now).await;
        }
        let mut span = Span::started(SpanId::new(now, self.random.u64()), event);
        span.start_client = grant.client().cloned();
        let due_at = self.options.policy.open_due_at(&span.target, span.start);
        let new = NewSpan {
            span,
            due_at,
            now,
            may_overlap: self.options.events.allow_overlap,
        };
        match self
            .store
            .start(new)
            .await
            .map_err(|failure| self.no_answer(&failure))?
        {
            Started::Opened => Ok(Accepted::New),
            Started::Repeated => Ok(Accepted::Replayed),
            Started::IdTaken(fields) => self.id_taken(&fields),
            Started::IdTakenElsewhere => Err(id_taken_elsewhere()),
            Started::AlreadyOpen => Err(already_open()),
            Started::Overlaps { until } => Err(overlaps(until)),
        }
    }

    /// A start outside the slack is taken only where it is the repeat of one that was kept.
    async fn old_start(&self, event: &StartEvent, now: Timestamp) -> Result<Accepted, Problem> {
        let earlier = match &event.id {
            Some(id) => self
                .store
                .started_by(&event.target, id)
                .await
                .map_err(|failure| self.no_answer(&failure))?,
            None => None,
        };
        match earlier.map(|span| event.differences(&span)) {
            None => Err(self.outside_slack(now)),
            Some(fields) if fields.is_empty() => Ok(Accepted::Replayed),
            Some(fields) => self.id_taken(&fields),
        }
    }

    async fn stop(&self, grant: &Grant, request: Request<Body>) -> Result<Accepted, Problem> {
        let _counted = self.count(Kind::Stop)?;
        let admitted = self
            .admit(Kind::Stop, grant, request, event::stop, |event| {
                self.lane(&event.target)
            })
            .await?;
        let Admitted { event, _permit } = admitted;
        self.require_prepared()?;
        let now = self.clock.now();
        if !self.options.slack.admits(event.timestamp, now) {
            return self.old_stop(&event, now).await;
        }
        let new = NewStop {
            event,
            client: grant.client().cloned(),
            correlation_id: self.random.uuid_v4(),
        };
        match self
            .store
            .stop(new)
            .await
            .map_err(|failure| self.no_answer(&failure))?
        {
            Stopped::Ended => Ok(Accepted::New),
            Stopped::Repeated => Ok(Accepted::Replayed),
            Stopped::IdTaken(fields) => self.id_taken(&fields),
            Stopped::IdTakenElsewhere => Err(id_taken_elsewhere()),
            Stopped::NotOpen => Err(not_open()),
            Stopped::BeforeStart { start } => Err(before_start(start)),
        }
    }

    /// A stop outside the slack is taken only where it is the repeat of one that was kept.
    async fn old_stop(&self, event: &StopEvent, now: Timestamp) -> Result<Accepted, Problem> {
        let earlier = match &event.id {
            Some(id) => self
                .store
                .stopped_by(&event.target, id)
                .await
                .map_err(|failure| self.no_answer(&failure))?,
            None => None,
        };
        match earlier.map(|span| event.differences(&span)) {
            None => Err(self.outside_slack(now)),
            Some(fields) if fields.is_empty() => Ok(Accepted::Replayed),
            Some(fields) => self.id_taken(&fields),
        }
    }

    async fn map(&self, grant: &Grant, request: Request<Body>) -> Result<StatusCode, Problem> {
        if self.options.mappings_full_scope {
            grant.require_everything()?;
        }
        let _counted = self.count(Kind::Mapping)?;
        let admitted = self
            .admit(Kind::Mapping, grant, request, event::mapping, |_| {
                Lane::default()
            })
            .await?;
        let Admitted { event, _permit } = admitted;
        let Some(provisioning) = &self.provisioning else {
            let detail = "This receiver was not told where the provisioning service is.";
            return Err(Problem::new(&problems::PROVISIONING_FAILED, detail));
        };
        match provisioning.map(&event, self.clock.now()).await {
            Mapped::Made => Ok(StatusCode::CREATED),
            Mapped::Existed => {
                let detail = "Metering, rating and pricing of this plan are mapped already. \
                              A mapping is never changed.";
                Err(Problem::new(&problems::MAPPING_EXISTS, detail))
            }
            Mapped::Busy { after } => {
                let seconds = after.map_or(RETRY_AFTER_BUSY, whole_seconds);
                let detail = "The provisioning service takes no mappings for a while.";
                Err(Problem::new(&problems::PROVISIONING_BUSY, detail).retry_after(seconds))
            }
            Mapped::Failed { error } => {
                warn!(code = "mapping.failed", error, "a mapping failed");
                let detail = "The provisioning service failed. Repeating the request is safe.";
                Err(Problem::new(&problems::PROVISIONING_FAILED, detail))
            }
        }
    }

    /// No answer of the store is no promise: the provider tries again, and its id tells repeats.
    fn no_answer(&self, failure: &StoreError) -> Problem {
        let causes = chain(failure);
        match failure {
            StoreError::Unavailable(_) => {
                warn!(
                    code = "database.unavailable",
                    error = causes,
                    "the database is away"
                );
                let detail = "The database cannot be reached. Nothing was kept.";
                Problem::new(&problems::DATABASE_UNAVAILABLE, detail)
                    .retry_after(self.spread(RETRY_AFTER_OUTAGE))
            }
            StoreError::Overloaded => {
                warn!(
                    code = "database.overloaded",
                    error = causes,
                    "more events came than the database takes"
                );
                let detail = "As many events as this instance takes wait for the database. \
                              Nothing was kept.";
                Problem::new(&problems::OVERLOADED, detail)
                    .retry_after(self.spread(RETRY_AFTER_OVERLOAD))
            }
            StoreError::Unknown(_) => {
                warn!(
                    code = "database.no_answer",
                    error = causes,
                    "the database gave no final answer"
                );
                let detail = "The database gave no final answer. The event may or may not have \
                              been kept: repeat it with the same id.";
                let seconds = whole_seconds(self.options.unknown_for).max(RETRY_AFTER_OUTAGE);
                Problem::new(&problems::DATABASE_UNAVAILABLE, detail)
                    .retry_after(self.spread(seconds))
            }
            StoreError::Refused(_) => {
                error!(
                    code = "database.refused",
                    error = causes,
                    "the database refused"
                );
                Problem::internal()
            }
        }
    }

    /// Why a request was not served: there are too many, or its client has its share.
    pub(crate) fn turned_away(&self, reason: TurnedAway) -> Problem {
        let (kind, detail) = match reason {
            TurnedAway::Limit => (
                &problems::OVERLOADED,
                "As many requests as MAX_INFLIGHT allows are in flight.",
            ),
            TurnedAway::Queue => (
                &problems::OVERLOADED,
                "Too many requests of this client wait for their turn.",
            ),
            TurnedAway::Memory => (
                &problems::THROTTLED,
                "Bodies of this client take all the memory that it may have.",
            ),
        };
        let detail = format!("{detail} Nothing was kept.");
        Problem::new(kind, detail).retry_after(self.spread(RETRY_AFTER_OVERLOAD))
    }

    /// At least so many seconds, and up to as many more: clients that were turned away together must
    /// not come back together.
    fn spread(&self, seconds: u64) -> u64 {
        seconds + self.random.u64() % seconds.max(SPREAD_MIN)
    }

    /// What is answered rests on the unique indexes; without them nothing may be kept.
    fn require_prepared(&self) -> Result<(), Problem> {
        if self.is_prepared() {
            return Ok(());
        }
        let detail = "The database is being prepared. Nothing was kept.";
        Err(Problem::new(&problems::DATABASE_UNAVAILABLE, detail)
            .retry_after(self.spread(RETRY_AFTER_OUTAGE)))
    }

    /// An id was seen before in an event that is not the same. An original answers 201 where only
    /// timestamp or measures differ, and keeps the first; a setting does the same here.
    fn id_taken(&self, fields: &[Field]) -> Result<Accepted, Problem> {
        let same_target = fields
            .iter()
            .all(|field| !matches!(field, Field::Target(_)));
        if self.options.events.lenient_repeats && same_target {
            return Ok(Accepted::Replayed);
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

/// Rounded up, so that nobody is sent back too early, and at least one.
fn whole_seconds(wait: Duration) -> u64 {
    let begun = u64::from(wait.subsec_nanos() > 0);
    wait.as_secs().saturating_add(begun).max(1)
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

fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
