//! Updates: the previous span stops and the new one starts, or neither does.
//!
//! Each half is one atomic change of one span, as for a stop and a start. Before the first of them,
//! all is looked for that would refuse either. The stop comes first: two spans of one target cannot be
//! open together; and if the second half is missing, too little is billed until it is repeated, not
//! too much. Both have the id of the update, so its repeat finds the half that was kept and makes the
//! other one.

use sampler_domain::{Field, Span, SpanId, StopEvent, Timestamp, UpdateEvent};
use sampler_service::problem::{Problem, StatusCode};
use sampler_service::security::Grant;

use super::decision::Accepted;
use super::refusals;
use crate::{Receiver, problems};

/// The halves of an update that were kept before.
struct Kept {
    /// The span that its stop ended.
    ended: Option<SpanId>,
    /// The span that its start opened.
    started: Option<SpanId>,
}

impl Receiver {
    /// Keeps both halves of an update, or says why not.
    pub(super) async fn update(
        &self,
        event: UpdateEvent,
        grant: &Grant,
        now: Timestamp,
    ) -> Result<Accepted, Problem> {
        let kept = self.find_kept(&event).await?;
        let is_replayed = kept.ended.is_some() && kept.started.is_some();
        if !is_replayed {
            let refused = self.find_refusal(&event, &kept, now).await;
            // A stop of an earlier attempt is there to stay, so the answer must not deny it.
            refused.map_err(|problem| unless(kept.ended.is_none(), problem))?;
        }
        let ended = match kept.ended {
            None => self.stop(event.stop(), grant).await?.ended,
            ended => ended,
        };
        let started = match kept.started {
            None => {
                let accepted = self.start(event.start(), grant, now).await;
                accepted.map_err(incomplete)?.started
            }
            started => started,
        };
        Ok(Accepted {
            is_replayed,
            started,
            ended,
        })
    }

    /// The halves that are there: events under the id that say the same.
    async fn find_kept(&self, event: &UpdateEvent) -> Result<Kept, Problem> {
        let ended = self.find_by_stop_id(&event.previous, &event.id).await?;
        let started = self.find_by_start_id(&event.target, &event.id).await?;
        let same = |span: &Span, differences: Vec<Field>| {
            if !differences.is_empty() {
                self.id_taken(&differences)?;
            }
            Ok(span.id.clone())
        };
        let ended = ended.map(|span| same(&span, event.stop().differences(&span)));
        let started = started.map(|span| same(&span, event.start().differences(&span)));
        Ok(Kept {
            ended: ended.transpose()?,
            started: started.transpose()?,
        })
    }

    /// What would refuse a half that is not kept yet.
    async fn find_refusal(
        &self,
        event: &UpdateEvent,
        kept: &Kept,
        now: Timestamp,
    ) -> Result<(), Problem> {
        if !self.options.slack.admits(event.timestamp, now) {
            return Err(refusals::outside_slack(self.options.slack, now));
        }
        if kept.ended.is_none() {
            let spans = self.find_not_ended(event, true).await?;
            let open = spans.iter().find(|span| span.end.is_none());
            // What this update has started is not what was used before it.
            let open = open.filter(|span| Some(&span.id) != kept.started.as_ref());
            refuse_stop(&event.stop(), open)?;
        }
        if kept.started.is_none() {
            let will_end = kept.ended.is_none() && event.previous == event.target;
            let spans = self.find_not_ended(event, false).await?;
            let mut others = spans
                .iter()
                .filter(|span| !(will_end && span.end.is_none()));
            let may_overlap = self.options.events.allow_overlap;
            others.try_for_each(|span| refuse_start(span, event.timestamp, may_overlap))?;
        }
        Ok(())
    }

    /// The spans of the previous or the new target that have not ended by the update.
    async fn find_not_ended(
        &self,
        event: &UpdateEvent,
        is_previous: bool,
    ) -> Result<Vec<Span>, Problem> {
        let target = if is_previous {
            &event.previous
        } else {
            &event.target
        };
        let found = self.parts.events.find_not_ended(target, event.timestamp);
        found.await.map_err(|failure| self.store_problem(&failure))
    }
}

/// What refuses a stop, given the open span of its target.
fn refuse_stop(event: &StopEvent, open: Option<&Span>) -> Result<(), Problem> {
    let start = open.ok_or_else(refusals::not_open)?.start;
    if event.timestamp < start {
        return Err(refusals::before_start(start));
    }
    Ok(())
}

/// What refuses a start, given a span of its target that has not ended by then.
fn refuse_start(span: &Span, timestamp: Timestamp, may_overlap: bool) -> Result<(), Problem> {
    match span.end {
        None => Err(refusals::already_open()),
        Some(until) if until > timestamp && !may_overlap => Err(refusals::overlaps(until)),
        Some(_) => Ok(()),
    }
}

fn unless(nothing_is_kept: bool, problem: Problem) -> Problem {
    if nothing_is_kept {
        problem
    } else {
        incomplete(problem)
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
    let detail = format!(
        "{stopped} The new one could not be started, because something came in between ({}). Once \
         that is out of the way, repeat the update with the same id.",
        problem.kind().slug
    );
    Problem::new(&problems::UPDATE_INCOMPLETE, detail)
}
