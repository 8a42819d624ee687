//! The spans that events meet, read without keeping any event: as they are in the store, or as they
//! would be once other events had taken effect.

use std::collections::BTreeMap;

use sampler_domain::{
    EventId, Field, Span, SpanId, StartEvent, StopEvent, Target, Timestamp, UpdateEvent,
};
use sampler_service::problem::Problem;
use sampler_service::security::Grant;
use sampler_store::{IdKind, Lookup};

use super::refusals;
use crate::Receiver;
use crate::event::Event;

/// Reads the spans that events meet.
pub(in crate::controllers) struct View<'r> {
    receiver: &'r Receiver,
    /// Whether the reads decide about keeping an event, so that they must be linearizable.
    decides: bool,
    /// The spans that events of a dry run would change, as they would be.
    expected: BTreeMap<SpanId, Span>,
}

/// The effect that an event would have.
pub(in crate::controllers) struct Foreseen {
    /// Whether it was kept before.
    pub(in crate::controllers) is_replayed: bool,
    /// The spans that it is about, as it leaves them.
    pub(in crate::controllers) spans: Vec<Span>,
}

/// The halves of an update that were kept before.
pub(super) struct Kept {
    /// The span that its stop ended.
    pub(super) ended: Option<Span>,
    /// Whether that span is gone: the start is of this very update, whose stop was kept before it.
    pub(super) is_ended_removed: bool,
    /// The span that its start opened.
    pub(super) started: Option<Span>,
}

/// The state that an update finds.
pub(super) struct Found {
    pub(super) kept: Kept,
    /// The span that its stop would end.
    pub(super) to_end: Option<Span>,
}

impl Kept {
    fn is_whole(&self) -> bool {
        (self.ended.is_some() || self.is_ended_removed) && self.started.is_some()
    }
}

impl<'r> View<'r> {
    /// The spans by which it is decided what is kept.
    pub(super) fn to_decide(receiver: &'r Receiver) -> Self {
        Self {
            receiver,
            decides: true,
            expected: BTreeMap::new(),
        }
    }

    /// The spans for a dry run: read without linearizable reads.
    pub(in crate::controllers) fn to_read(receiver: &'r Receiver) -> Self {
        Self {
            decides: false,
            ..Self::to_decide(receiver)
        }
    }

    /// The outcome that an event would have now. Events that are foreseen later find its effects.
    ///
    /// # Errors
    /// The problem with which the event would be refused; 503 if that cannot be found out.
    pub(in crate::controllers) async fn foresee(
        &mut self,
        event: &Event,
        grant: &Grant,
        now: Timestamp,
    ) -> Result<Foreseen, Problem> {
        let foreseen = match event {
            Event::Start(event) => self.foresee_start(event, grant, now).await?,
            Event::Stop(event) => self.foresee_stop(event, grant, now).await?,
            Event::Update(event) => self.foresee_update(event, grant, now).await?,
        };
        if !foreseen.is_replayed {
            let spans = foreseen.spans.iter().cloned();
            self.expected
                .extend(spans.map(|span| (span.id.clone(), span)));
        }
        Ok(foreseen)
    }

    async fn foresee_start(
        &self,
        event: &StartEvent,
        grant: &Grant,
        now: Timestamp,
    ) -> Result<Foreseen, Problem> {
        let earlier = match &event.id {
            Some(id) => self.find_by_start_id(&event.target, id).await?,
            None => None,
        };
        if let Some(earlier) = earlier {
            return self.replayed(&event.differences(&earlier), earlier);
        }
        self.require_slack(event.timestamp, now)?;
        let others = self.find_not_ended(&event.target, event.timestamp).await?;
        self.refuse_start(event.timestamp, others.iter())?;
        if let Some(id) = &event.id {
            self.require_free_id(IdKind::Start, &event.target, id)
                .await?;
        }
        Ok(Foreseen {
            is_replayed: false,
            spans: vec![self.receiver.new_span(event.clone(), grant, now)],
        })
    }

    async fn foresee_stop(
        &self,
        event: &StopEvent,
        grant: &Grant,
        now: Timestamp,
    ) -> Result<Foreseen, Problem> {
        let earlier = match &event.id {
            Some(id) => self.find_by_stop_id(&event.target, id).await?,
            None => None,
        };
        if let Some(earlier) = earlier {
            return self.replayed(&event.differences(&earlier), earlier);
        }
        self.require_slack(event.timestamp, now)?;
        let open = self.find_open(&event.target, event.timestamp).await?;
        let open = require_open(open, event.timestamp)?;
        if let Some(id) = &event.id {
            self.require_free_id(IdKind::Stop, &event.target, id)
                .await?;
        }
        Ok(Foreseen {
            is_replayed: false,
            spans: vec![ended(open, event, grant)],
        })
    }

