//! The protocol holds in every state of every scenario.

use sampler_model::{MUST_HAPPEN, MUST_HOLD, PROBED, SUSPENDED, Scenario, explore};

fn assert_holds(scenario: Scenario, states_min: usize) {
    let refuses = scenario.suspend_after > 0;
    let explored = explore(scenario);
    println!("{} states, {} steps", explored.states, explored.steps);
    for property in MUST_HOLD {
        let violation = explored.found.get(property);
        assert!(violation.is_none(), "broken: {property}, by {violation:#?}");
    }
    let of_refusals = [SUSPENDED, PROBED].into_iter().filter(|_| refuses);
    for property in MUST_HAPPEN.into_iter().chain(of_refusals) {
        assert!(explored.found.contains_key(property), "never: {property}");
    }
    assert!(explored.states >= states_min, "{} states", explored.states);
}

#[test]
fn an_update_between_two_workers() {
    assert_holds(Scenario::update(), 1_150_000);
}

#[test]
fn events_in_any_order() {
    assert_holds(Scenario::disorder(), 410_000);
}

#[test]
fn a_late_stop_while_abacus_fails() {
    assert_holds(Scenario::outage(), 360_000);
}

#[test]
fn a_late_stop_while_abacus_refuses() {
    assert_holds(Scenario::refusal(), 20_000);
}
