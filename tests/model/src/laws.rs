//! What must hold in every state.

use crate::facts::{Facts, ZERO};
use crate::state::State;
use crate::stretch::{Stretch, Stretches, each};

/// What must hold, by name. The first ones are about what happens, and are noted in [`Past`](crate::state::Past).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Law {
    /// An id counts once.
    OneId,
    /// What is posted under an id is always the same.
    SameBytes,
    /// A correction is posted in the pieces in which its time was cut; what is excluded crosses no cut.
    OnCuts,
    /// A plan begins without failures.
    FreshPlan,
    /// No plan passes an end that is known.
    WithinEnd,
    /// Nothing is posted before its end.
    NotBefore,
    /// Only a refusal suspends.
    SuspendedByRefusal,
    /// What counts is `sampled_to - start - Σ excluded - Σ again`, but for what may count besides.
    Sum,
    /// No time counts less than nothing, or twice.
    Windows,
    /// Nothing counts that is excluded, unless a post of it had no answer.
    ExcludedCounts,
    /// Nothing counts that is neither recorded, nor planned, nor excluded or in `again`.
    CountsNowhere,
    /// What is recorded counts.
    RecordedCounts,
    /// Planned, recorded, excluded and `again` have nothing in common.
    Disjoint,
    /// A trim goes back over what was skipped forwards alone.
    TrimsForwards,
    /// An entry is of what counts.
    EntryCounts,
    /// What is recorded has its entry.
    RecordedHasEntry,
    /// What is excluded has no entry, unless a post of it had no answer.
    ExcludedHasNoEntry,
    /// A complete span is sampled to its end, and has nothing left to send.
    CompleteIsAll,
    /// Once faults cease, the span gets complete, with `end - start` upstream and in the ledger.
    EndsComplete,
    /// Where all is refused, and skipped, it gets complete.
    EndsSkipped,
}

/// What does not hold in a state.
pub(crate) fn broken(state: &State, facts: &Facts) -> impl Iterator<Item = Law> {
    let counted = state.upstream.counted;
    let recorded = state.past.recorded;
    let all = [
        (Law::TrimsForwards, !facts.trims_correction),
        (Law::OnCuts, facts.inside & state.past.cuts == 0),
        (Law::Disjoint, are_disjoint(state, facts)),
        (Law::ExcludedCounts, excluded_does_not_count(state, facts)),
        (Law::CountsNowhere, counted & !known(state, facts) == 0),
        (Law::RecordedCounts, recorded & !counted == 0),
        (Law::Sum, is_sum_right(state, facts)),
        (Law::Windows, are_windows_right(counted)),
        (Law::EntryCounts, state.ledger & !counted == 0),
        (Law::RecordedHasEntry, recorded & !state.ledger == 0),
        (
            Law::ExcludedHasNoEntry,
            facts.excluded & !facts.unanswered & state.ledger == 0,
        ),
        (Law::CompleteIsAll, is_complete_right(facts)),
    ];
    let seen = all.into_iter().filter(|(_, holds)| !holds);
    state
        .past
        .broken
        .into_iter()
        .chain(seen.map(|(law, _)| law))
}

fn are_disjoint(state: &State, facts: &Facts) -> bool {
    let planned = facts.planned.map_or(0, Stretch::set);
    let all = planned | facts.excluded | facts.first_left | facts.again;
    !facts.overlaps && !facts.opposes && state.past.recorded & all == 0
}

/// What a span knows of, in whatever place.
fn known(state: &State, facts: &Facts) -> Stretches {
    let planned = facts.planned.map_or(0, Stretch::set);
    state.past.recorded | planned | facts.excluded | facts.first_left | facts.again
}

fn excluded_does_not_count(state: &State, facts: &Facts) -> bool {
    let counted = state.upstream.counted;
    let surely = (facts.excluded | facts.again) & !facts.unanswered;
    let mut ways_back = facts.ways_back.iter();
    surely & counted == 0
        && ways_back.all(|(way_back, forth)| !way_back.is_in(counted) || forth.is_in(counted))
}

fn is_sum_right(state: &State, facts: &Facts) -> bool {
    let counted: i32 = each(state.upstream.counted).map(Stretch::len).sum();
    let more = counted - facts.billed + ZERO as i32;
    (0..128).contains(&more) && facts.sums >> more & 1 == 1
}

fn are_windows_right(counted: Stretches) -> bool {
    let mut halves = [0_i8; 10];
    for usage in each(counted) {
        let (low, high) = usage.range();
        let sign = if usage.leads_on() { 1 } else { -1 };
        for half in &mut halves[usize::from(low)..usize::from(high)] {
            *half += sign;
        }
    }
    halves.iter().all(|half| (0..=1).contains(half))
}

fn is_complete_right(facts: &Facts) -> bool {
    let is_all =
        facts.planned.is_none() && facts.first.is_none() && facts.end == Some(facts.sampled_to);
    !facts.is_complete || is_all
}
