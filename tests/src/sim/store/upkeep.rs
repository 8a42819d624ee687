//! Upkeep and membership as one process sees them.

use std::sync::Arc;

use async_trait::async_trait;
use sampler_domain::{Id, Policy, SpanId, Timestamp};
use sampler_store::{Adopted, Finished, Membership, SpanKeys, SpanScan, StoreError, Upkeep};

use super::SimStore;

#[async_trait]
impl Upkeep for SimStore {
    async fn adopt(
        &self,
        policy: &Policy,
        now: Timestamp,
        limit: usize,
    ) -> Result<Adopted, StoreError> {
        let policy = policy.clone();
        self.call("adopt", |world| async move {
            world.store.adopt(&policy, now, limit).await
        })
        .await
    }

    async fn completed_before(
        &self,
        cutoff: Timestamp,
        limit: usize,
    ) -> Result<Vec<Finished>, StoreError> {
        let world = Arc::clone(&self.connection.world);
        let what = move || format!(" {cutoff}");
        let work = async move { world.store.completed_before(cutoff, limit).await };
        self.connection.call("completed_before", what, work).await
    }

    async fn remove(&self, finished: &[Finished]) -> Result<u64, StoreError> {
        let (world, finished) = (Arc::clone(&self.connection.world), finished.to_vec());
        let named: Vec<SpanId> = finished.iter().map(|span| span.id.clone()).collect();
        let what = move || format!(" {named:?}");
        let work = async move {
            let mut spans = Vec::new();
            let find = |id: &SpanId| world.store.with(|table| table.find(id).cloned());
            for span in &finished {
                spans.extend(find(&span.id));
            }
            let removed = world.store.remove(&finished).await?;
            for span in &spans {
                if find(&span.id).is_none() {
                    world.note_removed(span.clone());
                }
            }
            Ok(removed)
        };
        self.connection.call("remove", what, work).await
    }

    async fn largest_slack(&self) -> Result<Option<i64>, StoreError> {
        let world = Arc::clone(&self.connection.world);
        let work = async move { world.store.largest_slack().await };
        self.connection
            .call("largest_slack", String::new, work)
            .await
    }
}

#[async_trait]
impl Membership for SimStore {
    async fn heartbeat(&self, worker: &str) -> Result<Vec<String>, StoreError> {
        let worker = worker.to_owned();
        self.call("heartbeat", |world| async move {
            world.store.heartbeat(&worker).await
        })
        .await
    }

    async fn leave(&self, worker: &str) -> Result<(), StoreError> {
        let worker = worker.to_owned();
        self.call(
            "leave",
            |world| async move { world.store.leave(&worker).await },
        )
        .await
    }
}

/// The auditor is off: it would fill the virtual time.
impl SpanScan for SimStore {
    fn spans_of(&self, partition: u32, from: Option<&Id>, page: usize) -> SpanKeys {
        self.connection.world.store.spans_of(partition, from, page)
    }
}
