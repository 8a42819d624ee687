//! Goes through all states of each scenario, two scenarios at a time, and says how many there are. Arguments
//! choose some, by name or as `start=0 acts=2 lost`.

use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use sampler_model::{LARGE, SMALL, Scenario, explore};

/// The most states of a scenario: about as many as 16 GB of memory hold.
const STATES_MAX: usize = 60_000_000;

fn main() -> ExitCode {
    let mut names: Vec<String> = std::env::args().skip(1).collect();
    if names.is_empty() {
        let all = SMALL.iter().chain(&LARGE);
        names = all.map(|(name, _)| (*name).to_owned()).collect();
    }
    let left = Mutex::new(names.iter());
    let holds = AtomicBool::new(true);
    let next = || left.lock().expect("nobody panics with it").next();
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(name) = next() {
                    holds.fetch_and(tell(name), Ordering::Relaxed);
                }
            });
        }
    });
    if holds.into_inner() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Says how many states there are, and which law is broken, if one is. Returns whether all hold.
fn tell(name: &str) -> bool {
    let begun = Instant::now();
    let explored = explore(Scenario::of(name), None, STATES_MAX);
    let seconds = begun.elapsed().as_secs_f64();
    let (states, steps) = (explored.states, explored.steps);
    let broken = explored.violation.map(|violation| {
        let trace = violation.trace.join("\n  ");
        format!("\n  broken: {:?}, by\n  {trace}", violation.law)
    });
    let rest = if explored.is_all || broken.is_some() {
        ""
    } else {
        ", and there are more"
    };
    let broken = broken.unwrap_or_default();
    println!("{name}: {states} states, {steps} steps, {seconds:.1} s{rest}{broken}");
    broken.is_empty()
}
