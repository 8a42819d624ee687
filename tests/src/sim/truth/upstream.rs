//! What Abacus says of usages.

use sampler_domain::{Entry, EntryState, Usage};

use crate::sim::world::World;

impl World {
    /// Abacus has counted a usage, for the first time.
    pub(crate) fn note_counted(&self, usage: &Usage, duration: i64) {
        let mut facts = self.truth.facts();
        let facts = &mut *facts;
        let problem = match facts.plans.get_mut(&usage.dedup_id) {
            None => Some("was never planned"),
            Some(plan) if plan.counted => Some("counts for the second time"),
            Some(plan) => {
                *facts.sums.entry(plan.span.clone()).or_default() += duration;
                let window = (plan.span.clone(), self.window_of(plan.interval.midpoint()));
                *facts.windows.entry(window).or_default() += duration;
                let was_accepted = std::mem::replace(&mut plan.accepted, true);
                plan.counted = true;
                if plan.noted && !plan.skipped && !plan.withheld && !was_accepted {
                    Some("was noted as executed before it was counted")
                } else if plan.interval.duration() != duration {
                    Some("stands for another duration than was planned")
                } else {
                    None
                }
            }
        };
        if let Some(problem) = problem {
            self.report_violation(format!(
                "the usage {} of {duration} ms {problem}",
                usage.dedup_id
            ));
        }
    }

    /// Abacus has taken a usage, and sets it aside.
    pub(crate) fn note_set_aside(&self, usage: &Usage, duration: i64) {
        let mut facts = self.truth.facts();
        let plan = facts.plans.get_mut(&usage.dedup_id);
        let is_planned = plan.is_some_and(|plan| {
            (plan.accepted, plan.was_set_aside) = (true, true);
            plan.interval.duration() == duration && !plan.counted
        });
        drop(facts);
        if !is_planned {
            self.report_violation(format!(
                "the usage {} of {duration} ms is set aside, and was planned otherwise",
                usage.dedup_id
            ));
        }
    }

    /// The ledger notes what Abacus says of a usage that it had accepted.
    pub(crate) fn note_confirmed(&self, entry: &Entry) {
        let mut facts = self.truth.facts();
        let plan = facts.plans.get(&entry.usage_guid);
        let is_right = plan.is_some_and(|plan| match entry.state {
            EntryState::Counted => plan.counted,
            EntryState::SetAside => plan.was_set_aside,
            _ => plan.accepted,
        });
        let guid = &entry.usage_guid;
        facts.entries.insert(guid.clone(), entry.clone());
        if entry.state == EntryState::SetAside {
            facts.aside_at.insert(guid.clone(), self.now());
        }
        drop(facts);
        if !is_right {
            self.report_violation(format!("{entry:?} is not what Abacus has said"));
        }
    }
}
