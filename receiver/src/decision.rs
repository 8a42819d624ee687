//! Keeps one event, however it arrived: checks its slack and the rate of starts, then asks the store. What
//! else the rule says ([`sampler_domain::intake`](sampler_domain::IntakeRules)), MongoDB decides by the
//! query and the unique indexes of a command. Only after a conflict the rule itself gives the reason.

use sampler_domain::{
    EventId, Field, IntakeRules, Measures, NotEnded, Percent, Refusal, Slack, Span, SpanId,
    StartDecision, StartEvent, StartPlace, StopDecision, StopEvent, Target, Timestamp, UpdateEvent,
};
use sampler_service::problem::{FieldError, Pointer, Problem};
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
    fn rules(&self) -> IntakeRules {
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
    fn open_span(
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
        let earlier = self.find_spans(&target, Some(by)).await?.into_iter().next();
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

    fn new_span(&self, event: StartEvent, grant: &Grant, now: Timestamp) -> Span {
        let due_at = self.policy.open_due_at(&event.target, event.timestamp);
        let id = SpanId::new(now, self.parts.random.u64());
        let mut span = Span::open(id, event, due_at);
        span.start_client = grant.client().cloned();
        span
    }

    /// Ends the open span of a stop.
    async fn stop(
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
        let found = self.find_spans(target, by).await?;
        let earlier = found.into_iter().next().ok_or(otherwise)?;
        self.require_same(differences(&earlier))?;
        Ok(earlier.id)
    }

    /// The spans of a target that meet a condition; none where there is no condition, because the event has no id.
    async fn find_spans(&self, target: &Target, by: Option<SpansBy>) -> Result<Vec<Span>, Problem> {
        let Some(by) = by else {
            return Ok(Vec::new());
        };
        let found = self.parts.events.find_spans(target, &by).await;
        found.map_err(|failure| self.failed(Task::KeepEvent, &failure))
    }

    /// Keeps both halves of an update, or says why not.
    ///
    /// An update is a stop and a start, each kept as if it came alone. Both are checked before the first is
    /// kept. The stop comes first: two spans of one target cannot be open together, and while the start is
    /// missing, too little is billed, not too much. A repeat of the update finds the half that is kept.
    async fn update(
        &self,
        event: UpdateEvent,
        grant: &Grant,
        now: Timestamp,
        arrival: Arrival,
    ) -> Result<Kept, Problem> {
        let (stop, start, rules) = (event.stop(), event.start(), self.rules());
        let seen = self.look(&stop, &start).await?;
        let by_id = seen.stopped.as_ref();
        let stopping = rules.admit_stop(&stop, by_id, seen.open.as_ref(), now);
        let has_stop = match stopping.map_err(refused)? {
            StopDecision::Repeated(_) => true,
            StopDecision::End(_) => false,
        };
        let starting = rules.admit_start(&start, seen.started.as_ref(), seen.others, now);
        let started = match starting {
            Ok(StartDecision::Repeated(span)) => Some(span.id.clone()),
            Ok(StartDecision::Open) => None,
            Err(refusal) if has_stop => {
                return Err(of_halved(refused(refusal)));
            }
            Err(refusal) => return Err(refused(refusal)),
        };
        let was_stopped = has_stop || self.stop(stop, grant, arrival).await?.is_replayed;
        if started.is_some() {
            return Ok(Kept {
                is_replayed: was_stopped,
                started,
            });
        }
        let span = self.new_span(start, grant, now);
        let opened = self.open_span(span, now, arrival).await;
        let opened = opened.map_err(of_halved)?;
        Ok(Kept {
            is_replayed: was_stopped && opened.is_replayed,
            ..opened
        })
    }

    /// Reads what may be in the way first, and the halves that are kept after that: a half that another
    /// request with the same update keeps in between is in nobody's way.
    async fn look(&self, stop: &StopEvent, start: &StartEvent) -> Result<Seen, Problem> {
        let by = SpansBy::NotEndedBy(stop.timestamp);
        let previous = self.find_spans(&stop.target, Some(by.clone())).await?;
        let others = self.find_spans(&start.target, Some(by)).await?;
        let started = self
            .find_spans(&start.target, SpansBy::start(start))
            .await?;
        let by_id = stop.id.clone().map(SpansBy::StoppedBy);
        let stopped = self.find_spans(&stop.target, by_id).await?;
        let (started, stopped) = (started.into_iter().next(), stopped.into_iter().next());
        let is = |one: Option<&Span>, other: &Span| one.is_some_and(|it| it.id == other.id);
        // The update does not end the span that it has started itself.
        let mut open = previous.into_iter().filter(|span| span.end.is_none());
        let open = open.find(|span| !is(started.as_ref(), span));
        let ended = stopped.as_ref().or(open.as_ref());
        let others = others.iter().filter(|span| !is(ended, span));
        let others = NotEnded::by(start.timestamp, others.map(|span| span.end));
        Ok(Seen {
            open,
            others,
            stopped,
            started,
        })
    }
}

/// What is kept for the targets of an update.
struct Seen {
    /// The open span of the previous target.
    open: Option<Span>,
    /// The spans of the new target that are in the way of the start.
    others: NotEnded,
    /// The span that was stopped under the id.
    stopped: Option<Span>,
    /// The span that was started under the id.
    started: Option<Span>,
}

/// The problem of an event that is refused for what it says.
fn refused(refusal: Refusal) -> Problem {
    let (kind, detail, wrong) = match refusal {
        Refusal::IdTaken(fields) => {
            let detail = "An event with this id was kept before, and differs in the fields named. \
                          This one was not kept.";
            let errors = fields.iter().map(|field| {
                let pointer = Pointer::root().field(field.name());
                FieldError::new(pointer, "The value differs from the event that was kept.")
            });
            return Problem::new(&problems::ID_TAKEN, detail).errors(errors);
        }
        Refusal::AlreadyOpen => {
            let detail =
                "The target has an open span: it was started before, and not stopped since.";
            return Problem::new(&problems::OPEN_SPAN, detail);
        }
        Refusal::NotOpen => {
            let detail = "The target has no open span: it was not started, or stopped since.";
            return Problem::new(&problems::NO_OPEN_SPAN, detail);
        }
        Refusal::Overlaps { until } => (
            &problems::OVERLAPPING_START,
            "The target's previous span ends later than this one starts. Nothing was kept.",
            format!("The time must not be before {until}, the end of the previous span."),
        ),
        Refusal::BeforeStart { start } => (
            &problems::STOP_BEFORE_START,
            "The stop is before the start of the target's open span. Nothing was kept.",
            format!("The time must not be before {start}, the start of the span."),
        ),
        Refusal::OutsideSlack { slack, now } => {
            let (from, to) = (now.plus(-slack.past), now.plus(slack.future));
            (
                &problems::OUTSIDE_SLACK,
                "The timestamp is too far from now. Nothing was kept.",
                format!("The time must be between {from} and {to}."),
            )
        }
    };
    let wrong = FieldError::new(Pointer::root().field("timestamp"), wrong);
    Problem::new(kind, detail).errors([wrong])
}

/// The problem of an update whose stop is kept, and whose start is not known to be. The repeat of the update
/// keeps the start, once nothing is in its way.
fn of_halved(problem: Problem) -> Problem {
    let detail = "The previous span is stopped by this update, and the new one is not known to be started. \
                  Once nothing is in the way of its start, the same request completes the update.";
    problem.with_detail(detail).member("stopped", true)
}
