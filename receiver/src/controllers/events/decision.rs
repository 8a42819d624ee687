//! The decision about one event: the only place that makes it, however the event arrived.

use sampler_domain::{EventId, Field, Span, SpanId, StartEvent, StopEvent, Target, Timestamp};
use sampler_service::problem::Problem;
use sampler_service::security::Grant;
use sampler_store::{Arrival, NewSpan, NewStop, StartOutcome, StopOutcome, StoreError};
use uuid::Uuid;

use super::refusals;
use crate::Receiver;
use crate::event::Event;

/// The result of an event that was accepted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::controllers) struct Accepted {
    /// Whether it was kept by an earlier request, so that nothing was done this time.
    pub(in crate::controllers) is_replayed: bool,
    /// The span that it started.
    pub(in crate::controllers) started: Option<SpanId>,
    /// The span that it ended, where that is known without another read.
    pub(in crate::controllers) ended: Option<SpanId>,
}

impl Accepted {
    fn new() -> Self {
        Self::default()
    }

    fn replayed() -> Self {
        Self {
            is_replayed: true,
            ..Self::default()
        }
    }

    fn started(mut self, span: Option<SpanId>) -> Self {
        self.started = span;
        self
    }

    fn ended(mut self, span: Option<SpanId>) -> Self {
        self.ended = span;
        self
    }
}

impl Receiver {
    /// Keeps an event whose turn it is, or says why not.
    pub(in crate::controllers) async fn keep(
        &self,
        event: Event,
        grant: &Grant,
        arrival: Arrival,
    ) -> Result<Accepted, Problem> {
        self.require_prepared()?;
        let now = self.parts.clock.now();
        let is_outside_slack = !self.options.slack.admits(event.timestamp(), now);
        match event {
            Event::Start(event) if is_outside_slack => self.start_outside_slack(&event, now).await,
            Event::Stop(event) if is_outside_slack => self.stop_outside_slack(&event, now).await,
            Event::Start(event) => {
                if let Some(throttled) = self.throttled(&event, now) {
                    return self.start_throttled(&event, throttled).await;
                }
                let span = self.new_span(event, grant, now);
                self.start(span, now, arrival).await
            }
            Event::Stop(event) => self.stop(event, None, grant, arrival).await,
            // Few events are updates, and theirs is the largest future by far.
            Event::Update(event) => Box::pin(self.update(event, grant, now, arrival)).await,
        }
    }

    /// Opens the span of a start. What it returns is small, so that very many can be under way.
    pub(super) fn start(
        &self,
        span: Span,
        now: Timestamp,
        arrival: Arrival,
    ) -> impl Future<Output = Result<Accepted, Problem>> + Send {
        let id = span.id.clone();
        // A lenient repeat differs from the event that was kept. `Location` needs the span of that
        // event, so it is read by its id.
        let lenient = self.options.events.lenient_repeats;
        let lenient = lenient.then(|| Box::new((span.target.clone(), span.start_id.clone())));
        let opening = self.open(span, now, arrival);
        async move {
            match opening
                .await
                .map_err(|failure| self.store_problem(&failure))?
            {
                StartOutcome::Opened => Ok(Accepted::new().started(Some(id))),
                StartOutcome::Repeated { span } => Ok(Accepted::replayed().started(Some(span))),
                StartOutcome::IdTaken(fields) => {
                    let accepted = self.id_taken(&fields)?;
                    let earlier = match lenient.map(|kept| *kept) {
                        Some((target, Some(id))) => self.find_by_start_id(&target, &id).await?,
                        _ => None,
                    };
                    Ok(accepted.started(earlier.map(|span| span.id)))
                }
                StartOutcome::IdTakenElsewhere => Err(refusals::id_taken_elsewhere()),
                StartOutcome::AlreadyOpen => Err(refusals::already_open()),
                StartOutcome::Overlaps { until } => Err(refusals::overlaps(until)),
            }
        }
    }

    fn open(
        &self,
        span: Span,
        now: Timestamp,
        arrival: Arrival,
    ) -> impl Future<Output = Result<StartOutcome, StoreError>> + Send {
        let due_at = self.options.policy.open_due_at(&span.target, span.start);
        self.parts.events.start(NewSpan {
            span,
            due_at,
            now,
            may_overlap: self.options.events.allow_overlap,
            arrival,
        })
    }

    /// The span that a start opens.
    pub(super) fn new_span(&self, event: StartEvent, grant: &Grant, now: Timestamp) -> Span {
        let mut span = Span::open(SpanId::new(now, self.parts.random.u64()), event);
        span.start_client = grant.client().cloned();
        span
    }

