//! Every law holds in every state of the small scenarios.

use sampler_domain::ChangeKind::{self, *};
use sampler_model::{SMALL, Scenario, explore};

/// Goes through a scenario that has at least so many states, and in which such changes are made.
fn assert_holds(name: &str, states_min: usize, kinds: &[ChangeKind]) {
    let explored = explore(Scenario::of(name), usize::MAX);
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
    one_window_and_two_actions: "window", 110_000,
        [Plan, Record, Complete, Fail, Flag, Skip, Trim, Resend, Move, Accept, RecordAgain, Resume];
    probes_and_a_second_refusal: "probe", 130_000, [Fail, Resume, Skip, Resend];
    refusals_that_say_nothing: "unclear", 60_000, [Fail, Skip, Resend, RecordAgain];
    a_plan_of_another_program: "foreign", 40_000, [Name, Record, Skip, Move, RecordAgain];
    time_that_passes: "time", 30_000, [Postpone, Plan, Skip];
    answers_of_the_database_are_lost: "silence", 100_000, [Name, Flag, Skip, Move];
    changes_are_made_late: "late", 330_000, [Name, Flag, Skip, Move];
    two_windows: "windows", 75_000, [Plan, Record, Complete];
    a_skip_of_several_windows: "parts", 70_000, [Skip, Trim, Move];
    a_change_of_the_dimension: "dimension", 10_000, [Plan, Record, Complete];
    an_upstream_that_remembers_nothing: "forgets", 55_000, [NotThere, Name, Record];
    an_upstream_that_forgets_soon: "horizon", 45_000, [NotThere, Name, Record];
}

#[test]
fn each_small_scenario_has_its_test() {
    let all = SMALL.map(|(name, _)| name);
    assert_eq!(TESTED, all);
}
