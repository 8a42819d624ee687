//! What Abacus says of usages.

use sampler_domain::{EARLIER_ROUNDS_MAX, Entry, EntryState, Usage};

use crate::world::{Tally, World};

impl World {
    /// Abacus has counted a usage, for the first time.
    pub(crate) fn note_counted(&self, usage: &Usage, duration: i64) {
        let mut facts = self.truth.facts();
        let facts = &mut *facts;
        let problem = facts.plans.change(&usage.dedup_id, |plan| {
            if plan.counted {
                return Some("counts for the second time");
            }
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
        });
        let problem = problem.unwrap_or(Some("was never planned"));
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
        let is_planned = facts.plans.change(&usage.dedup_id, |plan| {
            (plan.accepted, plan.was_set_aside) = (true, true);
            plan.interval.duration() == duration && !plan.counted
        });
        drop(facts);
        if !is_planned.unwrap_or(false) {
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
        let mut forgets_rounds = false;
        if entry.state == EntryState::SetAside {
            facts.aside_at.insert(guid.clone(), self.now());
            let rounds = facts.asides_noted.entry(guid.clone()).or_default();
            forgets_rounds = entry.earlier_rounds.len() != (*rounds).min(EARLIER_ROUNDS_MAX);
            *rounds += 1;
            if *rounds > 1 {
                Tally::add(&self.tally.set_aside_again);
            }
        }
        drop(facts);
        if forgets_rounds {
            self.report_violation(format!("{entry:?} does not have its earlier rounds"));
        }
        if !is_right {
            self.report_violation(format!("{entry:?} is not what Abacus has said"));
        }
    }
}
