//! The store in memory: the instances that run.

use async_trait::async_trait;
use sampler_domain::Timestamp;

use super::{MemoryStore, WORKER_LIFETIME};
use crate::instances::sort_instances;
use crate::{INSTANCE_SHOWN, Instance, InstanceProgram, Instances, SeenInstance, StoreError};

fn is_shown(now: Timestamp, seen_at: Timestamp) -> bool {
    i128::from(now.since(seen_at))
        <= i128::try_from(INSTANCE_SHOWN.as_millis()).unwrap_or(i128::MAX)
}

#[async_trait]
impl Instances for MemoryStore {
    async fn report_instance(&self, instance: &Instance) -> Result<(), StoreError> {
        let now = (self.clock)();
        let instances = &mut self.lock().instances;
        let reported = (instance.clone(), now);
        if instances.insert(instance.name.clone(), reported).is_none() {
            instances.retain(|_, (_, seen_at)| is_shown(now, *seen_at));
        }
        Ok(())
    }

    async fn withdraw_instance(&self, name: &str) -> Result<(), StoreError> {
        self.lock().instances.remove(name);
        Ok(())
    }

    async fn instances(&self) -> Result<Vec<SeenInstance>, StoreError> {
        let now = (self.clock)();
        let state = self.lock();
        let seen = |instance: Instance, seen_at: Timestamp| SeenInstance {
            instance,
            seen_at,
            age: now.since(seen_at),
        };
        let reported = state.instances.values();
        let reported = reported.filter(|(_, seen_at)| is_shown(now, *seen_at));
        let mut all: Vec<_> = reported
            .map(|(instance, seen_at)| seen(instance.clone(), *seen_at))
            .collect();
        for (name, seen_at) in &state.workers {
            if now.since(*seen_at) < WORKER_LIFETIME && !state.instances.contains_key(name) {
                let worker = Instance::new(name.clone(), InstanceProgram::Worker);
                all.push(seen(worker, *seen_at));
            }
        }
        sort_instances(&mut all);
        Ok(all)
    }
}
