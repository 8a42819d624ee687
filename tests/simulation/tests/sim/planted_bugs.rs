//! The simulation finds planted bugs. One that found none would prove nothing.

use std::collections::BTreeSet;

use sampler_simulation::{FORGETFUL, Found, Mutant, PLANTED, run, shrink};

/// How many seeds are tried where the one of the table does not find a bug any more.
const SEEDS: u64 = 300;

/// Runs the seed of the table, and others of its kind until one fails.
fn assert_found(found: &Found) {
    let Found {
        mutant,
        seed,
        words,
    } = *found;
    let kind = seed & FORGETFUL;
    for seed in std::iter::once(seed).chain((0..SEEDS).map(|seed| kind | seed)) {
        let violations = run(seed, mutant).violations;
        let is_meant = |text: &String| words.iter().any(|word| text.contains(word));
        if violations.iter().any(is_meant) {
            println!("{mutant:?} is found by seed {seed}: {}", violations[0]);
            return;
        }
        if let Some(other) = violations.first() {
            println!("{mutant:?}, seed {seed}: {other}");
        }
    }
    panic!("{mutant:?} is not found by {SEEDS} seeds");
}

/// Each of so many tests looks for an equal part of the bugs, so that they run at the same time.
const PARTS: usize = 4;

fn assert_part_found(part: usize) {
    PLANTED
        .iter()
        .skip(part)
        .step_by(PARTS)
        .for_each(assert_found);
}

#[test]
fn planted_bugs_are_found() {
    assert_part_found(0);
}

#[test]
fn more_planted_bugs_are_found() {
    assert_part_found(1);
}

#[test]
fn further_planted_bugs_are_found() {
    assert_part_found(2);
}

#[test]
fn the_other_planted_bugs_are_found() {
    assert_part_found(3);
}

#[test]
fn each_bug_is_in_the_table_once() {
    let names: BTreeSet<String> = PLANTED
        .iter()
        .map(|found| format!("{:?}", found.mutant))
        .collect();
    assert_eq!(names.len(), PLANTED.len());
}

/// A failing run is made short enough to be read.
#[test]
fn a_failing_seed_is_made_short() {
    let seed = (0..20).find(|seed| {
        !run(*seed, Mutant::FailureCountsAsAccepted)
            .violations
            .is_empty()
    });
    let shrunk = shrink(seed.unwrap(), Mutant::FailureCountsAsAccepted);
    assert!(!shrunk.outcome.violations.is_empty());
    assert!(shrunk.operations.len() <= 3, "{:#?}", shrunk.operations);
    assert!(shrunk.before > 10);
}
