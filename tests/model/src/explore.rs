//! Explores all states of a scenario, or until violations are found.

use std::collections::BTreeMap;
use std::hash::Hash;
use std::num::NonZeroUsize;
use std::thread::available_parallelism;

use stateright::{Checker, HasDiscoveries, Model};

use crate::protocol::{Action, Protocol};
use crate::scenario::Scenario;

/// The most states to explore: a broken protocol may have infinitely many.
const STATES_MAX: usize = 20_000_000;

/// The result of an exploration.
#[derive(Clone, Debug)]
pub struct Explored<A = Action> {
    /// How many different states there are.
    pub states: usize,
    /// How many steps lead from one of them to another.
    pub steps: usize,
    /// What was found, with the actions that lead there: violations of what must always hold, and
    /// examples of what must be possible.
    pub found: BTreeMap<&'static str, Vec<A>>,
}

/// Goes through all states.
pub fn explore(scenario: Scenario) -> Explored {
    let threads = available_parallelism().map_or(1, NonZeroUsize::get);
    let checker = Protocol::new(scenario).checker().threads(threads);
    explored(&checker.spawn_dfs().join())
}

/// Searches for violations of these properties, the shortest first, until it has one of each.
pub fn find_violations<M>(model: M, properties: &[&'static str]) -> Explored<M::Action>
where
    M: Model + Send + Sync + 'static,
    M::State: Clone + PartialEq + Hash + Send + Sync,
    M::Action: Clone + PartialEq + Send + Sync,
{
    let all = properties.iter().copied().collect();
    let checker = model.checker().target_state_count(STATES_MAX);
    let checker = checker.finish_when(HasDiscoveries::AllOf(all));
    explored(&checker.spawn_bfs().join())
}

fn explored<M>(checker: &impl Checker<M>) -> Explored<M::Action>
where
    M: Model,
    M::State: Clone + PartialEq,
    M::Action: Clone + PartialEq,
{
    let discoveries = checker.discoveries().into_iter();
    Explored {
        states: checker.unique_state_count(),
        steps: checker.state_count(),
        found: discoveries
            .map(|(name, path)| (name, path.into_actions()))
            .collect(),
    }
}
