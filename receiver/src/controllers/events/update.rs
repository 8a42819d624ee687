//! Updates: the previous span stops and the new one starts at the same time.
//!
//! Each half is one atomic change of one span, as for a stop and a start. [`UpdateIntake`] says what is
//! read, and when which half is kept. The stop comes first: two spans of one target cannot be open
//! together; and if the second half is missing, too little is billed until it is repeated, not too
//! much. Both have the id of the update, so its repeat finds the half that was kept and makes the
//! other one.

use sampler_domain::{Half, HalfKept, Span, Timestamp, UpdateEvent, UpdateIntake, UpdateStep};
use sampler_service::problem::{Problem, StatusCode};
use sampler_service::security::Grant;
use sampler_store::Arrival;

use super::decision::{EventOutcome, NotKept};
use super::refusals;
use super::view::View;
use crate::Receiver;

impl Receiver {
    /// Keeps both halves of an update, or says why not.
    pub(super) async fn update(
        &self,
        event: UpdateEvent,
        grant: &Grant,
        now: Timestamp,
        arrival: Arrival,
    ) -> Result<EventOutcome, Problem> {
        let view = View::to_decide(self);
        let mut intake = UpdateIntake::new(event, self.rules(), now);
        let mut opened = None;
        loop {
            match intake.next() {
                UpdateStep::Read(_) | UpdateStep::IsIdFree(_) => {
                    let looked = view.look(&mut intake).await;
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
                    return Ok(EventOutcome {
                        is_replayed,
                        started: opened.or(intake.started().map(|span| span.id.clone())),
                        ended: intake.previous().map(|span| span.id.clone()),
                    });
                }
                UpdateStep::Refused { refusal, has_stop } => {
                    return Err(refusals::of_update(refusal, has_stop, intake.event()));
                }
            }
        }
    }

    pub(super) fn updated_span(&self, event: &UpdateEvent, grant: &Grant, now: Timestamp) -> Span {
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
