//! Driving one span through its due intervals: carrying out what the
//! [`Driver`](sampler_domain::Driver), which is the protocol, asks for.

use sampler_abacus::{Answer, Load, Posted};
use sampler_domain::{
    Action, Change, Changed, Driver, Failure, Next, Planned, Span, Timestamp, Usage,
};
use sampler_store::StoreError;
use tracing::{error, warn};

use crate::Worker;
use crate::turn::{PutBack, Turn};

/// What came of an attempt to deliver a usage.
enum Delivery {
    /// Abacus has it.
    Done,
    /// It could not be delivered now.
    Failed(Failure),
    /// The worker was told to stop before there was an answer worth noting.
    Stopped,
}

/// Whether a span keeps its slot.
#[derive(PartialEq)]
enum Slot {
    Kept,
    GivenBack,
}

impl Worker {
    /// Drives a span until nothing is due, its turn is over, something fails or another worker has
    /// it in hand. Each failure is logged here, and nowhere else.
    pub(crate) async fn drive(&self, span: Span) {
        let id = span.id.clone();
        if let Err(error) = self.carry_out(Driver::new(span)).await {
            // The span stays as it is, due, and is found again.
            let error = anyhow::Error::from(error);
            warn!(span.id = %id, error = format!("{error:#}"), "the store failed on a span");
        }
    }

    /// Does what the driver asks for, until it asks for nothing more or the turn is over.
    async fn carry_out(&self, mut driver: Driver) -> Result<(), StoreError> {
        let mut turn = self.turn();
        // What Abacus has answered is noted in any case.
        while driver.has_news() || (!self.stop.is_cancelled() && self.time.is_known()) {
            match driver.next(self.now(), &self.options.policy) {
                Action::Change(change) => {
                    if self.change(&mut driver, change, &mut turn).await? == Slot::GivenBack {
                        break;
                    }
                }
                Action::Post(planned) => match self.deliver(driver.span(), &planned).await {
                    Delivery::Done => driver.delivered(),
                    Delivery::Failed(failure) => driver.failed(failure),
                    Delivery::Stopped => break,
                },
                Action::Reread => {
                    let span = driver.span();
                    let found = self.parts.work.find(&span.id, &span.target).await?;
                    driver.found(found);
                }
                Action::Done => break,
            }
        }
        Ok(())
    }

    /// Has the store make a change.
    async fn change(
        &self,
        driver: &mut Driver,
        mut change: Change,
        turn: &mut Turn,
    ) -> Result<Slot, StoreError> {
        let now = self.now();
        let put_back = self.put_back(driver.span(), &mut change, turn, now);
        let changed = self.parts.work.change(driver.span(), &change, now).await?;
        self.parts.processing.beat();
        match changed {
            Changed::Made => driver.made(&change),
            Changed::Lost => driver.lost(),
        }
        Ok(match put_back.filter(|_| changed == Changed::Made) {
            Some(put_back) => {
                self.waiting.put_back(put_back);
                Slot::GivenBack
            }
            None => Slot::Kept,
        })
    }

    /// Where the turn of a span is over, the change that notes its last execution puts the span
    /// behind all that has waited longer.
    fn put_back(
        &self,
        span: &Span,
        change: &mut Change,
        turn: &mut Turn,
        now: Timestamp,
    ) -> Option<PutBack> {
        let Change::Executed {
            next: Next::Planned(_),
            due_at,
        } = change
        else {
            return None;
        };
        let put_back = self.executed(turn, &span.executed(), now)?;
        *due_at = put_back.due_at;
        Some(put_back)
    }

    /// Posts the usage of a planned interval, waiting at the gate as often as it takes.
    async fn deliver(&self, span: &Span, planned: &Planned) -> Delivery {
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
                        wait_ms = sampler_settings::millis(after),
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
        let backoff = self.options.abacus.backoff();
        let wait = backoff.wait(span.processing.attempts + 1, fraction);
        Failure {
            at,
            retry_at: at.plus(wait.max(at_least.min(backoff.limit))),
            error,
        }
    }
}

/// What an answer says about the load; a usage that is refused was no burden.
fn load(answer: &Answer) -> Load {
    match answer {
        Answer::Accepted | Answer::Refused { .. } => Load::Borne,
        Answer::Wait { .. } | Answer::TryAgain { .. } => Load::TooMuch,
    }
}
