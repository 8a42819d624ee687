//! Goes through all states of each scenario, and says how many there are.

use std::fmt::Debug;
use std::process::ExitCode;
use std::time::Instant;

use sampler_model::{Explored, MUST_HOLD, Scenario, explore};

fn main() -> ExitCode {
    let mut holds = true;
    for (name, scenario) in Scenario::all() {
        holds &= tell(name, &MUST_HOLD, || explore(scenario));
    }
    if holds {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Says how many states there are, and what does not hold in one of them. Returns whether all holds.
fn tell<A: Debug>(name: &str, must_hold: &[&str], explore: impl FnOnce() -> Explored<A>) -> bool {
    let begun = Instant::now();
    let explored = explore();
    let seconds = begun.elapsed().as_secs_f64();
    println!(
        "{name}: {} states, {} steps, {seconds:.1} s",
        explored.states, explored.steps
    );
    let broken = explored.found.iter();
    let mut broken = broken
        .filter(|(property, _)| must_hold.contains(property))
        .peekable();
    let holds = broken.peek().is_none();
    for (property, actions) in broken {
        println!("  broken: {property}, by {actions:#?}");
    }
    holds
}
