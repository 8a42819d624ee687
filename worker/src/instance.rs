//! The report of a worker about itself, for all instances.

use sampler_store::Instance;

use crate::Worker;

impl Worker {
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Adds what only this worker knows: the partitions that it owns, and why it pauses sampling.
    pub fn describe(&self, instance: &mut Instance) {
        let owned = self.ownership.partitions().len();
        instance.partitions = Some(u32::try_from(owned).unwrap_or(u32::MAX));
        instance.usages_today = Some(self.rate.today(self.now()));
        let operator = self.steering.is_sampling_paused().then_some("operator");
        let distress = self.distress.pauses().then_some("commit-time");
        let reasons = operator.into_iter().chain(distress);
        instance.paused_by = reasons.map(str::to_owned).collect();
    }
}
