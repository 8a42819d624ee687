//! Causes as one process sees them: calls get lost, late or slow, like all others.

use std::sync::Arc;

use async_trait::async_trait;
use sampler_domain::{Cause, CauseId, SUSPENDED_DUE_AT, SpanId, Timestamp};
use sampler_store::{Causes, KeptCause, Probe, Resumption, StoreError};

use super::super::mutant::Mutant;
use super::super::world::World;
use super::SimStore;

#[async_trait]
impl Causes for SimStore {
    async fn register(
        &self,
        cause: &Cause,
        now: Timestamp,
        probe_at: Timestamp,
    ) -> Result<(), StoreError> {
        let cause = cause.clone();
        self.call("register", |world| async move {
            world.store.register(&cause, now, probe_at).await
        })
        .await
    }

    async fn register_missing(
        &self,
        now: Timestamp,
        probe_at: Timestamp,
    ) -> Result<u64, StoreError> {
        self.call("register_missing", |world| async move {
            world.store.register_missing(now, probe_at).await
        })
        .await
    }

    async fn due_causes(&self, now: Timestamp, limit: usize) -> Result<Vec<KeptCause>, StoreError> {
        self.call("due_causes", |world| async move {
            world.store.due_causes(now, limit).await
        })
        .await
    }

    async fn claim_probe(&self, cause: &KeptCause, next: Timestamp) -> Result<bool, StoreError> {
        let cause = cause.clone();
        self.call("claim_probe", |world| async move {
            world.store.claim_probe(&cause, next).await
        })
        .await
    }

    async fn probe(
        &self,
        cause: CauseId,
        resumption: Resumption,
        lasts: i64,
    ) -> Result<Probe, StoreError> {
        self.call("probe", move |world| async move {
            let before = world.count_probes(cause);
            let begun = world.resume_with(cause, |world| {
                world.store.with(|table| {
                    if world.setup.mutant == Mutant::ProbePerSpan {
                        return table.probe_each(cause, resumption);
                    }
                    table.probe(cause, resumption, lasts)
                })
            });
            world.check_probes(cause, before);
            world.operate_on_cause(cause);
            Ok(begun)
        })
        .await
    }

    async fn end_stale_suspensions(&self, now: Timestamp, limit: usize) -> Result<u64, StoreError> {
        self.call("end_stale_suspensions", move |world| async move {
            world.store.end_stale_suspensions(now, limit).await
        })
        .await
    }

    async fn begin_resuming(&self, cause: CauseId, now: Timestamp) -> Result<bool, StoreError> {
        // The worker has heard that a probe of the cause was accepted.
        let probing = self.connection.world.probing(cause);
        let call = self.call("begin_resuming", |world| async move {
            world.store.begin_resuming(cause, now).await
        });
        let begun = call.await;
        for guid in probing {
            self.note_lost_if_failed(&begun, &guid);
        }
        begun
    }

    async fn resume_batch(
        &self,
        cause: CauseId,
        until: Timestamp,
        resumption: Resumption,
        limit: usize,
    ) -> Result<u64, StoreError> {
        self.call("resume_batch", |world| async move {
            Ok(world.resume_with(cause, |world| {
                world
                    .store
                    .with(|table| table.resume_batch(cause, until, resumption, limit))
            }))
        })
        .await
    }

    async fn set_resuming(&self, cause: &KeptCause, until: Timestamp) -> Result<(), StoreError> {
        let cause = cause.clone();
        self.call("set_resuming", move |world| async move {
            world.store.set_resuming(&cause, until).await
        })
        .await
    }

    async fn end_resuming(&self, cause: &KeptCause) -> Result<(), StoreError> {
        let cause = cause.clone();
        self.call("end_resuming", |world| async move {
            world.store.end_resuming(&cause).await
        })
        .await
    }

    async fn remove_cause(&self, cause: &KeptCause) -> Result<bool, StoreError> {
        let cause = cause.clone();
        self.call("remove_cause", |world| async move {
            world.store.remove_cause(&cause).await
        })
        .await
    }
}

impl World {
    /// Lets spans go on; with a planted bug they stay out of the workers' way.
    fn resume_with<T>(self: &Arc<Self>, cause: CauseId, resume: impl FnOnce(&Self) -> T) -> T {
        let suspended = || -> Vec<SpanId> {
            let kept = self.store.all().into_iter().map(|kept| kept.span);
            let is_meant = |span: &sampler_domain::Span| {
                let suspension = span.processing.suspended;
                suspension.is_some_and(|it| it.cause == cause)
            };
            kept.filter(is_meant).map(|span| span.id).collect()
        };
        let before = suspended();
        let answer = resume(self);
        if self.setup.mutant == Mutant::ResumedStaysAway {
            let after = suspended();
            for id in before.iter().filter(|id| !after.contains(id)) {
                self.store
                    .with(|table| table.set_due_at(id, SUSPENDED_DUE_AT));
            }
        }
        answer
    }
}