    /// Ends the open span of a stop, which may be a half of an update with these targets.
    pub(super) async fn stop(
        &self,
        event: StopEvent,
        update: Option<Uuid>,
        grant: &Grant,
        arrival: Arrival,
    ) -> Result<Accepted, Problem> {
        let new = NewStop {
            event,
            client: grant.client().cloned(),
            update,
            correlation_id: self.parts.random.uuid_v4(),
            arrival,
        };
        let outcome = self.parts.events.stop(new).await;
        match outcome.map_err(|failure| self.store_problem(&failure))? {
            StopOutcome::Ended => Ok(Accepted::new()),
            StopOutcome::Repeated => Ok(Accepted::replayed()),
            StopOutcome::IdTaken(fields) => self.id_taken(&fields),
            StopOutcome::IdTakenElsewhere => Err(refusals::id_taken_elsewhere()),
            StopOutcome::NotOpen => Err(refusals::not_open()),
            StopOutcome::BeforeStart { start } => Err(refusals::before_start(start)),
        }
    }

    /// A start outside the slack is accepted only as the repeat of one that was kept.
    async fn start_outside_slack(
        &self,
        event: &StartEvent,
        now: Timestamp,
    ) -> Result<Accepted, Problem> {
        let earlier = match &event.id {
            Some(id) => self.find_by_start_id(&event.target, id).await?,
            None => None,
        };
        let differences = |earlier: &Span| event.differences(earlier);
        let (accepted, span) = self.repeat_outside_slack(earlier, differences, now)?;
        Ok(accepted.started(Some(span)))
    }

    /// A throttled start is accepted only as the repeat of one that was kept.
    async fn start_throttled(
        &self,
        event: &StartEvent,
        throttled: Problem,
    ) -> Result<Accepted, Problem> {
        let earlier = match &event.id {
            Some(id) => self.find_by_start_id(&event.target, id).await?,
            None => None,
        };
        let differences = |earlier: &Span| event.differences(earlier);
        let (accepted, span) = self.repeat_or(earlier, differences, || throttled)?;
        Ok(accepted.started(Some(span)))
    }

    /// A stop outside the slack is accepted only as the repeat of one that was kept.
    async fn stop_outside_slack(
        &self,
        event: &StopEvent,
        now: Timestamp,
    ) -> Result<Accepted, Problem> {
        let earlier = match &event.id {
            Some(id) => self.find_by_stop_id(&event.target, id).await?,
            None => None,
        };
        let differences = |earlier: &Span| event.differences(earlier);
        let (accepted, span) = self.repeat_outside_slack(earlier, differences, now)?;
        Ok(accepted.ended(Some(span)))
    }

    /// The decision about an event outside the slack, by the span of an earlier event with its id.
    fn repeat_outside_slack(
        &self,
        earlier: Option<Span>,
        differences: impl FnOnce(&Span) -> Vec<Field>,
        now: Timestamp,
    ) -> Result<(Accepted, SpanId), Problem> {
        let outside = || refusals::outside_slack(self.options.slack, now);
        self.repeat_or(earlier, differences, outside)
    }

    /// The decision about an event that is accepted only as a repeat, by the span of an earlier
    /// event with its id.
    fn repeat_or(
        &self,
        earlier: Option<Span>,
        differences: impl FnOnce(&Span) -> Vec<Field>,
        otherwise: impl FnOnce() -> Problem,
    ) -> Result<(Accepted, SpanId), Problem> {
        let earlier = earlier.ok_or_else(otherwise)?;
        let differences = differences(&earlier);
        let accepted = if differences.is_empty() {
            Accepted::replayed()
        } else {
            self.id_taken(&differences)?
        };
        Ok((accepted, earlier.id))
    }

    /// An id was seen before in an event that is not the same. An original answers 201 where only
    /// timestamp or measures differ, and keeps the first; a setting does the same here.
    pub(super) fn id_taken(&self, fields: &[Field]) -> Result<Accepted, Problem> {
        let same_target = fields
            .iter()
            .all(|field| !matches!(field, Field::Target(_)));
        if self.options.events.lenient_repeats && same_target {
            return Ok(Accepted::replayed());
        }
        Err(refusals::id_taken(fields))
    }

    /// The span of the target that was started by the event with this id.
    pub(super) async fn find_by_start_id(
        &self,
        target: &Target,
        id: &EventId,
    ) -> Result<Option<Span>, Problem> {
        let found = self.parts.events.find_by_start_id(target, id).await;
        found.map_err(|failure| self.store_problem(&failure))
    }

    /// The span of the target that was stopped by the event with this id.
    pub(super) async fn find_by_stop_id(
        &self,
        target: &Target,
        id: &EventId,
    ) -> Result<Option<Span>, Problem> {
        let found = self.parts.events.find_by_stop_id(target, id).await;
        found.map_err(|failure| self.store_problem(&failure))
    }
}
