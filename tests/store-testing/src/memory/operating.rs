//! The store in memory: operators, the control and the backlog.

use std::collections::BTreeMap;

use async_trait::async_trait;
use sampler_domain::{CauseId, Change, Changed, Control, Span, Timestamp};
use sampler_store::{
    ActOutcome, AuditRecord, Backlog, BacklogQuery, ControllerState, KeptControl, Operating,
    Published, Resumption, StoreError,
};
use uuid::Uuid;

use super::MemoryStore;

#[derive(Debug, Default)]
pub(crate) struct Steering {
    control: KeptControl,
    controller: Option<(ControllerState, Timestamp)>,
    backlog: Option<(Backlog, Timestamp)>,
    /// By the names of the workers.
    rates: BTreeMap<String, f64>,
}

of_table! {
    Operating {
        resume_batch(cause: CauseId, until: Timestamp, resumption: Resumption, limit: usize) -> u64;
        resend_missing(usage_guid: &str, now: Timestamp) -> bool;
    }

    async fn record_action(&self, record: &AuditRecord) -> Result<(), StoreError> {
        let mut state = self.lock();
        let kept = state.audit.entry(record.position());
        kept.or_insert_with(|| record.clone());
        Ok(())
    }

    async fn record_outcome(&self, id: Uuid, outcome: ActOutcome) -> Result<(), StoreError> {
        let mut state = self.lock();
        let kept = state.audit.values_mut().find(|record| record.id == id);
        if let Some(kept) = kept {
            kept.outcome = outcome;
        }
        Ok(())
    }

    async fn change_by_operator(
        &self,
        read: &Span,
        change: &Change,
        _now: Timestamp,
    ) -> Result<Changed, StoreError> {
        Ok(self.lock().table.change(read, change))
    }

    async fn time(&self) -> Result<Timestamp, StoreError> {
        Ok((self.clock)())
    }

    async fn control(&self) -> Result<KeptControl, StoreError> {
        Ok(self.lock().steering.control.clone())
    }

    async fn set_control(&self, control: &Control, version: i64) -> Result<bool, StoreError> {
        let kept = &mut self.lock().steering.control;
        if kept.version != version {
            return Ok(false);
        }
        kept.control = control.clone();
        kept.version += 1;
        Ok(true)
    }

    async fn controller(&self) -> Result<Option<Published<ControllerState>>, StoreError> {
        Ok(self.dated(|steering| steering.controller.clone()))
    }

    async fn set_controller(&self, state: &ControllerState) -> Result<bool, StoreError> {
        let now = (self.clock)();
        let kept = &mut self.lock().steering.controller;
        let version = kept.as_ref().map_or(0, |kept| kept.0.version);
        if version + 1 != state.version {
            return Ok(false);
        }
        *kept = Some((state.clone(), now));
        Ok(true)
    }

    async fn count_backlog(&self, query: &BacklogQuery) -> Result<Backlog, StoreError> {
        let now = (self.clock)();
        let state = self.lock();
        let is_alive = |name: &&String| {
            let seen_at = state.workers.get(*name);
            seen_at.is_some_and(|seen_at| now.since(*seen_at) < self.worker_lifetime)
        };
        let rates = state.steering.rates.iter();
        let rates = rates.filter(|(name, _)| is_alive(name));
        Ok(Backlog {
            rate: rates.fold(0.0, |sum, (_, rate)| sum + rate),
            ..state.table.backlog(query)
        })
    }

    async fn publish_backlog(&self, backlog: &Backlog) -> Result<(), StoreError> {
        let now = (self.clock)();
        self.lock().steering.backlog = Some((backlog.clone(), now));
        Ok(())
    }

    async fn published_backlog(&self) -> Result<Option<Published<Backlog>>, StoreError> {
        Ok(self.dated(|steering| steering.backlog.clone()))
    }

    async fn events_taken_since(&self) -> Result<Timestamp, StoreError> {
        Ok(self.lock().events_taken_since.unwrap_or(Timestamp::MIN))
    }

    async fn report_rate(&self, worker: &str, rate: f64) -> Result<(), StoreError> {
        let mut state = self.lock();
        if state.workers.contains_key(worker) {
            state.steering.rates.insert(worker.to_owned(), rate);
        }
        Ok(())
    }
}

impl MemoryStore {
    fn dated<T>(
        &self,
        kept: impl FnOnce(&Steering) -> Option<(T, Timestamp)>,
    ) -> Option<Published<T>> {
        let now = (self.clock)();
        let (value, at) = kept(&self.lock().steering)?;
        let age = now.since(at);
        Some(Published { value, age })
    }
}
