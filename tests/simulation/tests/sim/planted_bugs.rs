//! The simulation finds planted bugs. One that found none would prove nothing.

use std::collections::BTreeSet;

use sampler_simulation::{FORGETFUL, Found, Mutant, PLANTED, run, shrink};

/// How many seeds are tried where the one of the table does not find a bug any more.
const SEEDS: u64 = 300;

/// Whether the seed of the table finds the bug, or else another one of its kind.
fn is_found(found: &Found) -> bool {
    let Found {
        mutant,
        seed,
        words,
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
fn each_bug_is_in_the_table_once() {
    let names: BTreeSet<String> = PLANTED
        .iter()
        .map(|found| format!("{:?}", found.mutant))
        .collect();
    assert_eq!(names.len(), PLANTED.len());
}

#[test]
fn the_documents_have_each_planted_bug() {
    let source = include_str!("../../src/mutant.rs");
    let rows = PLANTED.iter().map(|found| row(found, source));
    let table = rows.collect::<String>();
    let page = include_str!("../../../../docs/correctness.md");
    assert!(
        page.contains(&table),
        "docs/correctness.md needs the rows\n{table}"
    );
}

/// The row of a bug: what its comment says, the seed, and the words of what is wrong.
fn row(found: &Found, source: &str) -> String {
    let name = format!("    {:?},", found.mutant);
    let lines: Vec<&str> = source.lines().collect();
    let at = lines.iter().position(|line| *line == name);
    let before = lines[..at.expect("the bug has a line of its own")].iter();
    let mut comment: Vec<&str> = before
        .rev()
        .map_while(|line| line.strip_prefix("    /// "))
        .collect();
    comment.reverse();
    let comment = comment.join(" ");
    let (first, rest) = comment.split_at(1);
    let bug = format!("{}{}", first.to_lowercase(), rest.trim_end_matches('.'));
    let upstream = if found.seed & FORGETFUL == 0 {
        ""
    } else {
        "forgets, "
    };
    let (seed, words) = (found.seed & !FORGETFUL, found.words.join(" or "));
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
