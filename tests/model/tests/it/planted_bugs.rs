//! A protocol that is broken in one place breaks a law. A model that found no planted bug would prove nothing.

use std::fmt::Debug;

use sampler_model::{Planted, Scenario, explore};

/// More states than any bug needs to be found.
const STATES_MAX: usize = 1_000_000;

#[test]
fn each_planted_bug_breaks_its_law() {
    for (planted, _, name, law) in Planted::ALL {
        let scenario = Scenario::of(name).with(*planted);
        let explored = explore(scenario, Some(*law), STATES_MAX);
        let (states, violation) = (explored.states, explored.violation);
        assert!(
            violation.is_some(),
            "{planted:?}: {states} states, and {law:?} holds"
        );
        println!("{planted:?}: found after {states} states");
    }
}

#[test]
fn the_documents_have_each_planted_bug() {
    let rows = Planted::ALL
        .iter()
        .map(|(_, words, name, law)| format!("| {words} | model, {name} | {} |\n", in_words(law)));
    let table = rows.collect::<String>();
    let page = include_str!("../../../../docs/correctness.md");
    assert!(
        page.contains(&table),
        "docs/correctness.md needs the rows\n{table}"
    );
}

/// `EndsComplete` as "ends complete".
fn in_words(name: &impl Debug) -> String {
    let mut words = String::new();
    for letter in format!("{name:?}").chars() {
        if letter.is_uppercase() && !words.is_empty() {
            words.push(' ');
        }
        words.push(letter.to_ascii_lowercase());
    }
    words
}
