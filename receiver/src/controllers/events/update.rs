//! Updates: the previous span stops and the new one starts, or neither does.
//!
//! Each half is one atomic change of one span, as for a stop and a start. Before the first of them,
//! the receiver reads everything that would refuse either ([`View`]). The stop comes first: two
//! spans of one target cannot be open together; and if the second half is missing, too little is
//! billed until it is repeated, not too much. Both have the id of the update, so its repeat finds
//! the half that was kept and makes the other one.

use sampler_domain::{Span, Timestamp, UpdateEvent};
use sampler_service::problem::{Problem, StatusCode};
use sampler_service::security::Grant;
use sampler_store::Arrival;

use super::decision::Accepted;
use super::view::{Kept, View};
use crate::{Receiver, problems};

impl Receiver {
    /// Keeps both halves of an update, or says why not.
    pub(super) async fn update(
        &self,
        event: UpdateEvent,
        grant: &Grant,
        now: Timestamp,
        arrival: Arrival,
    ) -> Result<Accepted, Problem> {
        let view = View::to_decide(self);
        let kept = view.find_for_update(&event, now).await?.kept;
        let was_started = kept.started.is_some();
        let replayed = |span: Span| (true, Some(span.id));
        let (had_stop, ended) = if let Some(span) = kept.ended {
            replayed(span)
        } else if kept.is_ended_removed {
            (true, None)
        } else {
            let targets = Some(event.targets_digest());
            let accepted = self.stop(event.stop(), targets, grant, arrival).await?;
            if accepted.is_replayed {
                // By whoever was faster: another update under this id, perhaps.
                view.find_kept(&event).await?;
            }
            (accepted.is_replayed, accepted.ended)
        };
        let (had_start, started) = if let Some(span) = kept.started {
            replayed(span)
        } else {
            let span = self.updated_span(&event, grant, now);
            let accepted = self.start(span, now, arrival).await;
            let accepted = accepted.map_err(incomplete)?;
            (accepted.is_replayed, accepted.started)
        };
        // Where the same update is under way twice, one of them makes the start.
        let is_replayed = if was_started { had_stop } else { had_start };
        Ok(Accepted {
            is_replayed,
            started,
            ended,
        })
    }

    /// The span that an update opens.
    pub(super) fn updated_span(&self, event: &UpdateEvent, grant: &Grant, now: Timestamp) -> Span {
        let mut span = self.new_span(event.start(), grant, now);
        span.start_update = Some(event.targets_digest());
        span
    }
}

impl Kept {
    /// The problem of an update that is refused. It says so if an earlier attempt has kept the stop.
    pub(super) fn refusal(&self, problem: Problem) -> Problem {
        if self.ended.is_some() {
            incomplete(problem)
        } else {
            problem
        }
    }
}

/// The problem of a start whose update has stopped the previous span: "nothing was kept" would be
/// wrong.
fn incomplete(problem: Problem) -> Problem {
    let stopped = "The previous span was stopped by this update.";
    if problem.status() == StatusCode::SERVICE_UNAVAILABLE {
        let detail = format!(
            "{stopped} The new one may or may not have been started: repeat the update with the \
             same id."
        );
        let told = Problem::new(problem.kind(), detail);
        return match problem.seconds_to_wait() {
            Some(seconds) => told.retry_after(seconds),
            None => told,
        };
    }
    if problem.status().is_server_error() {
        return problem;
    }
    let slug = problem.kind().slug;
    let way_out = match slug {
        // What is in the way stays there.
        _ if slug == problems::ID_TAKEN.slug => "Send its start as an event with another id.",
        _ if slug == problems::OUTSIDE_SLACK.slug => {
            "It is too late for a repeat: send a start with another id and a later timestamp."
        }
        _ => "Once that is out of the way, repeat the update with the same id.",
    };
    let detail = format!(
        "{stopped} The new one could not be started, because something came in between ({slug}). \
         {way_out}"
    );
    Problem::new(&problems::UPDATE_INCOMPLETE, detail)
}
