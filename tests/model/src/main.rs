//! Goes through all states of each scenario, and says how many there are.

use std::process::ExitCode;
use std::time::Instant;

use sampler_model::{MUST_HOLD, Scenario, explore};

fn main() -> ExitCode {
    let mut holds = true;
    for (name, scenario) in Scenario::all() {
        let begun = Instant::now();
        let explored = explore(scenario);
        let seconds = begun.elapsed().as_secs_f64();
        println!(
            "{name}: {} states, {} steps, {seconds:.1} s",
            explored.states, explored.steps
        );
        for (property, actions) in &explored.found {
            if MUST_HOLD.contains(property) {
                holds = false;
                println!("  broken: {property}, by {actions:#?}");
            }
        }
    }
    if holds {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
