//! Driving one span through all its due intervals (sections 6.5 and 6.6 of the paper).
//!
//! Any instruction may be the last one. Before a usage is posted its interval is planned, and the
//! plan is kept by a majority; after it was accepted one change notes that and plans the next. A
//! worker that dies in between leaves the plan behind, and whoever comes next posts the very same
//! usage, which Abacus recognises.

use sampler_abacus::{Answer, Load, Posted};
use sampler_domain::{Planned, Span, Step, Usage, next_step};
use sampler_store::{Changed, Failure, Next, StoreError};
use tracing::{debug, error, warn};

use crate::Worker;
use crate::turn::Turn;

/// What came of an attempt to deliver a usage.
enum Delivery {
    /// Abacus has it.
    Done,
    /// It could not be delivered now.
    Failed(Failure),
    /// The worker was told to stop before there was an answer worth noting.
    Stopped,
}

/// What came of noting an execution.
enum Noted {
    /// The span is another's from now on, or nobody's.
    LetGo,
    /// There is more to do with it.
    GoOn(Changed),
}

impl Worker {
    /// Drives a span until nothing is due, its turn is over, something fails or another worker turns
    /// out to be at it. Each failure is logged here, and nowhere else.
    pub(crate) async fn drive(&self, span: Span) {
        let id = span.id.clone();
        if let Err(error) = self.take_steps(span).await {
            // The span stays as it is, due, and is found again.
            let error = anyhow::Error::from(error);
            warn!(span.id = %id, error = format!("{error:#}"), "the store failed on a span");
        }
    }

    async fn take_steps(&self, mut span: Span) -> Result<(), StoreError> {
        // The plan whose usage Abacus has, though that is not noted yet.
        let mut delivered: Option<Planned> = None;
        let mut turn = self.turn();
        while !self.stop.is_cancelled() || delivered.is_some() {
            if delivered.is_none() && !self.time.is_known() {
                // Found again once it is; what Abacus has already is noted in any case.
                return Ok(());
            }
            let now = self.now();
            let changed = match next_step(&span, now, &self.options.policy) {
                Step::Execute(planned) => {
                    if delivered.as_ref() != Some(&planned) {
                        match self.deliver(&span, &planned).await {
                            Delivery::Done => delivered = Some(planned),
                            Delivery::Failed(failure) => {
                                return self.note_failure(&span, failure).await;
                            }
                            Delivery::Stopped => return Ok(()),
                        }
                    }
                    match self.note_execution(&span, &mut turn).await? {
                        // The note says when the span is due next, or that it is complete.
                        Noted::LetGo => {
                            self.parts.processing.beat();
                            return Ok(());
                        }
                        Noted::GoOn(changed) => changed,
                    }
                }
                Step::Plan(interval) => {
                    let due_at = Step::Plan(interval).due_at(now);
                    let planned = Planned::new(&span, interval);
                    self.parts.store.plan(&span, planned, now, due_at).await?
                }
                Step::Complete if span.processing.complete => return Ok(()),
                Step::Complete => self.parts.store.complete(&span, now).await?,
                Step::Wait(until) => match self.parts.store.postpone(&span, until).await? {
                    Changed::Done(_) => return Ok(()),
                    Changed::Lost => Changed::Lost,
                },
            };
            self.parts.processing.beat();
            span = match changed {
                Changed::Done(after) => *after,
                Changed::Lost => match self.reread(&span).await? {
                    Some(fresh) => fresh,
                    None => return Ok(()),
                },
            };
            if delivered != span.processing.planned {
                delivered = None;
            }
        }
        Ok(())
    }

    /// The span as it is by now, if what made a change come too late was a stop. Where the version
    /// has moved on, another worker is at it, and one is enough.
    async fn reread(&self, span: &Span) -> Result<Option<Span>, StoreError> {
        let fresh = self.parts.store.find(&span.id).await?;
        let same_version = |fresh: &Span| fresh.processing.version == span.processing.version;
        let fresh = fresh.filter(|fresh| same_version(fresh) && fresh.end != span.end);
        if fresh.is_none() {
            debug!(span.id = %span.id, "another worker was faster");
        }
        Ok(fresh)
    }

