//! The spans that decide about events, read without keeping any event: as they are in the store, or as
//! they would be after other events.

use std::collections::BTreeMap;

use sampler_domain::{
    EventId, Half, NotEnded, Refusal, Span, SpanId, StartDecision, StartEvent, StopDecision,
    StopEvent, Target, Timestamp, UpdateEvent, UpdateIntake, UpdateRead, UpdateStep,
};
use sampler_service::problem::Problem;
use sampler_service::security::Grant;
use sampler_store::{IdKind, ReadConcern, SpansBy};

use super::refusals;
use crate::Receiver;
use crate::event::Event;

/// The most bytes that the spans of one dry run may take. Each can take half a megabyte, however small its event.
const EXPECTED_BYTES: usize = 8 << 20;

/// Reads the spans that decide about events.
pub(in crate::controllers) struct View<'r> {
    receiver: &'r Receiver,
    /// Linearizable where the reads decide about keeping an event.
    concern: ReadConcern,
    /// The spans that events of a dry run would change, as they would be.
    expected: BTreeMap<SpanId, Span>,
    /// About how many bytes they take.
    expected_bytes: usize,
}

/// The effect that an event would have.
pub(in crate::controllers) struct Foreseen {
    pub(in crate::controllers) is_replayed: bool,
    /// The spans that it is about, as it leaves them.
    pub(in crate::controllers) spans: Vec<Span>,
}

impl Foreseen {
    fn replayed(span: &Span) -> Self {
        Self {
            is_replayed: true,
            spans: vec![span.clone()],
        }
    }
}

impl<'r> View<'r> {
    /// The spans by which it is decided what is kept.
    pub(super) fn to_decide(receiver: &'r Receiver) -> Self {
        Self {
            receiver,
            concern: ReadConcern::Linearizable,
            expected: BTreeMap::new(),
            expected_bytes: 0,
        }
    }

    /// The spans for a dry run: read without linearizable reads.
    pub(in crate::controllers) fn to_read(receiver: &'r Receiver) -> Self {
        Self {
            concern: ReadConcern::Majority,
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
            for span in &foreseen.spans {
                let before = self.expected.insert(span.id.clone(), span.clone());
                self.expected_bytes += span.measures.weight();
                self.expected_bytes -= before.map_or(0, |before| before.measures.weight());
            }
        }
        Ok(foreseen)
    }

    /// Whether the spans that the events would change take more memory than one dry run may.
    pub(in crate::controllers) fn is_too_large(&self) -> bool {
        self.expected_bytes > EXPECTED_BYTES
    }

    async fn foresee_start(
        &self,
        event: &StartEvent,
        grant: &Grant,
        now: Timestamp,
    ) -> Result<Foreseen, Problem> {
        let by_id = self
            .find_by_id(&event.target, SpansBy::start(event))
            .await?;
        let others = match by_id {
            Some(_) => Vec::new(),
            None => self.find_not_ended(&event.target, event.timestamp).await?,
        };
        let others = NotEnded::by(event.timestamp, others.iter().map(|span| span.end));
        let rules = self.receiver.rules();
        let decision = rules.admit_start(event, by_id.as_ref(), others, now);
        match decision.map_err(refusals::problem)? {
            StartDecision::Repeated(earlier) => return Ok(Foreseen::replayed(earlier)),
            StartDecision::Open => {}
        }
        self.require_free_id(IdKind::Start, &event.target, event.id.as_ref())
            .await?;
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
        let by_id = event.id.clone().map(SpansBy::StoppedBy);
        let by_id = self.find_by_id(&event.target, by_id).await?;
        let open = match by_id {
            Some(_) => None,
            None => self.find_open(&event.target, event.timestamp).await?,
        };
        let rules = self.receiver.rules();
        let decision = rules.admit_stop(event, by_id.as_ref(), open.as_ref(), now);
        let open = match decision.map_err(refusals::problem)? {
            StopDecision::Repeated(earlier) => return Ok(Foreseen::replayed(earlier)),
            StopDecision::End(open) => open.clone(),
        };
        self.require_free_id(IdKind::Stop, &event.target, event.id.as_ref())
            .await?;
        Ok(Foreseen {
            is_replayed: false,
            spans: vec![open.ended(event, grant.client().cloned(), None)],
        })
    }

