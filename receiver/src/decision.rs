//! Keeps one event, however it arrived: checks its slack and the rate of starts, then asks the store. What
//! else the rule says ([`sampler_domain::intake`](sampler_domain::IntakeRules)), MongoDB decides by the
//! query and the unique indexes of a command. Only after a conflict the rule itself gives the reason.

use sampler_domain::{
    EventId, Field, IntakeRules, Measures, Percent, Refusal, Slack, Span, SpanId, StartEvent,
    StartPlace, StopEvent, Target, Timestamp,
};
use sampler_service::problem::{FieldError, Pointer, Problem, ProblemType};
use sampler_service::security::Grant;
use sampler_store::{Arrival, NewSpan, NewStop, SpansBy, StartOutcome, StopOutcome};

use crate::event::Event;
use crate::events::Kept;
use crate::failures::Task;
use crate::{Receiver, problems};

const MINUTE: i64 = 60_000;

/// The longest `Retry-After`, s: rates change, and a client that comes early is refused again.
const RETRY_AFTER_MAX: u64 = 300;

/// Repeats are spread over this many seconds of their minute. The other seconds are for clocks that
/// differ.
const SPREAD: u64 = 45;

impl Receiver {
    /// The rules. However far back the slack reaches, events may be forgotten that are older than the
    /// workers have said.
    pub(crate) fn rules(&self) -> IntakeRules {
        let since = self.steering.events_taken_since();
        let remembered = since.map_or(i64::MAX, |since| self.parts.clock.now().since(since));
        IntakeRules {
            slack: Slack {
                past: self.slack.past.min(remembered),
                ..self.slack
            },
            lenient_repeats: self.settings.events.lenient_repeats,
        }
    }

    /// Keeps an event whose turn it is, or says why not.
    pub(crate) async fn keep(
        &self,
        event: Event,
        grant: &Grant,
        arrival: Arrival,
    ) -> Result<Kept, Problem> {
        self.require_prepared()?;
        let now = self.parts.clock.now();
        self.require_age_known(event.timestamp(), now)?;
        let slack = self.rules().require_slack(event.timestamp(), now);
        let outside_slack = slack.err().map(refused);
        match event {
            Event::Start(event) => {
                if let Some(problem) = outside_slack.or_else(|| self.throttled(&event, now)) {
                    let by = SpansBy::start(&event);
                    let span = self
                        .only_repeated(&event.target, by, |kept| event.differences(kept), problem)
                        .await?;
                    return Ok(Kept::before(Some(span)));
                }
                let span = self.new_span(event, grant, now);
                self.open_span(span, now, arrival).await
            }
            Event::Stop(event) => {
                if let Some(problem) = outside_slack {
                    let by = event.id.clone().map(SpansBy::StoppedBy);
                    self.only_repeated(&event.target, by, |kept| event.differences(kept), problem)
                        .await?;
                    return Ok(Kept::before(None));
                }
                self.stop(event, grant, arrival).await
            }
            // Few events are updates, and theirs is the largest future by far.
            Event::Update(event) => Box::pin(self.update(event, grant, now, arrival)).await,
        }
    }

    /// Opens the span of a start. The future is small, so that very many can run at the same time.
    pub(crate) fn open_span(
        &self,
        span: Span,
        now: Timestamp,
        arrival: Arrival,
    ) -> impl Future<Output = Result<Kept, Problem>> + Send {
        let id = span.id.clone();
        let lenient = self.settings.events.lenient_repeats;
        let key = lenient.then(|| Box::new((span.target.clone(), span.start_id.clone())));
        let opening = self.parts.events.start(NewSpan { span, now, arrival });
        async move {
            match opening
                .await
                .map_err(|failure| self.failed(Task::KeepEvent, &failure))?
            {
                StartOutcome::Opened => Ok(Kept::now(Some(id))),
                StartOutcome::Repeated { span } => Ok(Kept::before(Some(span))),
                StartOutcome::Refused(Refusal::IdTaken(fields)) => {
                    self.require_same(fields)?;
                    let earlier = Box::pin(self.started_by(key)).await?;
                    Ok(Kept::before(earlier))
                }
                StartOutcome::Refused(refusal) => Err(refused(refusal)),
            }
        }
    }

    /// The span of the start that a lenient repeat differs from, for the `Location`.
    async fn started_by(
        &self,
        key: Option<Box<(Target, Option<EventId>)>>,
    ) -> Result<Option<SpanId>, Problem> {
        let Some((target, Some(id))) = key.map(|key| *key) else {
            return Ok(None);
        };
        let by = SpansBy::StartedBy(id, Measures::default());
        let earlier = self.find_spans(&target, &by).await?.into_iter().next();
        Ok(earlier.map(|span| span.id))
    }

    /// The problem of a start that the rate of new starts does not admit now; `None` where it is admitted.
    ///
    /// The id of a start, or without one its target, the minute and the rate decide ([`StartPlace`]). So at a steady
    /// rate above 0 a client that repeats a start each minute gets in, and receivers remember nothing. The caller
    /// lets the repeat of a start pass that was kept.
    fn throttled(&self, event: &StartEvent, now: Timestamp) -> Option<Problem> {
        let rate = self.steering.start_rate_of(&event.target.resource_id);
        if rate == Percent::ALL {
            return None;
        }
        let place = StartPlace::of(event.id.as_ref(), &event.target);
        let admitted_at = place.admitted_at(now, rate);
        if admitted_at == Some(now) {
            return None;
        }
        let detail = "New starts are currently admitted at a lower rate. Nothing was kept: send the \
                      same event again, with the same timestamp.";
        let wait = admitted_at.map_or(MINUTE, |at| at.since(now));
        let seconds = wait.unsigned_abs().div_ceil(1_000);
        let seconds = (seconds + self.parts.random.u64() % SPREAD).clamp(1, RETRY_AFTER_MAX);
        Some(Problem::new(&problems::THROTTLED, detail).retry_after(seconds))
    }

