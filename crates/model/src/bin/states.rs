//! Explores.
use sampler_model::{Protocol, Scenario};
use stateright::{Checker, Model};
use std::time::Instant;

fn main() {
    let arg = |n: usize| {
        std::env::args()
            .nth(n)
            .and_then(|a| a.parse::<usize>().ok())
    };
    let mut s = Scenario::update();
    if let Some(n) = arg(1) {
        s.receivers = n;
    }
    if let Some(n) = arg(2) {
        s.workers = n;
    }
    if let Some(n) = arg(3) {
        s.events.truncate(n);
    }
    if let Some(n) = arg(4) {
        s.moments.truncate(n);
    }
    if let Some(n) = arg(5) {
        s.failures = n as u32;
    }
    let t = Instant::now();
    let c = Protocol(s)
        .checker()
        .threads(2)
        .target_state_count(20_000_000)
        .spawn_dfs()
        .join();
    println!(
        "{:?} unique {} total {} depth {}",
        t.elapsed(),
        c.unique_state_count(),
        c.state_count(),
        c.max_depth()
    );
    for (name, path) in c.discoveries() {
        println!("== {name}: {}", path.into_actions().len());
    }
}
