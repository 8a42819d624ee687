//! Updates: the previous span stops and the new one starts at the same time.
//!
//! Each half is one atomic change of one span, as for a stop and a start. [`UpdateIntake`] says what is
//! read, and when which half is kept. The stop comes first: two spans of one target cannot be open
//! together; and if the second half is missing, too little is billed until it is repeated, not too
//! much. Both have the id of the update, so its repeat finds the half that was kept and makes the
//! other one.

use sampler_domain::{
    EventId, Half, HalfKept, Span, Target, Timestamp, UpdateEvent, UpdateIntake, UpdateRead,
    UpdateStep,
};
use sampler_service::problem::{Problem, StatusCode};
use sampler_service::security::Grant;
use sampler_store::{Arrival, IdKind, ReadConcern, SpansBy};

use super::decision::{Kept, NotKept};
use super::refusals;
use crate::Receiver;

impl Receiver {
    /// Keeps both halves of an update, or says why not.
    pub(super) async fn update(
        &self,
        event: UpdateEvent,
        grant: &Grant,
        now: Timestamp,
        arrival: Arrival,
    ) -> Result<Kept, Problem> {
        let mut intake = UpdateIntake::new(event, self.rules(), now);
        let mut opened = None;
        loop {
            match intake.next() {
                UpdateStep::Read(_) | UpdateStep::IsIdFree(_) => {
                    let looked = self.look(&mut intake).await;
                    looked.map_err(|problem| unfinished(&intake, problem))?;
                }
                UpdateStep::Keep(half) => {
                    let event = intake.event();
                    let kept = match half {
                        Half::Stop => {
                            let targets = Some(event.targets_digest());
                            self.stop(event.stop(), targets, grant, arrival).await
                        }
                        Half::Start => {
                            let span = self.updated_span(event, grant, now);
                            self.open_span(span, now, arrival).await
                        }
                    };
                    intake.on_kept(match kept {
                        Ok(accepted) if accepted.is_replayed => Ok(HalfKept::Repeated),
                        Ok(accepted) => {
                            opened = accepted.started;
                            Ok(HalfKept::Made)
                        }
                        Err(NotKept::Refused(refusal)) => Err(refusal),
                        Err(NotKept::Failed(problem)) => return Err(unfinished(&intake, problem)),
                    });
                }
                UpdateStep::Kept { is_replayed } => {
                    return Ok(Kept {
                        is_replayed,
                        started: opened.or(intake.started().map(|span| span.id.clone())),
                    });
                }
                UpdateStep::Refused { refusal, has_stop } => {
                    return Err(refusals::of_update(refusal, has_stop, intake.event()));
                }
            }
        }
    }

    /// Reads what the decision about an update needs next.
    ///
    /// # Errors
    /// 503 if that cannot be read.
    async fn look(&self, intake: &mut UpdateIntake) -> Result<(), Problem> {
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

    async fn is_id_free(
        &self,
        kind: IdKind,
        target: &Target,
        id: &EventId,
    ) -> Result<bool, Problem> {
        let events = &self.parts.events;
        let is_taken = events
            .is_id_taken_elsewhere(kind, target, id)
            .await
            .map_err(|failure| self.store_problem(&failure))?;
        Ok(!is_taken)
    }

    async fn find_not_ended(&self, target: &Target, by: Timestamp) -> Result<Vec<Span>, Problem> {
        let mut spans = self
            .find_spans(target, &SpansBy::NotEndedBy(by), ReadConcern::Linearizable)
            .await?;
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
        let found = self.find_spans(target, &by, ReadConcern::Linearizable);
        Ok(found.await?.into_iter().next())
    }

    fn updated_span(&self, event: &UpdateEvent, grant: &Grant, now: Timestamp) -> Span {
        let mut span = self.new_span(event.start(), grant, now);
        span.start_update = Some(event.targets_digest());
        span
    }
}

/// The problem of an update after an error of the store. Once its stop is kept, "nothing was kept"
/// would be wrong.
fn unfinished(intake: &UpdateIntake, problem: Problem) -> Problem {
    if !intake.has_stop() || problem.status() != StatusCode::SERVICE_UNAVAILABLE {
        return problem;
    }
    let detail = format!(
        "{} The new one may or may not have been started: repeat the update with the same id.",
        refusals::STOPPED
    );
    let told = Problem::new(problem.kind(), detail);
    match problem.seconds_to_wait() {
        Some(seconds) => told.retry_after(seconds),
        None => told,
    }
}
