//! The law holds on every seed, and a seed is a run.

use std::time::{SystemTime, UNIX_EPOCH};

use sampler_simulation::{FORGETFUL, Mutant, run, run_with_log, shrink};

/// Runs seeds; fails with the first that fails, made short.
fn run_all(seeds: impl Iterator<Item = u64>) {
    for seed in seeds {
        if run(seed, Mutant::None).violations.is_empty() {
            continue;
        }
        let shrunk = shrink(seed, Mutant::None);
        panic!(
            "seed {seed} fails: {:#?}\nwith {:#?}\nto run it retried: \
             cargo xtask sim --seeds 1 --from {seed}",
            shrunk.outcome.violations, shrunk.operations
        );
    }
}

#[test]
fn the_law_holds_on_these_seeds() {
    run_all(0..150);
}

#[test]
fn the_law_holds_on_these_seeds_too() {
    run_all(150..300);
}

/// The same with upstreams that forget.
#[test]
fn the_law_holds_where_the_upstream_forgets() {
    run_all(FORGETFUL..FORGETFUL + 150);
}

/// Seeds that have failed once: the last four for faults of resends, 5,006,268 because a worker's clock showed
/// the end of all time, the others for faults of the simulation. Where the upstream forgets, only the last three
/// were no faults of the simulation: what a driver posted again was set aside, and what was missing was sent again
/// beside its span.
#[test]
fn the_law_holds_on_seeds_that_have_failed() {
    let of_simulation = [
        25, 106, 109, 291, 319, 344, 364, 489, 635, 347, 1_280, 300_718, 1_000_210, 1_003_051,
        5_002_549, 5_006_268, 5_006_531, 5_007_800, 5_031_441, 5_035_787, 5_045_398, 5_047_344,
        5_062_258, 5_065_217, 5_076_765, 5_090_861, 106_965, 118_692, 2_047_110,
    ];
    run_all(
        of_simulation
            .into_iter()
            .chain([301_309, 700_049, 800_097, 901_884]),
    );
    let of_forgetful = [2_000_171, 2_001_182, 2_001_607, 2_000_416, 118_322];
    run_all(of_forgetful.into_iter().map(|seed| FORGETFUL + seed));
}

#[test]
fn the_law_holds_on_fresh_seeds() {
    #[expect(clippy::disallowed_methods, reason = "fresh seeds come from the clock")]
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let from = u64::try_from(now.as_millis()).unwrap();
    println!("seeds {from} to {}", from + 49);
    run_all(from..from + 50);
}

#[test]
fn the_same_seed_gives_the_same_log_byte_for_byte() {
    for seed in 1_000..1_020 {
        let first = run_with_log(seed, Mutant::None).log;
        let second = run_with_log(seed, Mutant::None).log;
        assert!(first.len() > 100, "seed {seed} does next to nothing");
        for (line, (first, second)) in first.iter().zip(&second).enumerate() {
            assert_eq!(first, second, "line {line} of seed {seed}");
        }
        assert_eq!(first.len(), second.len(), "seed {seed}");
    }
}
