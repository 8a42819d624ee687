//! The protocol holds in every state of every scenario.

use sampler_model::{
    MUST_HAPPEN, MUST_HOLD, PROBED, RESENT, SET_ASIDE, SKIPPED, SUSPENDED, Scenario,
    WAKES_AFTER_REMOVAL, WITHHELD, explore,
};

fn assert_holds(scenario: Scenario, states_min: usize) {
    let (refuses, is_alone) = (scenario.suspend_after > 0, scenario.workers == 1);
    let (skips, resends) = (scenario.may_skip, scenario.resends_max > 0);
    let asides = scenario.asides_max > 0;
    let explored = explore(scenario);
    println!("{} states, {} steps", explored.states, explored.steps);
    for property in MUST_HOLD {
        let violation = explored.found.get(property);
        assert!(violation.is_none(), "broken: {property}, by {violation:#?}");
    }
    let of_refusals = [SUSPENDED, PROBED].into_iter().filter(|_| refuses);
    // Alone, no worker misses what becomes of its span.
    let must_happen = MUST_HAPPEN.into_iter();
    let must_happen = must_happen.filter(|property| !is_alone || *property != WAKES_AFTER_REMOVAL);
    let of_skips = Some(SKIPPED).filter(|_| skips);
    let of_resends = Some(RESENT).filter(|_| resends);
    let all = must_happen.chain(of_refusals).chain(of_skips);
    let of_asides = Some(SET_ASIDE).filter(|_| asides);
    let of_both = Some(WITHHELD).filter(|_| skips || asides);
    for property in all.chain(of_resends).chain(of_asides).chain(of_both) {
        assert!(explored.found.contains_key(property), "never: {property}");
    }
    assert!(explored.states >= states_min, "{} states", explored.states);
}

/// Tests by name: the scenario, and how many states it has at least.
macro_rules! hold {
    ($($name:ident: $scenario:ident, $states_min:literal;)+) => {$(
        #[test]
        fn $name() {
            assert_holds(Scenario::$scenario(), $states_min);
        }
    )+};
}

hold! {
    an_update_between_two_workers: update, 1_150_000;
    events_in_any_order: disorder, 410_000;
    a_late_stop_while_abacus_fails: outage, 360_000;
    a_late_stop_while_abacus_refuses: refusal, 100_000;
    what_abacus_refuses_is_given_up: skip, 50_000;
    what_was_given_up_is_sent_again: resend, 100_000;
    what_abacus_sets_aside_is_sent_again: aside, 120_000;
    an_upstream_that_remembers_nothing: forgets, 10_000;
    an_upstream_that_forgets_after_a_while: horizon, 10_000;
    what_abacus_sets_aside_repeatedly_is_sent_again: rounds, 10_000;
}
