//! The ledger as one process sees it: calls get lost, late or slow.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use sampler_domain::{Acceptance, Entry, EntryState, LastError, Resend, SpanId, Timestamp};
use sampler_store::{
    Confirmation, EntryKey, Finished, Ledger, StoreError, Unconfirmed, UnconfirmedQuery,
};
use uuid::Uuid;

use super::super::mutant::Mutant;
use super::super::server::EntryInsert;
use super::super::world::{World, pause};
use super::{SimStore, pass_on};

pass_on! {
    Ledger {
        withheld_of(&entry: Entry) -> Vec<Entry>;
        due_resends(; now: Timestamp, limit: usize) -> Vec<Entry>;
        postpone_resend(&entry: EntryKey; act: Uuid, due_at: Timestamp) -> ();
        claim_resend(&entry: EntryKey, &read: Resend; due_at: Timestamp) -> bool;
        has_resend(&entry: EntryKey; act: Uuid) -> bool;
        unconfirmed(&query: UnconfirmedQuery) -> Vec<Unconfirmed>;
    }

    async fn write_entry(&self, entry: Entry, lifetime: i64) -> Result<EntryState, StoreError> {
        let (state, guid) = (entry.state, entry.usage_guid.clone());
        let again = entry.clone();
        let insert = EntryInsert { entry, lifetime };
        if self.has(Mutant::EntryAfterNote) {
            let entries = self.entries.clone();
            let tick = self.connection.world.setup.scale.tick;
            tokio::spawn(async move {
                pause(Duration::from_millis(tick.unsigned_abs())).await;
                entries.submit(Arc::new(insert)).await
            });
            return Ok(state);
        }
        let store = &self.connection.world.store;
        let is_older = store.with(|table| table.entry(&guid).is_some());
        let mut written = self.entries.submit(Arc::new(insert)).await;
        if written.is_ok() && is_older {
            let later = self.call("ask_later", |world| async move {
                world.store.with(|table| table.ask_later(&again));
                Ok(())
            });
            written = later.await.and(written);
        }
        self.note_lost_if_failed(&written, &guid);
        written
    }

    async fn expire(&self, finished: &[Finished]) -> Result<(), StoreError> {
        let (world, finished) = (Arc::clone(&self.connection.world), finished.to_vec());
        let named: Vec<SpanId> = finished.iter().map(|span| span.id.clone()).collect();
        let what = move || format!(" {named:?}");
        let work = async move {
            world.store.expire(&finished).await?;
            world.remove_expired();
            Ok(())
        };
        self.connection.call("expire", what, work).await
    }

    async fn mark_resend(&self, entry: &EntryKey, resend: &Resend) -> Result<bool, StoreError> {
        let (key, resend) = (entry.clone(), resend.clone());
        let call = self.call("mark_resend", |world| async move {
            world.store.mark_resend(&key, &resend).await
        });
        let marked = call.await;
        self.note_lost_if_failed(&marked, &entry.usage_guid);
        marked
    }

    async fn takes_back_uncounted(&self, entry: &Entry) -> Result<bool, StoreError> {
        let entry = entry.clone();
        self.call("takes_back_uncounted", |world| async move {
            let waits = world.store.takes_back_uncounted(&entry).await?;
            if !waits {
                world.truth.facts().believe(&entry.usage_guid);
            }
            Ok(waits)
        })
        .await
    }

    async fn accept_resent(
        &self,
        entry: &Entry,
        acceptance: &Acceptance,
    ) -> Result<bool, StoreError> {
        let (read, acceptance) = (entry.clone(), acceptance.clone());
        let call = self.call("accept_resent", |world| async move {
            let accepted = world.store.accept_resent(&read, &acceptance).await?;
            if accepted {
                world.note_accepted_again(&read.resent(&acceptance));
            }
            Ok(accepted)
        });
        let accepted = call.await;
        self.note_lost_if_failed(&accepted, &entry.usage_guid);
        accepted
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

    async fn confirm(&self, confirmed: &[(Unconfirmed, Confirmation)]) -> Result<u64, StoreError> {
        let mut confirmed = confirmed.to_vec();
        if self.has(Mutant::ForgetsThatItIsLost) {
            if let [(_, Confirmation::Missing { .. })] = &*confirmed {
                return Ok(1);
            }
            for (read, _) in &mut confirmed {
                self.connection.world.forget_lost(read);
            }
        }
        self.call("confirm", |world| async move {
            let notes = confirmed.iter();
            let made = notes.filter(|(read, confirmation)| world.confirm(read, confirmation));
            Ok(made.count() as u64)
        })
        .await
    }
}

impl World {
    /// A planted bug: an entry never says that its usage is lost, and is set aside all the same.
    fn forget_lost(&self, read: &mut Unconfirmed) {
        let kept = self
            .store
            .with(|table| table.entry(&read.usage_guid)?.entry.question);
        if let Some(ask) = kept.filter(|_| read.ask.is_missing) {
            read.ask = ask;
        }
    }

    /// The store notes one answer; says whether it did.
    fn confirm(&self, read: &Unconfirmed, confirmation: &Confirmation) -> bool {
        let entry = self.store.with(|table| {
            let is_noted = table.confirm(read, confirmation);
            let kept = table.entry(&read.usage_guid).filter(|_| is_noted);
            kept.map(|kept| kept.entry.clone())
        });
        let Some(entry) = entry else {
            return false;
        };
        self.note_confirmed(&entry);
        if let Confirmation::SetAside { .. } = confirmation {
            self.operate_on_entry(&entry);
        }
        true
    }
}
