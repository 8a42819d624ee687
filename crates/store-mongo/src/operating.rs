//! The interface of operators and of what steers the programs: each call is in the file that its line
//! names.

use async_trait::async_trait;
use sampler_domain::{CauseId, Change, Changed, Control, Span, Timestamp};
use sampler_store::{
    ActOutcome, AuditRecord, Backlog, BacklogQuery, ControllerState, KeptControl, Operating,
    Published, Resumption, StoreError,
};
use uuid::Uuid;

use crate::{MongoStore, audit, backlog, causes, changes, control, watches, workers};

#[async_trait]
impl Operating for MongoStore {
    async fn record_action(&self, record: &AuditRecord) -> Result<(), StoreError> {
        audit::record_action(self, record).await
    }

    async fn record_outcome(&self, id: Uuid, outcome: ActOutcome) -> Result<(), StoreError> {
        audit::record_outcome(self, id, outcome).await
    }

    async fn change_by_operator(
        &self,
        read: &Span,
        change: &Change,
        now: Timestamp,
    ) -> Result<Changed, StoreError> {
        changes::change_by_operator(self, read, change, now).await
    }

    async fn resume_batch(
        &self,
        cause: CauseId,
        until: Timestamp,
        resumption: Resumption,
        limit: usize,
    ) -> Result<u64, StoreError> {
        causes::resume_batch(self, cause, until, resumption, limit).await
    }

    async fn resend_missing(&self, usage_guid: &str, now: Timestamp) -> Result<bool, StoreError> {
        watches::resend_missing(self, usage_guid, now).await
    }

    async fn time(&self) -> Result<Timestamp, StoreError> {
        workers::time(self).await
    }

    async fn control(&self) -> Result<KeptControl, StoreError> {
        control::control(self).await
    }

    async fn set_control(&self, control: &Control, version: i64) -> Result<bool, StoreError> {
        control::set_control(self, control, version).await
    }

    async fn controller(&self) -> Result<Option<Published<ControllerState>>, StoreError> {
        control::controller(self).await
    }

    async fn set_controller(&self, state: &ControllerState) -> Result<bool, StoreError> {
        control::set_controller(self, state).await
    }

    async fn count_backlog(&self, query: &BacklogQuery) -> Result<Backlog, StoreError> {
        backlog::count_backlog(self, query).await
    }

    async fn publish_backlog(&self, backlog: &Backlog) -> Result<(), StoreError> {
        backlog::publish_backlog(self, backlog).await
    }

    async fn published_backlog(&self) -> Result<Option<Published<Backlog>>, StoreError> {
        backlog::published_backlog(self).await
    }

    async fn events_taken_since(&self) -> Result<Timestamp, StoreError> {
        workers::events_taken_since(self).await
    }

    async fn report_rate(&self, worker: &str, rate: f64) -> Result<(), StoreError> {
        backlog::report_rate(self, worker, rate).await
    }
}
