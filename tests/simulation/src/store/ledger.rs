//! The ledger as one process sees it: calls get lost, late or slow.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use sampler_domain::{Entry, SpanId, Target, Timestamp};
use sampler_store::{DueWatches, Ledger, LedgerSum, StoreError, Watch, WatchOutcome};

use super::super::mutant::Mutant;
use super::super::server::EntryInsert;
use super::super::world::pause;
use super::{SimStore, pass_on};

pass_on! {
    Ledger {
        entry(&usage_guid: str) -> Option<Entry>;
        sum_of(&span: SpanId, &target: Target) -> LedgerSum;
        due_watches(&query: DueWatches) -> Vec<Watch>;
        claim_watch(&watch: Watch; due_at: Timestamp) -> bool;
    }

    async fn write_entry(
        &self,
        entry: &Entry,
        expires_at: Timestamp,
        watch_at: Option<Timestamp>,
    ) -> Result<(), StoreError> {
        let is_early = self.has(Mutant::ExpiresTooEarly);
        let insert = EntryInsert {
            entry: entry.clone(),
            expires_at: if is_early { entry.acceptance.at } else { expires_at },
            watch_at: watch_at.filter(|_| !self.has(Mutant::DropsWatches)),
        };
        if self.has(Mutant::EntryAfterRecord) {
            let entries = self.entries.clone();
            let tick = self.connection.world.setup.scale.tick;
            tokio::spawn(async move {
                pause(Duration::from_millis(tick.unsigned_abs())).await;
                entries.submit(Arc::new(insert)).await
            });
            return Ok(());
        }
        self.entries.submit(Arc::new(insert)).await
    }

    async fn settle_watches(&self, outcomes: &[(Watch, WatchOutcome)]) -> Result<(), StoreError> {
        let outcomes = outcomes.to_vec();
        self.call("settle_watches", |world| async move {
            for (watch, outcome) in &outcomes {
                world.store.with(|table| table.settle_watch(watch, outcome));
                if let WatchOutcome::Missing(_) = outcome {
                    world.watch_missing(&watch.usage_guid);
                }
            }
            Ok(())
        })
        .await
    }
}
