//! The store in memory: the backlog, the control, and the state of the controller.

use std::collections::BTreeMap;

use async_trait::async_trait;
use sampler_domain::{Control, Timestamp};

use super::{MemoryStore, WORKER_LIFETIME};
use crate::{
    Backlog, BacklogQuery, Backlogs, ControllerState, Controls, KeptControl, Published,
    Replication, StoreError,
};

#[derive(Debug, Default)]
pub(crate) struct Steering {
    control: KeptControl,
    controller: Option<(ControllerState, Timestamp)>,
    backlog: Option<(Backlog, Timestamp)>,
    /// By the names of the workers.
    rates: BTreeMap<String, f64>,
    lag: Option<i64>,
}

#[async_trait]
impl Backlogs for MemoryStore {
    async fn count(&self, query: &BacklogQuery) -> Result<Backlog, StoreError> {
        let now = (self.clock)();
        let state = self.lock();
        let is_alive = |name: &&String| {
            let seen_at = state.workers.get(*name);
            seen_at.is_some_and(|seen_at| now.since(*seen_at) < WORKER_LIFETIME)
        };
        let rates = state.steering.rates.iter();
        let rates = rates.filter(|(name, _)| is_alive(name));
        Ok(Backlog {
            rate: rates.fold(0.0, |sum, (_, rate)| sum + rate),
            ..state.table.backlog(query)
        })
    }

    async fn publish(&self, backlog: &Backlog) -> Result<(), StoreError> {
        let now = (self.clock)();
        self.lock().steering.backlog = Some((backlog.clone(), now));
        Ok(())
    }

    async fn published(&self) -> Result<Option<Published<Backlog>>, StoreError> {
        Ok(self.dated(|steering| steering.backlog.clone()))
    }

    async fn report_rate(&self, worker: &str, rate: f64) -> Result<(), StoreError> {
        let mut state = self.lock();
        if state.workers.contains_key(worker) {
            state.steering.rates.insert(worker.to_owned(), rate);
        }
        Ok(())
    }
}

#[async_trait]
impl Controls for MemoryStore {
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
}

#[async_trait]
impl Replication for MemoryStore {
    async fn commit_lag(&self) -> Result<Option<i64>, StoreError> {
        Ok(self.lock().steering.lag)
    }
}

impl MemoryStore {
    /// Sets how far a majority is behind, ms.
    pub fn set_commit_lag(&self, lag: Option<i64>) {
        self.lock().steering.lag = lag;
    }

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
