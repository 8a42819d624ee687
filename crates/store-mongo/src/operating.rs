//! The interface of operators, and of what steers the programs.

use std::time::Duration;

use async_trait::async_trait;
use bson::{Bson, DateTime, Document, doc};
use sampler_domain::{CauseId, Change, Changed, Control, Span, Timestamp};
use sampler_store::{
    ActOutcome, AuditRecord, Backlog, BacklogQuery, ControllerState, KeptControl, Operating,
    Published, Resumption, StoreError,
};
use uuid::Uuid;

use crate::call::BY_ID;
use crate::control::{BACKLOG, CONTROL, CONTROLLER, dated};
use crate::raw::{decoded, unreadable};
use crate::{MongoStore, audit, backlog, causes, changes, watches};

/// How long a worker counts as alive after a heartbeat.
const LIFETIME: Duration = Duration::from_secs(20);

/// The document that says since when receivers take events.
pub(crate) const EVENTS: &str = "events";

/// The condition that a worker is alive. One that was seen in the future has died under another primary, whose clock
/// was ahead.
pub(crate) fn is_alive() -> Document {
    let millis = i64::try_from(LIFETIME.as_millis()).expect("20 s fit");
    let from = doc! { "$subtract": ["$$NOW", Bson::Int64(millis)] };
    let to = doc! { "$add": ["$$NOW", Bson::Int64(millis)] };
    doc! { "$expr": { "$and": [{ "$gt": ["$seen_at", from] }, { "$lt": ["$seen_at", to] }] } }
}

pub(crate) fn date_in(document: &Document, name: &str) -> Result<Timestamp, StoreError> {
    let date = document.get_datetime(name).map(|date| time_of(*date));
    date.map_err(|problem| StoreError::refused(unreadable(format!("{name}: {problem}"))))
}

pub(crate) fn time_of(date: DateTime) -> Timestamp {
    Timestamp::clamped(date.timestamp_millis())
}

#[async_trait]
impl Operating for MongoStore {
    async fn record_action(&self, record: &AuditRecord) -> Result<(), StoreError> {
        // A repeat after a lost answer changes nothing.
        let update = doc! { "$setOnInsert": audit::written(record) };
        let by_id = doc! { "_id": record.id.to_string() };
        self.audit.update_one(by_id, update, true).await?;
        Ok(())
    }

    async fn record_outcome(&self, id: Uuid, outcome: ActOutcome) -> Result<(), StoreError> {
        let update = doc! { "$set": { "outcome": outcome.name() } };
        let by_id = doc! { "_id": id.to_string() };
        self.audit.update_one(by_id, update, false).await?;
        Ok(())
    }

    async fn change_by_operator(
        &self,
        read: &Span,
        change: &Change,
        now: Timestamp,
    ) -> Result<Changed, StoreError> {
        let filter = decoded(&changes::condition(read));
        let update = decoded(&changes::update(read, &change.after, now));
        let link = self.link.clone();
        let call = async move { link.find_and_update(filter, update, (BY_ID, doc! {})).await };
        Ok(if self.link.run(call).await? {
            Changed::Made
        } else {
            Changed::Rejected
        })
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
        let database = self.link.database.clone();
        let hello = async move { database.run_command(doc! { "hello": 1 }).await };
        date_in(&self.link.run(hello).await?, "localTime")
    }

    async fn control(&self) -> Result<KeptControl, StoreError> {
        match self.control.find_by_id(CONTROL).await? {
            Some(found) => bson::deserialize_from_document(found).map_err(StoreError::refused),
            None => Ok(KeptControl::default()),
        }
    }

    async fn set_control(&self, control: &Control, version: i64) -> Result<bool, StoreError> {
        let kept = KeptControl {
            control: control.clone(),
            version: version.saturating_add(1),
        };
        self.replace(CONTROL, version, &kept).await
    }

    async fn controller(&self) -> Result<Option<Published<ControllerState>>, StoreError> {
        self.published(CONTROLLER, "controller.unreadable").await
    }

    async fn set_controller(&self, state: &ControllerState) -> Result<bool, StoreError> {
        let before = state.version.saturating_sub(1);
        self.replace(CONTROLLER, before, state).await
    }

    async fn count_backlog(&self, query: &BacklogQuery) -> Result<Backlog, StoreError> {
        backlog::count_backlog(self, query).await
    }

    async fn publish_backlog(&self, backlog: &Backlog) -> Result<(), StoreError> {
        let (by_id, update) = (doc! { "_id": BACKLOG }, dated(BACKLOG, backlog)?);
        self.control.update_one(by_id, update, true).await?;
        Ok(())
    }

    async fn published_backlog(&self) -> Result<Option<Published<Backlog>>, StoreError> {
        self.published(BACKLOG, "backlog.unreadable").await
    }

    async fn events_taken_since(&self) -> Result<Timestamp, StoreError> {
        match self.control.find_by_id(EVENTS).await? {
            Some(found) => date_in(&found, "taken_since"),
            None => Ok(Timestamp::MIN),
        }
    }

    async fn report_rate(&self, worker: &str, rate: f64) -> Result<(), StoreError> {
        let (by_name, update) = (doc! { "_id": worker }, doc! { "$set": { "rate": rate } });
        self.workers.update_one(by_name, update, false).await?;
        Ok(())
    }
}
