//! The simulation finds planted bugs. One that found none would prove nothing.

use sampler_simulation::{FORGETFUL, Found, Mutant, PLANTED, run, shrink};

/// How many seeds are tried where the one of the table does not find a bug any more.
const SEEDS: u64 = 300;

/// Whether the seed of the table finds the bug, or else another one of its kind.
fn is_found(found: &Found) -> bool {
    let Found {
        mutant,
        seed,
        words,
        ..
    } = *found;
    let kind = seed & FORGETFUL;
    for seed in std::iter::once(seed).chain((0..SEEDS).map(|seed| kind | seed)) {
        let violations = run(seed, mutant).violations;
        let is_meant = |text: &&String| words.iter().any(|word| text.contains(word));
        if let Some(violation) = violations.iter().find(is_meant) {
            println!("{mutant:?} is found by seed {seed}: {violation}");
            return true;
        }
        if let Some(other) = violations.first() {
            println!("{mutant:?} is found otherwise by seed {seed}: {other}");
        }
    }
    false
}

/// Each of so many tests looks for an equal part of the bugs, so that they run at the same time.
const PARTS: usize = 4;

fn assert_part_found(part: usize) {
    let of_part = PLANTED.iter().skip(part).step_by(PARTS);
    let missed = of_part.filter(|found| !is_found(found));
    let missed: Vec<Mutant> = missed.map(|found| found.mutant).collect();
    assert!(missed.is_empty(), "{SEEDS} seeds do not find {missed:?}");
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
fn the_documents_have_each_planted_bug() {
    let table = PLANTED.iter().map(row).collect::<String>();
    let page = include_str!("../../../../docs/correctness.md");
    assert!(
        page.contains(&table),
        "docs/correctness.md needs the rows\n{table}"
    );
}

fn row(found: &Found) -> String {
    let is_forgetful = found.seed & FORGETFUL != 0;
    let upstream = if is_forgetful { "forgets, " } else { "" };
    let (seed, words) = (found.seed & !FORGETFUL, found.words.join(" or "));
    let bug = found.bug;
    format!("| {bug} | simulation, {upstream}seed {seed} | {words} |\n")
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
