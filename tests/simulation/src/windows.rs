//! No window of a span ever counts less than nothing upstream, unless what it takes back was set aside after it was
//! planned to be taken back.

use std::collections::BTreeMap;

use sampler_domain::{EntryState, SpanId, Timestamp};

use super::truth::Facts;
use super::world::World;

/// What counts of each span in each window, ms.
pub(crate) type Windows = BTreeMap<(SpanId, Timestamp), i64>;

impl Facts {
    /// The usages that a plan going backwards takes back, as far as the ledger says that they are billed.
    pub(crate) fn believed(&self, guid: &str) -> Vec<String> {
        let Some(plan) = self.plans.get(guid) else {
            return Vec::new();
        };
        let taken_back = self.plans.taken_back_by(&plan.span, plan.interval);
        let is_billed = |guid: &&String| {
            let entry = self.entries.get(*guid);
            entry.is_none_or(|entry| {
                !matches!(entry.state, EntryState::Skipped | EntryState::SetAside)
            })
        };
        taken_back.filter(is_billed).cloned().collect()
    }

    /// A worker decides to post what was withheld: what it takes back is billed now, as the ledger says.
    pub(crate) fn believe(&mut self, guid: &str) {
        let is_withheld = self.plans.get(guid).is_some_and(|plan| plan.withheld);
        let believed = if is_withheld {
            self.believed(guid)
        } else {
            Vec::new()
        };
        self.plans
            .change(guid, |plan| plan.believed.extend(believed));
    }

    /// Whether nobody could know that a window counts less than nothing: something was taken back when the
    /// ledger said that it was billed, and Abacus has set it aside.
    fn is_unknowable(&self, span: &SpanId, is_in_window: impl Fn(Timestamp) -> bool) -> bool {
        let is_aside = |guid: &String| {
            let plan = self.plans.get(guid);
            plan.is_some_and(|plan| plan.accepted && !plan.counted)
        };
        let mut back = self.plans.values().filter(|plan| {
            plan.span == *span && plan.counted && is_in_window(plan.interval.midpoint())
        });
        back.any(|plan| plan.believed.iter().any(is_aside))
    }
}

impl World {
    /// How many pieces were withheld, and how many of them count.
    pub(crate) fn count_withheld(&self) -> (u64, u64) {
        let facts = self.truth.facts();
        let withheld = facts.plans.values().filter(|plan| plan.withheld);
        let released = withheld.clone().filter(|plan| plan.counted);
        (withheld.count() as u64, released.count() as u64)
    }

    /// The window of a moment: the largest in which this run samples.
    pub(crate) fn window_of(&self, moment: Timestamp) -> Timestamp {
        self.setup.scale.coarse.window_of(moment)
    }

    /// Abacus has counted a usage: its window is not below zero by that.
    pub(crate) fn check_window(&self, guid: &str) {
        let facts = self.truth.facts();
        let Some(plan) = facts.plans.get(guid) else {
            return;
        };
        let window = self.window_of(plan.interval.midpoint());
        let at = (plan.span.clone(), window);
        let sum = facts.windows.get(&at).copied().unwrap_or_default();
        let is_in_window = |moment| self.window_of(moment) == window;
        let is_wrong = sum < 0 && !facts.is_unknowable(&plan.span, is_in_window);
        drop(facts);
        if is_wrong {
            let (id, _) = at;
            self.report_violation(format!(
                "{sum} ms of span {id} count in the window from {window}: what never counted was \
                 taken back"
            ));
        }
    }
}
