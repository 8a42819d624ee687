//! Resends as one process sees them: calls get lost, late or slow, like all others.

use async_trait::async_trait;
use sampler_domain::{Acceptance, Entry, LastError, Resend, Timestamp};
use sampler_store::{EntryKey, Resends, StoreError};
use uuid::Uuid;

use super::store::SimStore;

#[async_trait]
impl Resends for SimStore {
    async fn mark_resend(&self, entry: &EntryKey, resend: &Resend) -> Result<bool, StoreError> {
        let (entry, resend) = (entry.clone(), resend.clone());
        self.call("mark_resend", |world| async move {
            world.store.mark_resend(&entry, &resend).await
        })
        .await
    }

    async fn due_resends(&self, now: Timestamp, limit: usize) -> Result<Vec<Entry>, StoreError> {
        self.call("due_resends", |world| async move {
            world.store.due_resends(now, limit).await
        })
        .await
    }

    async fn postpone_resend(
        &self,
        entry: &EntryKey,
        act: Uuid,
        due_at: Timestamp,
    ) -> Result<(), StoreError> {
        let entry = entry.clone();
        self.call("postpone_resend", move |world| async move {
            world.store.postpone_resend(&entry, act, due_at).await
        })
        .await
    }

    async fn accept_resent(
        &self,
        entry: &Entry,
        acceptance: &Acceptance,
    ) -> Result<bool, StoreError> {
        let (entry, acceptance) = (entry.clone(), acceptance.clone());
        self.call("accept_resent", |world| async move {
            let accepted = world.store.accept_resent(&entry, &acceptance).await?;
            if accepted {
                world.note_accepted_again(&entry.resent(&acceptance));
            }
            Ok(accepted)
        })
        .await
    }

    async fn has_resend(&self, entry: &EntryKey, act: Uuid) -> Result<bool, StoreError> {
        let entry = entry.clone();
        self.call("has_resend", move |world| async move {
            world.store.has_resend(&entry, act).await
        })
        .await
    }

    async fn end_resend(
        &self,
        entry: &EntryKey,
        act: Uuid,
        refusal: Option<&LastError>,
    ) -> Result<(), StoreError> {
        let (entry, refusal) = (entry.clone(), refusal.cloned());
        self.call("end_resend", move |world| async move {
            world.store.end_resend(&entry, act, refusal.as_ref()).await
        })
        .await
    }
}
