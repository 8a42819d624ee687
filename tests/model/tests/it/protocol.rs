//! Every law holds in every state of the small scenarios.

use sampler_domain::ChangeKind::{self, *};
use sampler_model::{SMALL, Scenario, explore};

/// Goes through a scenario that has at least so many states, and in which such changes are made.
fn assert_holds(name: &str, states_min: usize, kinds: &[ChangeKind]) {
    let explored = explore(Scenario::of(name), None, usize::MAX);
    println!("{} states, {} steps", explored.states, explored.steps);
    assert!(explored.violation.is_none(), "{:#?}", explored.violation);
    assert!(explored.is_all);
    assert!(explored.states >= states_min, "{}", explored.states);
    for kind in kinds {
        assert!(explored.kinds.contains(kind), "never: {kind:?}");
    }
}

/// Tests by name: the scenario, how many states it has at least, and changes that it must have.
macro_rules! hold {
    ($($test:ident: $name:literal, $states_min:literal, [$($kind:ident),+];)+) => {
        $(
            #[test]
            fn $test() {
                assert_holds($name, $states_min, &[$($kind),+]);
            }
        )+

        const TESTED: &[&str] = &[$($name),+];
    };
}

hold! {
    one_window_and_three_actions: "window", 190_000,
        [Plan, Record, Complete, Fail, Flag, Skip, Trim, Resend, Move, Accept, RecordAgain, Resume];
    probes_and_a_second_refusal: "probe", 140_000, [Fail, Resume, Skip, Resend];
    refusals_that_say_nothing: "unclear", 65_000, [Fail, Skip, Resend, RecordAgain];
    a_plan_of_another_program: "foreign", 100_000, [Name, Record, Skip, Move, RecordAgain];
    time_that_passes: "time", 70_000, [Postpone, Plan, Skip, Resend];
    answers_of_the_database_are_lost: "silence", 240_000, [Name, Flag, Skip, Move, RecordAgain];
    changes_are_made_late: "late", 700_000, [Name, Flag, Skip, Move, RecordAgain];
    two_windows: "windows", 80_000, [Plan, Record, Complete];
    single_intervals_and_later_boundaries: "parts", 290_000, [Skip, Trim, Move, RecordAgain];
    a_change_of_the_dimension: "dimension", 250_000, [Plan, Record, Complete];
    an_upstream_that_remembers_nothing: "forgets", 95_000, [NotThere, Name, Record, Skip];
    an_upstream_that_forgets_soon: "horizon", 310_000, [NotThere, Record, Skip, RecordAgain];
}

#[test]
fn each_small_scenario_has_its_test() {
    let all = SMALL.map(|(name, _)| name);
    assert_eq!(TESTED, all);
}