    async fn foresee_update(
        &self,
        event: &UpdateEvent,
        grant: &Grant,
        now: Timestamp,
    ) -> Result<Foreseen, Problem> {
        let mut intake = UpdateIntake::new(event.clone(), self.receiver.rules(), now);
        loop {
            match intake.next() {
                UpdateStep::Read(_) | UpdateStep::IsIdFree(_) => self.look(&mut intake).await?,
                UpdateStep::Keep(_) | UpdateStep::Kept { .. } => break,
                UpdateStep::Refused { refusal, has_stop } => {
                    return Err(refusals::of_update(refusal, has_stop, event));
                }
            }
        }
        let mut previous = intake.previous().cloned();
        if !intake.has_stop() {
            let (client, update) = (grant.client().cloned(), event.targets_digest());
            previous = previous.map(|open| open.ended(&event.stop(), client, Some(update)));
        }
        let started = match intake.started() {
            Some(started) => started.clone(),
            None => self.receiver.updated_span(event, grant, now),
        };
        Ok(Foreseen {
            is_replayed: intake.has_stop() && intake.has_start(),
            spans: previous.into_iter().chain([started]).collect(),
        })
    }

    /// Reads what the decision about an update needs next.
    ///
    /// # Errors
    /// 503 if that cannot be read.
    pub(super) async fn look(&self, intake: &mut UpdateIntake) -> Result<(), Problem> {
        let UpdateEvent {
            id,
            timestamp,
            target,
            previous,
            ..
        } = intake.event();
        match intake.next() {
            UpdateStep::Read(read) => {
                let spans = match read {
                    UpdateRead::OpenOfPrevious => self.find_not_ended(previous, *timestamp).await?,
                    UpdateRead::NotEndedOfTarget => self.find_not_ended(target, *timestamp).await?,
                    UpdateRead::StartOfUpdate => {
                        let by_id = SpansBy::start(&intake.event().start());
                        Vec::from_iter(self.find_by_id(target, by_id).await?)
                    }
                    UpdateRead::StopOfUpdate => {
                        let by_id = SpansBy::StoppedBy(id.clone());
                        Vec::from_iter(self.find_by_id(previous, Some(by_id)).await?)
                    }
                };
                intake.on_spans(spans);
            }
            UpdateStep::IsIdFree(half) => {
                let is_free = match half {
                    Half::Stop => self.is_id_free(IdKind::Stop, previous, id).await?,
                    Half::Start => self.is_id_free(IdKind::Start, target, id).await?,
                };
                intake.on_id(is_free);
            }
            UpdateStep::Keep(_) | UpdateStep::Kept { .. } | UpdateStep::Refused { .. } => {}
        }
        Ok(())
    }

    async fn require_free_id(
        &self,
        kind: IdKind,
        target: &Target,
        id: Option<&EventId>,
    ) -> Result<(), Problem> {
        match id {
            Some(id) if !self.is_id_free(kind, target, id).await? => {
                Err(refusals::problem(Refusal::IdTakenElsewhere))
            }
            _ => Ok(()),
        }
    }

    async fn is_id_free(
        &self,
        kind: IdKind,
        target: &Target,
        id: &EventId,
    ) -> Result<bool, Problem> {
        let events = &self.receiver.parts.events;
        let is_taken = events
            .is_id_taken_elsewhere(kind, target, id)
            .await
            .map_err(|failure| self.receiver.store_problem(&failure))?;
        Ok(!is_taken)
    }

    async fn find_open(&self, target: &Target, by: Timestamp) -> Result<Option<Span>, Problem> {
        let spans = self.find_not_ended(target, by).await?;
        Ok(spans.into_iter().find(|span| span.end.is_none()))
    }

    async fn find_not_ended(&self, target: &Target, by: Timestamp) -> Result<Vec<Span>, Problem> {
        let mut spans = self.find_spans(target, SpansBy::NotEndedBy(by)).await?;
        spans.retain(|span| !self.expected.contains_key(&span.id));
        let expected = self.expected.values().filter(|span| span.target == *target);
        spans.extend(expected.cloned());
        spans.retain(|span| span.end.is_none_or(|end| end > by));
        Ok(spans)
    }

    /// The span of the target that was started or stopped by the event with this id, if it has one.
    async fn find_by_id(
        &self,
        target: &Target,
        by_id: Option<SpansBy>,
    ) -> Result<Option<Span>, Problem> {
        let Some(by) = by_id else {
            return Ok(None);
        };
        let expected = self.expected.values().find(|span| {
            let is_it = match &by {
                SpansBy::StartedBy(id, _) => span.start_id.as_ref() == Some(id),
                SpansBy::StoppedBy(id) => span.end_id.as_ref() == Some(id),
                SpansBy::NotEndedBy(_) => false,
            };
            is_it && span.target == *target
        });
        if let Some(expected) = expected {
            return Ok(Some(expected.clone()));
        }
        Ok(self.find_spans(target, by).await?.into_iter().next())
    }

    async fn find_spans(&self, target: &Target, by: SpansBy) -> Result<Vec<Span>, Problem> {
        self.receiver.find_spans(target, &by, self.concern).await
    }
}
