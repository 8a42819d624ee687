//! Operators' actions as one process sees the store. Nobody steers here.

use async_trait::async_trait;
use sampler_domain::{CauseId, Change, Changed, Control, Span, Timestamp};
use sampler_store::{
    ActOutcome, AuditRecord, Backlog, BacklogQuery, ControllerState, KeptControl, Operating,
    Published, Resumption, StoreError,
};
use uuid::Uuid;

use super::super::server::Changing;
use super::SimStore;

#[async_trait]
impl Operating for SimStore {
    async fn record_action(&self, _: &AuditRecord) -> Result<(), StoreError> {
        self.call("record_action", |_| async { Ok(()) }).await
    }

    async fn record_outcome(&self, _: Uuid, _: ActOutcome) -> Result<(), StoreError> {
        Ok(())
    }

    async fn change_by_operator(
        &self,
        read: &Span,
        change: &Change,
        _: Timestamp,
    ) -> Result<Changed, StoreError> {
        let changing = Changing::new(read, change);
        self.call("change_by_operator", |world| async move {
            let made = changing.apply(&world);
            Ok(made.map_or(Changed::Rejected, |_| Changed::Made))
        })
        .await
    }

    async fn resume_batch(
        &self,
        cause: CauseId,
        until: Timestamp,
        resumption: Resumption,
        limit: usize,
    ) -> Result<u64, StoreError> {
        self.call("resume_batch", move |world| async move {
            let (resumed, _) =
                world.resume_with(|table| table.resume_batch(cause, until, resumption, limit));
            Ok(resumed)
        })
        .await
    }

    async fn resend_missing(&self, usage_guid: &str, now: Timestamp) -> Result<bool, StoreError> {
        let guid = usage_guid.to_owned();
        self.call("resend_missing", move |world| async move {
            world.store.resend_missing(&guid, now).await
        })
        .await
    }

    async fn time(&self) -> Result<Timestamp, StoreError> {
        Ok(self.connection.world.database_now())
    }

    async fn control(&self) -> Result<KeptControl, StoreError> {
        Ok(KeptControl::default())
    }

    async fn set_control(&self, _: &Control, _: i64) -> Result<bool, StoreError> {
        Ok(false)
    }

    async fn controller(&self) -> Result<Option<Published<ControllerState>>, StoreError> {
        Ok(None)
    }

    async fn set_controller(&self, _: &ControllerState) -> Result<bool, StoreError> {
        Ok(false)
    }

    async fn count_backlog(&self, _: &BacklogQuery) -> Result<Backlog, StoreError> {
        Ok(Backlog::default())
    }

    async fn publish_backlog(&self, _: &Backlog) -> Result<(), StoreError> {
        Ok(())
    }

    async fn published_backlog(&self) -> Result<Option<Published<Backlog>>, StoreError> {
        Ok(None)
    }

    async fn events_taken_since(&self) -> Result<Timestamp, StoreError> {
        self.connection.world.store.events_taken_since().await
    }

    async fn report_rate(&self, _: &str, _: f64) -> Result<(), StoreError> {
        Ok(())
    }
}
