//! Spans whose usages the upstream refuses. They are suspended under their cause. One span of each cause
//! is probed every `SAMPLER_PROBE_INTERVAL`; once its usage is accepted, all spans of the cause are
//! resumed. So the number of posts does not depend on how many spans are suspended.

use std::time::Duration;

use sampler_domain::{Cause, CauseId, Timestamp};
use sampler_settings::millis;
use sampler_store::Limiter;
use sampler_store::{KeptCause, Probe, Resumption, StoreError};
use tokio::time::Instant;
use tracing::{error, info, warn};

use crate::{IgnoreProgress, Worker, error_chain};

/// How many spans one command resumes.
const BATCH: usize = 1_000;

/// Causes that one command reads.
const CAUSES: usize = 100;

/// How long a cause that was registered need not be registered again. It is less than
/// [`IDLE_CAUSE`], so that no cause is removed under which a span is about to be suspended, unless the worker
/// sleeps in between.
const REGISTERED_FOR: Duration = Duration::from_mins(1);

/// How long a cause is kept at least after it was registered for the last time.
const IDLE_CAUSE: Duration = Duration::from_mins(10);

/// The most causes that are remembered. Further ones are registered each time.
const REMEMBERED_MAX: usize = 10_000;

/// The causes that this worker has registered within [`REGISTERED_FOR`].
#[derive(Debug)]
pub(crate) struct RegisteredCauses(Limiter<CauseId>);

impl Default for RegisteredCauses {
    fn default() -> Self {
        Self(Limiter::new(1, REGISTERED_FOR).for_keys(REMEMBERED_MAX))
    }
}

impl Worker {
    /// How many refusals of one planned interval suspend a span.
    pub(crate) fn suspend_after(&self) -> u32 {
        u32::try_from(self.settings.suspension.after).unwrap_or(u32::MAX)
    }

    /// The terms on which spans are resumed at `now`: one more refusal suspends them again.
    fn resumption(&self, now: Timestamp) -> Resumption {
        Resumption {
            now,
            refusals: self.suspend_after().saturating_sub(1),
        }
    }

    /// When a cause is probed next. If a month closes now or at the next probe, that is as soon as
    /// any failed usage is tried again: a usage that is not accepted before the month is closed is
    /// lost.
    pub(crate) fn next_probe(&self, now: Timestamp) -> Timestamp {
        let interval = millis(self.settings.suspension.probe_interval);
        let next = now.plus(interval);
        let is_urgent = [now, next].iter().any(|at| self.closing(*at).is_some());
        if is_urgent {
            now.plus(interval.min(self.settings.delivery.backoff().limit))
        } else {
            next
        }
    }

    /// Keeps a cause, before a span is suspended under it.
    pub(crate) async fn register_cause(&self, cause: &Cause) -> Result<(), StoreError> {
        let id = cause.id();
        if self.registered_causes.0.knows(id) {
            return Ok(());
        }
        let now = self.now();
        let probe_at = self.next_probe(now);
        self.parts.causes.register(cause, now, probe_at).await?;
        self.registered_causes.0.admit(id);
        error!(code = "suspension.begun", cause = %id, status = cause.status,
            error = cause.error, resource = %cause.resource_id, plan = %cause.plan_id,
            "spans are suspended, because the upstream refuses their usages");
        Ok(())
    }

    /// Marks a cause, so that all its spans are resumed, because the usage of one of them was accepted.
    pub(crate) async fn begin_resuming(&self, cause: CauseId) -> Result<(), StoreError> {
        let is_known = self.parts.causes.begin_resuming(cause, self.now()).await?;
        info!(cause = %cause, is_known, "the upstream accepts again what it refused: the spans of the cause resume");
        Ok(())
    }

    /// Probes causes and resumes spans, until the shutdown. Only the owner of partition 0 does it.
    pub(crate) async fn keep_causes(&self) {
        let mut searched = None;
        while self.wait_until_time_known(&IgnoreProgress).await {
            let has_more = if self.ownership.owns_first() {
                self.serve_causes(&mut searched).await
            } else {
                Ok(false)
            };
            match has_more {
                Ok(true) => continue,
                Ok(false) => {}
                Err(error) => warn!(
                    code = "suspension.failed",
                    error = error_chain(&error),
                    "suspended spans could not be probed or resumed"
                ),
            }
            self.sleep(self.periods.causes).await;
        }
    }

    /// Probes the causes that are due, and resumes spans. Returns whether there is more to do at once.
    /// `searched` is the time of the last search for missing causes ([`register_missing`](Self::register_missing)).
    async fn serve_causes(&self, searched: &mut Option<Instant>) -> Result<bool, StoreError> {
        let due = self.parts.causes.due_causes(self.now(), CAUSES).await?;
        let mut has_more = false;
        for cause in due {
            match cause.resuming {
                // An operator has resumed it, so far without a time of a worker. If that stayed, spans that
                // are suspended from now on would be resumed again and again.
                Some(until) if until > self.now() => {
                    self.parts.causes.set_resuming(&cause, self.now()).await?;
                    has_more = true;
                }
                Some(until) => has_more |= self.resume_batch(&cause, until).await?,
                None => self.probe(&cause).await?,
            }
        }
        let interval = self.settings.suspension.probe_interval;
        if searched.is_none_or(|at| at.elapsed() >= interval) {
            self.register_missing().await?;
            *searched = Some(Instant::now());
        }
        Ok(has_more)
    }

    /// Registers the causes of suspended spans that no probe would ever find, because theirs is missing.
    async fn register_missing(&self) -> Result<(), StoreError> {
        let now = self.now();
        let causes = &self.parts.causes;
        let found = causes.register_missing(now, self.next_probe(now)).await?;
        if found > 0 {
            info!(
                causes = found,
                "suspended spans had no cause; it is registered again"
            );
        }
        Ok(())
    }

    /// Resumes some spans of a cause. Returns whether there were any.
    async fn resume_batch(&self, cause: &KeptCause, until: Timestamp) -> Result<bool, StoreError> {
        let batch =
            self.parts
                .causes
                .resume_batch(cause.id, until, self.resumption(self.now()), BATCH);
        let spans = batch.await?;
        if spans == 0 {
            self.parts.causes.end_resuming(cause).await?;
            return Ok(false);
        }
        info!(cause = %cause.id, spans, "suspended spans resume");
        Ok(true)
    }

    /// Begins a probe: one span of the cause is tried again. Removes a cause without spans.
    async fn probe(&self, cause: &KeptCause) -> Result<(), StoreError> {
        let now = self.now();
        let next = self.next_probe(now);
        if !self.parts.causes.claim_probe(cause, next).await? {
            return Ok(());
        }
        // An earlier probe counts as running until this one is due.
        let (resumption, lasts) = (self.resumption(now), next.since(now));
        match self.parts.causes.probe(cause.id, resumption, lasts).await? {
            Probe::Begun => info!(cause = %cause.id, "one suspended span is tried again"),
            Probe::NoSpan if now.since(cause.touched_at) > millis(IDLE_CAUSE) => {
                if self.parts.causes.remove_cause(cause).await? {
                    info!(cause = %cause.id, "no span is suspended for this cause, so it is removed");
                }
            }
            Probe::Running | Probe::NoSpan => {}
        }
        Ok(())
    }
}
