//! Causes as one process sees them: calls get lost, late or slow, like all others.

use std::sync::Arc;

use async_trait::async_trait;
use sampler_domain::{Cause, CauseId, SUSPENDED_DUE_AT, SpanId, Timestamp};
use sampler_store::{Causes, KeptCause, Probe, Resumption, StoreError};

use super::super::mutant::Mutant;
use super::super::world::World;
use super::{SimStore, pass_on};

pass_on! {
    Causes {
        register(&cause: Cause; now: Timestamp, probe_at: Timestamp) -> ();
        register_missing(; now: Timestamp, probe_at: Timestamp) -> u64;
        due_causes(; now: Timestamp, limit: usize) -> Vec<KeptCause>;
        claim_probe(&cause: KeptCause; next: Timestamp) -> bool;
        set_resuming(&cause: KeptCause; until: Timestamp) -> ();
        end_resuming(&cause: KeptCause) -> ();
        remove_cause(&cause: KeptCause) -> bool;
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
