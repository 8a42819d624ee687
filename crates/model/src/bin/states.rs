//! Explores.
use std::time::Instant;

use sampler_model::{Protocol, Scenario};
use stateright::{Checker, Model};

fn main() {
    let arg = |n: usize| std::env::args().nth(n).and_then(|a| a.parse::<usize>().ok());
    let mut s = Scenario::update();
    s.workers = arg(1).unwrap_or(2);
    s.events.truncate(arg(2).unwrap_or(9));
    s.moments.truncate(arg(3).unwrap_or(9));
    s.failures = arg(4).unwrap_or(0) as u32;
    let t = Instant::now();
    let c = Protocol(s).checker().threads(2).target_state_count(60_000_000).spawn_dfs().join();
    println!("{:?} unique {} total {} depth {}", t.elapsed(), c.unique_state_count(), c.state_count(), c.max_depth());
    for (name, path) in c.discoveries() {
        println!("== {name}: {}", path.into_actions().len());
    }
}
