//! What becomes of a state once faults cease: what is under way lands, both runs go on with what they keep in
//! mind (or have died), and operators resume and send again. The span must get complete, with `end - start`
//! upstream and in the ledger. Where all is refused, and operators skip, it must get complete, too.
//!
//! So no state is a dead end, and none waits for a particular worker.

use crate::explore::swapped;
use crate::facts::Facts;
use crate::laws::{Law, broken};
use crate::state::{Deed, Marks, State, mark_of};
use crate::steps::{Next, Step, When, Who, tick};
use crate::stretch::{Stretch, each};
use crate::worker;
use crate::world::World;

/// More steps than any scenario needs to its end.
const STEPS_MAX: usize = 400;
/// More ticks than a usage needs to be looked up and posted.
const TICKS_MAX: u8 = 8;
/// More actions of operators than any scenario needs to its end.
const ACTS: u8 = 200;

/// How a state goes on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Future {
    /// Both runs die first.
    pub dies: bool,
    /// All is refused.
    pub refuses: bool,
}

impl Future {
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        let of_refuses = |refuses| [false, true].map(|dies| Self { dies, refuses });
        [false, true].into_iter().flat_map(of_refuses)
    }

    /// The law that does not hold in it, or at its end. `proven` has the states from which all has come to a good
    /// end; `say` is told each step.
    pub(crate) fn fails(
        self,
        world: &mut World,
        state: &State,
        proven: &mut Marks,
        mut say: impl FnMut(&Step, &Facts),
    ) -> Option<Law> {
        let mut state = self.begun(world, state);
        let (mut path, mut turn) = (Vec::new(), 0);
        for number in 0..STEPS_MAX {
            turn = whose_turn(&state, turn);
            let mark = self.mark(world, &state, turn);
            if proven.contains(&mark) {
                break;
            }
            path.push(mark);
            if self.is_at_rest(world, &state) {
                let law = self.broken_at_rest(world, &state);
                if law.is_some() {
                    return law;
                }
                break;
            }
            let Some((next, step)) = self.step(world, &state, turn) else {
                return Some(self.law());
            };
            // Operators act as often as they must.
            state = State { acts: ACTS, ..next };
            let facts = world.facts(state.span);
            say(&step, &facts);
            if let Some(law) = broken(&state, &facts).next() {
                return Some(law);
            }
            if number + 1 == STEPS_MAX {
                return Some(self.law());
            }
        }
        proven.extend(path);
        None
    }

    /// What a state is told apart by, and whose turn it is; the workers are alike.
    fn mark(self, world: &mut World, state: &State, turn: usize) -> u64 {
        let swapped = swapped(world, state);
        let mark = mark_of(&(state, turn)).min(mark_of(&(swapped, 1 - turn)));
        mark.wrapping_add(u64::from(self.refuses))
    }

    fn law(self) -> Law {
        if self.refuses {
            Law::EndsSkipped
        } else {
            Law::EndsComplete
        }
    }

    fn begun(self, world: &mut World, state: &State) -> State {
        let mut state = *state;
        if self.dies {
            for who in 0..2 {
                state = worker::dead(world, &state, who);
            }
            state.late = None;
        }
        State {
            acts: ACTS,
            ..state
        }
    }

    /// The next step of a world in which nothing fails. A worker goes on until it has nothing in hand, then the
    /// other does: two that post in step could replace each other for ever. Time passes and operators act only
    /// where workers have nothing to do.
    fn step(self, world: &mut World, state: &State, turn: usize) -> Option<Next> {
        let order = [
            Who::Upstream,
            Who::Store,
            Who::Worker(turn),
            Who::Worker(1 - turn),
            Who::Resumes,
            Who::Skips,
            Who::Resends,
            Who::Clock,
            Who::Provider,
        ];
        let mut all = world.next(state);
        let now = if self.refuses {
            When::Refusing
        } else {
            When::Accepting
        };
        all.retain(|(_, step)| step.when == When::Always || step.when == now);
        for who in order {
            if let Some(place) = all.iter().position(|(_, step)| step.who == who) {
                return Some(all.swap_remove(place));
            }
        }
        let last = world.scenario.reach + world.scenario.ticks + TICKS_MAX;
        (state.now < last).then(|| tick(state))
    }

    /// Nothing is left to do.
    fn is_at_rest(self, world: &mut World, state: &State) -> bool {
        let facts = world.facts(state.span);
        facts.is_complete && state.is_idle() && (self.refuses || facts.excluded == 0)
    }

    fn broken_at_rest(self, world: &mut World, state: &State) -> Option<Law> {
        if self.refuses {
            return None;
        }
        let facts = world.facts(state.span);
        let counted: i32 = each(state.upstream.counted).map(Stretch::len).sum();
        let length = facts
            .end
            .map(|end| i32::from(end) - i32::from(world.scenario.start));
        let is_all = Some(counted) == length;
        (!is_all || state.ledger != state.upstream.counted).then_some(Law::EndsComplete)
    }
}

/// Whose turn it is: who has something in hand, and had the turn before.
fn whose_turn(state: &State, before: usize) -> usize {
    let is_busy = |who: usize| state.workers[who].deed != Deed::Nothing;
    if is_busy(1 - before) && !is_busy(before) {
        1 - before
    } else {
        before
    }
}