    async fn foresee_update(
        &self,
        event: &UpdateEvent,
        grant: &Grant,
        now: Timestamp,
    ) -> Result<Foreseen, Problem> {
        let Found { kept, to_end } = self.find_for_update(event, now).await?;
        let is_replayed = kept.is_whole();
        let stopped = to_end.map(|open| Span {
            stop_update: Some(event.targets_digest()),
            ..ended(open, &event.stop(), grant)
        });
        let started = || self.receiver.updated_span(event, grant, now);
        let started = kept.started.unwrap_or_else(started);
        let spans = kept.ended.or(stopped).into_iter().chain([started]);
        Ok(Foreseen {
            is_replayed,
            spans: spans.collect(),
        })
    }

    /// The state that an update finds: the halves that are kept, and the span that its stop would
    /// end.
    ///
    /// Obstacles are read first, the kept halves after them: another request with the same update
    /// may be under way, and make a half between two reads. That is no reason to refuse.
    ///
    /// # Errors
    /// The problem that would refuse a half that is not kept yet.
    pub(super) async fn find_for_update(
        &self,
        event: &UpdateEvent,
        now: Timestamp,
    ) -> Result<Found, Problem> {
        let open = self.find_open(&event.previous, event.timestamp).await?;
        let others = self.find_not_ended(&event.target, event.timestamp).await?;
        let kept = self.find_kept(event).await?;
        // The span that this update has started is not the one that it ends.
        let is_started = |open: &Span| kept.started.as_ref().is_some_and(|it| it.id == open.id);
        let open = open.filter(|open| !is_started(open));
        if kept.is_whole() {
            return Ok(Found { kept, to_end: None });
        }
        let to_end = match self.refuse_update(event, &kept, open, &others, now) {
            Ok(to_end) => self.require_free_ids(event, &kept).await.map(|()| to_end),
            Err(problem) => Err(problem),
        };
        match to_end {
            Ok(to_end) => Ok(Found { kept, to_end }),
            Err(problem) => Err(kept.refusal(problem)),
        }
    }

    /// Refuses the id of an update that another target has, where that would refuse a half that is not
    /// kept yet.
    async fn require_free_ids(&self, event: &UpdateEvent, kept: &Kept) -> Result<(), Problem> {
        if kept.ended.is_none() {
            self.require_free_id(IdKind::Stop, &event.previous, &event.id)
                .await?;
        }
        if kept.started.is_none() {
            self.require_free_id(IdKind::Start, &event.target, &event.id)
                .await?;
        }
        Ok(())
    }

    async fn require_free_id(
        &self,
        kind: IdKind,
        target: &Target,
        id: &EventId,
    ) -> Result<(), Problem> {
        let events = &self.receiver.parts.events;
        let is_taken = events.is_id_taken_elsewhere(kind, target, id).await;
        if is_taken.map_err(|failure| self.receiver.store_problem(&failure))? {
            return Err(refusals::id_taken_elsewhere());
        }
        Ok(())
    }

    /// The halves of an update that are there: events under its id that say the same.
    ///
    /// # Errors
    /// 409 where there are other events under its id, or halves of another update.
    pub(super) async fn find_kept(&self, event: &UpdateEvent) -> Result<Kept, Problem> {
        let started = self.find_by_start_id(&event.target, &event.id).await?;
        let ended = self.find_by_stop_id(&event.previous, &event.id).await?;
        let of_start = started.as_ref().and_then(|span| span.start_update);
        let of_stop = ended.as_ref().and_then(|span| span.stop_update);
        let targets = event.targets_digest();
        let mut of_both = [of_start, of_stop].into_iter().flatten();
        if of_both.any(|halves| halves != targets) {
            return Err(refusals::id_of_another_update());
        }
        let kept = Kept {
            is_ended_removed: ended.is_none() && of_start.is_some(),
            ended,
            started,
        };
        if let Some(span) = &kept.ended {
            self.require_same(&event.stop().differences(span))?;
        }
        if let Some(span) = &kept.started {
            let same = self.require_same(&event.start().differences(span));
            same.map_err(|problem| kept.refusal(problem))?;
        }
        Ok(kept)
    }