    /// Notes that the planned interval was executed, and plans the next one if it is due. Where the
    /// turn of the span is over, the same change puts it behind all that has waited longer.
    async fn note_execution(&self, span: &Span, turn: &mut Turn) -> Result<Noted, StoreError> {
        let now = self.now();
        let after = span.executed();
        let step = next_step(&after, now, &self.options.policy);
        let put_back = match step {
            Step::Plan(_) => self.executed(turn, &after, now),
            Step::Complete | Step::Wait(_) | Step::Execute(_) => None,
        };
        let due_at = put_back.map_or_else(|| step.due_at(now), |put_back| put_back.due_at);
        let next = match step {
            Step::Plan(interval) => Next::Planned(Planned::new(&after, interval)),
            Step::Complete => Next::Complete,
            // Nothing is planned after an execution, so there is nothing to execute.
            Step::Wait(_) | Step::Execute(_) => Next::Wait,
        };
        let changed = self.parts.store.executed(span, next, now, due_at).await?;
        Ok(match (changed, put_back) {
            (Changed::Done(_), Some(put_back)) => {
                self.waiting.put_back(put_back);
                Noted::LetGo
            }
            (Changed::Done(after), None) if after.processing.planned.is_none() => Noted::LetGo,
            (changed, _) => Noted::GoOn(changed),
        })
    }

    /// Posts the usage of a planned interval, waiting at the gate as often as it takes.
    async fn deliver(&self, span: &Span, planned: &Planned) -> Delivery {
        if planned.interval.is_empty() {
            // Only an original Sampler plans such; there is nothing to bill.
            return Delivery::Done;
        }
        let usage = Usage::new(span, planned);
        while let Some(pass) = self.gate.pass(&*self.parts.processing, &self.stop).await {
            let asked = self.time.asked();
            let Posted { answer, dated } = self.parts.collector.post(&usage, self.now()).await;
            self.time.heard(asked, dated);
            self.parts.processing.beat();
            self.gate.answered(pass, load(&answer));
            match answer {
                Answer::Accepted => return Delivery::Done,
                Answer::Wait { after } => {
                    warn!(
                        wait_ms = crate::settings::millis(after),
                        "Abacus takes nothing for a while"
                    );
                    self.gate.close_for(after);
                }
                Answer::TryAgain { after, error } => {
                    let wait = after.map_or(0, |wait| i64::try_from(wait.as_millis()).unwrap_or(0));
                    let failure = self.failure(span, error, wait);
                    let retry_at = failure.retry_at;
                    warn!(span.id = %span.id, usage = %planned.usage_guid, %retry_at,
                        attempts = span.processing.attempts + 1, error = failure.error,
                        "a usage could not be delivered");
                    return Delivery::Failed(failure);
                }
                Answer::Refused { error } => {
                    let failure = self.failure(span, error, 0);
                    let retry_at = failure.retry_at;
                    error!(span.id = %span.id, usage = %planned.usage_guid, %retry_at,
                        attempts = span.processing.attempts + 1, error = failure.error,
                        "Abacus refused a usage");
                    return Delivery::Failed(failure);
                }
            }
        }
        Delivery::Stopped
    }

    /// When the span is to be tried again: later each time, and not before `at_least` ms, as far
    /// as the limit goes: it is what fits into the slack of a month that closes.
    fn failure(&self, span: &Span, error: String, at_least: i64) -> Failure {
        let at = self.now();
        let fraction = self.parts.random.fraction();
        let backoff = self.options.backoff;
        let wait = backoff.wait(span.processing.attempts + 1, fraction);
        Failure {
            at,
            retry_at: at.plus(wait.max(at_least.min(backoff.limit))),
            error,
        }
    }

    /// Where the span has changed meanwhile it stays due, and is found again.
    async fn note_failure(&self, span: &Span, failure: Failure) -> Result<(), StoreError> {
        self.parts.store.failed(span, failure).await?;
        Ok(())
    }
}

/// What an answer says about the load; a usage that is refused was no burden.
fn load(answer: &Answer) -> Load {
    match answer {
        Answer::Accepted | Answer::Refused { .. } => Load::Borne,
        Answer::Wait { .. } | Answer::TryAgain { .. } => Load::TooMuch,
    }
}
