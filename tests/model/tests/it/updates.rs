//! Updates hold in every order of steps, deaths and events of others; and a broken one does not.

use sampler_model::{
    INCOMPLETE, MISTAKEN, NOT_CLAIMED, NOT_DENIED, NOT_HALVED, ONE_START, REPEATED, SentUpdates,
    UPDATES_MUST_HOLD, UpdateMutant, Updates, explore_updates, find_violations,
};

fn assert_hold(sent: SentUpdates, must_happen: &[&str]) {
    let explored = explore_updates(Updates { sent, mutant: None });
    println!("{} states, {} steps", explored.states, explored.steps);
    for property in UPDATES_MUST_HOLD {
        let violation = explored.found.get(property);
        assert!(violation.is_none(), "broken: {property}, by {violation:#?}");
    }
    for property in must_happen {
        assert!(explored.found.contains_key(property), "never: {property}");
    }
}

#[test]
fn a_change_of_the_plan() {
    assert_hold(SentUpdates::Change, &[INCOMPLETE, REPEATED]);
}

#[test]
fn a_change_of_quantities() {
    assert_hold(SentUpdates::Resize, &[INCOMPLETE, REPEATED]);
}

#[test]
fn two_updates_under_one_id_to_one_target() {
    assert_hold(SentUpdates::ToOneTarget, &[INCOMPLETE, REPEATED, MISTAKEN]);
}

#[test]
fn two_updates_under_one_id_from_one_target() {
    assert_hold(SentUpdates::FromOneTarget, &[INCOMPLETE, REPEATED]);
}

/// The model must find a way to break this.
fn assert_breaks(sent: SentUpdates, mutant: UpdateMutant, property: &'static str) {
    let mutant = Some(mutant);
    let explored = find_violations(Updates { sent, mutant }, &[property]);
    assert!(explored.found.contains_key(property), "holds: {property}");
}

/// The stop is kept while the start is refused.
#[test]
fn an_update_that_does_not_look_is_found() {
    assert_breaks(SentUpdates::Change, UpdateMutant::DoesNotLook, NOT_HALVED);
}

/// Another request with the update makes both halves between the reads, and the one that has read too
/// early says that nothing was kept.
#[test]
fn halves_that_are_read_before_what_is_in_the_way_are_found() {
    for sent in [SentUpdates::Change, SentUpdates::Resize] {
        assert_breaks(sent, UpdateMutant::ReadsHalvesFirst, NOT_DENIED);
    }
}

/// One use is stopped once, and started as two.
#[test]
fn a_repeated_stop_that_is_trusted_is_found() {
    assert_breaks(
        SentUpdates::FromOneTarget,
        UpdateMutant::TrustsRepeatedStop,
        ONE_START,
    );
}

#[test]
fn a_repeated_start_that_is_trusted_is_found() {
    assert_breaks(
        SentUpdates::ToOneTarget,
        UpdateMutant::TrustsRepeatedStart,
        NOT_CLAIMED,
    );
}
