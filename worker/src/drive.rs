//! Driving one span through all its due intervals: carrying out what the
//! [`Driver`](sampler_domain::Driver), which is the protocol, asks for.

use sampler_abacus::{Answer, Load};
use sampler_domain::{
    Action, Change, Changed, Driver, Failure, Planned, Span, Timestamp, Usage,
};
use sampler_store::StoreError;
use tracing::{error, warn};

use crate::Worker;

/// What came of an attempt to deliver a usage.
enum Delivery {
    /// Abacus has it.
    Done,
    /// It could not be delivered now.
    Failed(Failure),
    /// The worker was told to stop before there was an answer worth noting.
    Stopped,
}

impl Worker {
    /// Drives a span until nothing is due, something fails or another worker has it in hand. Each
    /// failure is logged here, and nowhere else.
    pub(crate) async fn drive(&self, span: Span) {
        let id = span.id.clone();
        if let Err(error) = self.carry_out(Driver::new(span)).await {
            // The span stays as it is, due, and is found again.
            let error = anyhow::Error::from(error);
            warn!(span.id = %id, error = format!("{error:#}"), "the store failed on a span");
        }
    }

    /// Does what the driver asks for, until it asks for nothing more.
    async fn carry_out(&self, mut driver: Driver) -> Result<(), StoreError> {
        while !self.stop.is_cancelled() || driver.has_news() {
            match driver.next(self.now(), &self.options.policy) {
                Action::Change(change) => self.change(&mut driver, &change).await?,
                Action::Post(planned) => match self.deliver(driver.span(), &planned).await {
                    Delivery::Done => driver.delivered(),
                    Delivery::Failed(failure) => driver.failed(failure),
                    Delivery::Stopped => break,
                },
                Action::Reread => driver.found(self.parts.store.find(&driver.span().id).await?),
                Action::Done => break,
            }
        }
        Ok(())
    }

    async fn change(&self, driver: &mut Driver, change: &Change) -> Result<(), StoreError> {
        let changed = self.parts.store.change(driver.span(), change, self.now());
        match changed.await? {
            Changed::Made => driver.made(change),
            Changed::Lost => driver.lost(),
        }
        self.parts.processing.beat();
        Ok(())
    }

    /// Posts the usage of a planned interval, waiting at the gate as often as it takes.
    async fn deliver(&self, span: &Span, planned: &Planned) -> Delivery {
        let usage = Usage::new(span, planned);
        while let Some(pass) = self.gate.pass(&*self.parts.processing, &self.stop).await {
            let answer = self
                .parts
                .collector
                .post(&usage, self.parts.clock.now())
                .await;
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

    /// When the span is to be tried again: later each time, and not before `at_least` ms.
    fn failure(&self, span: &Span, error: String, at_least: i64) -> Failure {
        let at: Timestamp = self.parts.clock.now();
        let fraction = self.parts.random.fraction();
        let wait = self
            .options
            .backoff
            .wait(span.processing.attempts + 1, fraction);
        Failure {
            at,
            retry_at: at.plus(wait.max(at_least)),
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
