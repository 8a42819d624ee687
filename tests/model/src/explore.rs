//! Goes through all states of a scenario, the nearest first, or until a law is broken.

use std::collections::VecDeque;

use sampler_domain::ChangeKind;

use crate::facts::Facts;
use crate::laws::{Law, broken};
use crate::liveness::Future;
use crate::scenario::Scenario;
use crate::state::{Marks, State, mark_of};
use crate::steps::{About, Step};
use crate::world::World;

/// What an exploration has found.
#[derive(Debug)]
pub struct Explored {
    /// How many different states there are.
    pub states: usize,
    /// How many steps lead from one of them to another.
    pub steps: usize,
    /// Whether these are all states.
    pub is_all: bool,
    /// What changes were made.
    pub kinds: Vec<ChangeKind>,
    /// The first violation, if there is one.
    pub violation: Option<Violation>,
}

/// A law that is broken, and how.
#[derive(Debug)]
pub struct Violation {
    pub law: Law,
    /// The steps, with what the span says after each.
    pub trace: Vec<String>,
}

/// The two workers are alike: a state and the one with the workers changed round have one mark.
fn mark(world: &mut World, state: &State) -> u64 {
    mark_of(state).min(mark_of(&swapped(world, state)))
}

/// A state with the two workers changed round.
pub(crate) fn swapped(world: &mut World, state: &State) -> State {
    let mut swapped = *state;
    swapped.workers.swap(0, 1);
    swapped.span = world.swapped(state.span);
    if let Some(late) = &mut swapped.late {
        late.who = [1, 0, 2][late.who];
    }
    swapped
}

/// Explores at most so many states, until a law is broken: any, or the one that is wanted.
pub fn explore(scenario: Scenario, wanted: Option<Law>, states_max: usize) -> Explored {
    let search = Search {
        world: World::new(scenario),
        proven: Marks::default(),
        from: vec![(0, 0)],
        wanted,
    };
    search.run(states_max)
}

struct Search {
    world: World,
    proven: Marks,
    /// For each state the one before, and which of its steps leads here.
    from: Vec<(u32, u8)>,
    /// The one law that counts.
    wanted: Option<Law>,
}

impl Search {
    fn run(mut self, states_max: usize) -> Explored {
        let first = self.world.first();
        let mut seen = Marks::default();
        seen.insert(mark(&mut self.world, &first));
        let mut queue = VecDeque::from([(first, 0_u32)]);
        let (mut steps, mut kinds, mut violation) = (0, Vec::new(), None);
        'all: while let Some((state, number)) = queue.pop_front() {
            for (index, (next, step)) in self.world.next(&state).into_iter().enumerate() {
                steps += 1;
                if let About::Change(kind) = step.about
                    && !kinds.contains(&kind)
                {
                    kinds.push(kind);
                }
                if !seen.insert(mark(&mut self.world, &next)) {
                    continue;
                }
                let next_number = self.from.len() as u32;
                self.from.push((number, index as u8));
                violation = self.violation(&next, next_number);
                if violation.is_some() {
                    break 'all;
                }
                queue.push_back((next, next_number));
            }
            if self.from.len() >= states_max {
                break;
            }
        }
        Explored {
            states: self.from.len(),
            steps,
            is_all: queue.is_empty() && violation.is_none(),
            kinds,
            violation,
        }
    }

    fn violation(&mut self, state: &State, number: u32) -> Option<Violation> {
        let facts = self.world.facts(state.span);
        let wanted = self.wanted;
        let counts = |law: &Law| wanted.is_none_or(|wanted| wanted == *law);
        if let Some(law) = broken(state, &facts).find(counts) {
            let trace = self.trace(number);
            return Some(Violation { law, trace });
        }
        for future in Future::all() {
            let proven = &mut self.proven;
            let law = future.fails(&mut self.world, state, proven, |_, _| {});
            if let Some(law) = law.filter(counts) {
                let mut trace = self.trace(number);
                trace.push(format!("and from there: {future:?}"));
                let say = |step: &Step, facts: &Facts| trace.push(line(step, facts));
                future.fails(&mut self.world, state, &mut Marks::default(), say);
                return Some(Violation { law, trace });
            }
        }
        None
    }

    /// The steps that lead to a state.
    fn trace(&mut self, mut number: u32) -> Vec<String> {
        let mut indexes = Vec::new();
        while number != 0 {
            let (before, index) = self.from[number as usize];
            indexes.push(index);
            number = before;
        }
        let mut state = self.world.first();
        let steps = indexes.into_iter().rev().map(|index| {
            let (next, step) = self.world.next(&state)[usize::from(index)];
            state = next;
            line(&step, &self.world.facts(next.span))
        });
        steps.collect()
    }
}

/// A step, and what the span says after it.
fn line(step: &Step, facts: &Facts) -> String {
    format!("{step:<60} {facts}")
}
