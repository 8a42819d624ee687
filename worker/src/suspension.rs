//! Spans whose usages the upstream refuses. They are suspended under their cause. One span of each cause
//! is probed every `SAMPLER_PROBE_INTERVAL`; once its usage is accepted, all spans of the cause are
//! resumed. So the number of posts does not depend on how many spans are suspended.

use std::collections::HashMap;

use sampler_domain::{Cause, CauseId, Span, Timestamp};
use sampler_store::{Resumption, StoreError};
use tokio::time::Instant;
use tracing::{error, info, warn};

use crate::{Worker, error_chain};

/// How many spans one command resumes.
const BATCH: usize = 1_000;

/// Causes that are probed.
const CAUSES: usize = 10_000;

/// When each cause was probed last, or was first seen.
#[derive(Default)]
struct Probes {
    at: HashMap<CauseId, Instant>,
    /// Whether this run has looked for causes before. One that it meets then is new, and is first probed after an
    /// interval.
    is_begun: bool,
}

impl Worker {
    /// The terms on which spans are resumed at `now`: one more refusal suspends them again.
    fn resumption(&self, now: Timestamp) -> Resumption {
        Resumption {
            now,
            refusals: self.terms.suspend_after.saturating_sub(1),
        }
    }

    /// Tells the log of a span that was suspended, once in a while for each cause.
    pub(crate) fn report_suspension(&self, span: &Span) {
        let Some(failure) = &span.processing.failure else {
            return;
        };
        let cause = Cause::of(&span.target, failure.status, &failure.error);
        let id = cause.id();
        if self.suspensions.admit(id).is_some() {
            error!(code = "suspension.begun", cause = %id, status = cause.status,
                error = cause.error, resource = %cause.resource_id, plan = %cause.plan_id,
                "spans are suspended, because the upstream refuses their usages");
        }
    }

    /// Resumes all spans of a cause, because the usage of one of them was accepted. What a shutdown leaves is
    /// resumed after the next probe.
    pub(crate) async fn resume_cause(&self, cause: CauseId) -> Result<(), StoreError> {
        let accepted_at = self.now();
        info!(cause = %cause, "the upstream accepts again what it refused: the spans of the cause resume");
        while !self.stop.is_cancelled() {
            let terms = self.resumption(self.now());
            let operating = &self.parts.operating;
            let batch = operating.resume_batch(cause, accepted_at, terms, BATCH);
            let spans = batch.await?;
            self.parts.processing_progress.report();
            if spans == 0 {
                break;
            }
            info!(cause = %cause, spans, "suspended spans resume");
        }
        Ok(())
    }

    /// Probes causes until the shutdown. Only the owner of partition 0 does it.
    pub(crate) async fn keep_probing(&self) {
        let mut probes = Probes::default();
        while self.wait_until_ready().await {
            if self.ownership.owns_first() {
                match self.parts.work.suspended_causes(CAUSES).await {
                    Ok(causes) => self.probe_due(&causes, &mut probes).await,
                    Err(error) => warn_of_failure(&error),
                }
            }
            self.sleep(self.periods.causes).await;
        }
    }

    /// Tries one span again of each cause that is due.
    async fn probe_due(&self, causes: &[CauseId], probes: &mut Probes) {
        let interval = self.settings.suspension.probe_interval;
        for cause in causes {
            let at = probes.at.get(cause);
            if at.map_or(!probes.is_begun, |at| at.elapsed() >= interval) {
                self.probe(*cause).await;
                probes.at.insert(*cause, Instant::now());
            } else if at.is_none() {
                probes.at.insert(*cause, Instant::now());
            }
        }
        probes.is_begun = true;
        // A cause whose only span is tried is not listed meanwhile.
        probes
            .at
            .retain(|cause, at| at.elapsed() < interval || causes.contains(cause));
    }

    async fn probe(&self, cause: CauseId) {
        let terms = self.resumption(self.now());
        match self.parts.work.probe(cause, terms).await {
            Ok(true) => info!(cause = %cause, "one suspended span is tried again"),
            Ok(false) => {}
            Err(error) => warn_of_failure(&error),
        }
    }
}

fn warn_of_failure(error: &StoreError) {
    warn!(
        code = "suspension.failed",
        error = error_chain(error),
        "suspended spans could not be probed"
    );
}