    pub(crate) fn new_span(&self, event: StartEvent, grant: &Grant, now: Timestamp) -> Span {
        let due_at = self.policy.open_due_at(&event.target, event.timestamp);
        let id = SpanId::new(now, self.parts.random.u64());
        let mut span = Span::open(id, event, due_at);
        span.start_client = grant.client().cloned();
        span
    }

    /// Ends the open span of a stop.
    pub(crate) async fn stop(
        &self,
        event: StopEvent,
        grant: &Grant,
        arrival: Arrival,
    ) -> Result<Kept, Problem> {
        let new = NewStop {
            event,
            client: grant.client().cloned(),
            correlation_id: self.parts.random.uuid_v4(),
            arrival,
        };
        let outcome = self.parts.events.stop(new).await;
        match outcome.map_err(|failure| self.failed(Task::KeepEvent, &failure))? {
            StopOutcome::Ended => Ok(Kept::now(None)),
            StopOutcome::Repeated => Ok(Kept::before(None)),
            StopOutcome::Refused(Refusal::IdTaken(fields)) => {
                self.require_same(fields)?;
                Ok(Kept::before(None))
            }
            StopOutcome::Refused(refusal) => Err(refused(refusal)),
        }
    }

    /// Refuses an event that differs in these fields from the one that was kept under its id.
    fn require_same(&self, differences: Vec<Field>) -> Result<(), Problem> {
        let same = self.rules().require_same(differences);
        same.map_err(refused)
    }

    /// The span of the earlier event, where this one is accepted only if it repeats that event.
    async fn only_repeated(
        &self,
        target: &Target,
        by: Option<SpansBy>,
        differences: impl FnOnce(&Span) -> Vec<Field> + Send,
        otherwise: Problem,
    ) -> Result<SpanId, Problem> {
        let found = match by {
            Some(by) => self.find_spans(target, &by).await?,
            None => Vec::new(),
        };
        let earlier = found.into_iter().next().ok_or(otherwise)?;
        self.require_same(differences(&earlier))?;
        Ok(earlier.id)
    }

    pub(crate) async fn find_spans(
        &self,
        target: &Target,
        by: &SpansBy,
    ) -> Result<Vec<Span>, Problem> {
        let found = self.parts.events.find_spans(target, by).await;
        found.map_err(|failure| self.failed(Task::KeepEvent, &failure))
    }
}

/// The problem of an event that is refused for what it says.
pub(crate) fn refused(refusal: Refusal) -> Problem {
    match refusal {
        Refusal::IdTaken(fields) => {
            let detail = "An event with this id was kept before, and differs in the fields named. \
                          This one was not kept.";
            let errors = fields.iter().map(|field| {
                let pointer = Pointer::root().field(field.name());
                FieldError::new(pointer, "It differs from the event that was kept.")
            });
            Problem::new(&problems::ID_TAKEN, detail).errors(errors)
        }
        Refusal::AlreadyOpen => {
            let detail =
                "The target has an open span: it was started before, and not stopped since.";
            Problem::new(&problems::OPEN_SPAN, detail)
        }
        Refusal::NotOpen => {
            let detail = "The target has no open span: it was not started, or stopped since.";
            Problem::new(&problems::NO_OPEN_SPAN, detail)
        }
        Refusal::Overlaps { until } => {
            let detail =
                "The target's previous span ends later than this one starts. Nothing was kept.";
            let error = format!("It must not be before {until}, the end of the previous span.");
            of_timestamp(&problems::OVERLAPPING_START, detail, error)
        }
        Refusal::BeforeStart { start } => {
            let detail =
                "The stop is before the start of the target's open span. Nothing was kept.";
            let error = format!("It must not be before {start}, the start of the span.");
            of_timestamp(&problems::STOP_BEFORE_START, detail, error)
        }
        Refusal::OutsideSlack { slack, now } => {
            let (from, to) = (now.plus(-slack.past), now.plus(slack.future));
            let detail = "The timestamp is too far from now. Nothing was kept.";
            let error = format!("It must be between {from} and {to}.");
            of_timestamp(&problems::OUTSIDE_SLACK, detail, error)
        }
    }
}

fn of_timestamp(kind: &'static ProblemType, detail: &str, error: String) -> Problem {
    let error = FieldError::new(Pointer::root().field("timestamp"), error);
    Problem::new(kind, detail).errors([error])
}

/// The problem of an update whose stop is kept, and whose start is not known to be. The repeat of the update
/// keeps the start, once nothing is in its way.
pub(crate) fn of_halved(problem: Problem) -> Problem {
    let detail = "The previous span is stopped by this update, and the new one is not known to be started. \
                  Once nothing is in the way of its start, the same request completes the update.";
    problem.with_detail(detail).member("stopped", true)
}