    /// Refuses an update for what would refuse a half that is not kept yet. Returns the span that
    /// its stop ends: `open`, which this update has not started.
    fn refuse_update(
        &self,
        event: &UpdateEvent,
        kept: &Kept,
        open: Option<Span>,
        others: &[Span],
        now: Timestamp,
    ) -> Result<Option<Span>, Problem> {
        self.require_slack(event.timestamp, now)?;
        let is = |span: &Span, other: &Option<Span>| {
            other.as_ref().is_some_and(|other| other.id == span.id)
        };
        let mut to_end = None;
        if kept.ended.is_none() {
            to_end = Some(require_open(open, event.timestamp)?);
        }
        if kept.started.is_none() {
            let others = others.iter();
            let others = others.filter(|span| !is(span, &to_end) && !is(span, &kept.ended));
            self.refuse_start(event.timestamp, others)?;
        }
        Ok(to_end)
    }

    fn replayed(&self, differences: &[Field], earlier: Span) -> Result<Foreseen, Problem> {
        self.require_same(differences)?;
        Ok(Foreseen {
            is_replayed: true,
            spans: vec![earlier],
        })
    }

    fn require_same(&self, differences: &[Field]) -> Result<(), Problem> {
        if !differences.is_empty() {
            self.receiver.id_taken(differences)?;
        }
        Ok(())
    }

    fn require_slack(&self, timestamp: Timestamp, now: Timestamp) -> Result<(), Problem> {
        let slack = self.receiver.options.slack;
        if slack.admits(timestamp, now) {
            return Ok(());
        }
        Err(refusals::outside_slack(slack, now))
    }

    /// Refuses a start for the spans of its target that have not ended by then.
    fn refuse_start<'s>(
        &self,
        timestamp: Timestamp,
        mut others: impl Iterator<Item = &'s Span> + Clone,
    ) -> Result<(), Problem> {
        if others.clone().any(|span| span.end.is_none()) {
            return Err(refusals::already_open());
        }
        let may_overlap = self.receiver.options.events.allow_overlap;
        let until = others.find_map(|span| span.end.filter(|end| *end > timestamp));
        match until.filter(|_| !may_overlap) {
            Some(until) => Err(refusals::overlaps(until)),
            None => Ok(()),
        }
    }

    async fn find_open(&self, target: &Target, by: Timestamp) -> Result<Option<Span>, Problem> {
        let spans = self.find_not_ended(target, by).await?;
        Ok(spans.into_iter().find(|span| span.end.is_none()))
    }

    async fn find_not_ended(&self, target: &Target, by: Timestamp) -> Result<Vec<Span>, Problem> {
        let mut spans = if self.decides {
            let found = self.receiver.parts.events.find_not_ended(target, by).await;
            found.map_err(|failure| self.receiver.store_problem(&failure))?
        } else {
            self.look_up(target, Lookup::NotEndedBy(by)).await?
        };
        spans.retain(|span| !self.expected.contains_key(&span.id));
        let expected = self.expected.values().filter(|span| span.target == *target);
        spans.extend(expected.cloned());
        spans.retain(|span| span.end.is_none_or(|end| end > by));
        Ok(spans)
    }

    async fn find_by_start_id(
        &self,
        target: &Target,
        id: &EventId,
    ) -> Result<Option<Span>, Problem> {
        let is_it = |span: &&Span| span.start_id.as_ref() == Some(id) && span.target == *target;
        match self.expected.values().find(is_it) {
            Some(expected) => Ok(Some(expected.clone())),
            None if self.decides => self.receiver.find_by_start_id(target, id).await,
            None => {
                let found = self.look_up(target, Lookup::StartedBy(id.clone())).await?;
                Ok(found.into_iter().next())
            }
        }
    }

    async fn find_by_stop_id(
        &self,
        target: &Target,
        id: &EventId,
    ) -> Result<Option<Span>, Problem> {
        let is_it = |span: &&Span| span.end_id.as_ref() == Some(id) && span.target == *target;
        match self.expected.values().find(is_it) {
            Some(expected) => Ok(Some(expected.clone())),
            None if self.decides => self.receiver.find_by_stop_id(target, id).await,
            None => {
                let found = self.look_up(target, Lookup::StoppedBy(id.clone())).await?;
                Ok(found.into_iter().next())
            }
        }
    }

    async fn look_up(&self, target: &Target, by: Lookup) -> Result<Vec<Span>, Problem> {
        let found = self.receiver.parts.queries.look_up(target, &by).await;
        found.map_err(|failure| self.receiver.not_read(&failure))
    }
}

/// The open span that a stop at this moment ends.
fn require_open(open: Option<Span>, timestamp: Timestamp) -> Result<Span, Problem> {
    let open = open.ok_or_else(refusals::not_open)?;
    if timestamp < open.start {
        return Err(refusals::before_start(open.start));
    }
    Ok(open)
}

/// The span as the stop leaves it.
fn ended(mut span: Span, event: &StopEvent, grant: &Grant) -> Span {
    span.end = Some(event.timestamp);
    span.end_id.clone_from(&event.id);
    span.stop_client = grant.client().cloned();
    span
}
