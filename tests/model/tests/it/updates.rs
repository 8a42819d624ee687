//! Updates hold in every order of steps, deaths and events of others; and a broken one does not.

use sampler_model::{INCOMPLETE, NOT_HALVED, REPEATED, UPDATES_MUST_HOLD, Updates};
use stateright::{Checker, Model};

fn explore(updates: Updates) -> impl Checker<Updates> {
    updates.checker().spawn_bfs().join()
}

fn assert_hold(updates: Updates) {
    let explored = explore(updates);
    println!("{} states", explored.unique_state_count());
    let found = explored.discoveries();
    for property in UPDATES_MUST_HOLD {
        assert!(
            !found.contains_key(property),
            "broken: {property}: {:?}",
            found[property]
        );
    }
    for property in [INCOMPLETE, REPEATED] {
        assert!(found.contains_key(property), "never: {property}");
    }
}

#[test]
fn a_change_of_the_plan() {
    assert_hold(Updates {
        stays: false,
        looks: true,
    });
}

#[test]
fn a_change_of_quantities() {
    assert_hold(Updates {
        stays: true,
        looks: true,
    });
}

/// The planted bug: the stop is kept while the start is refused.
#[test]
fn an_update_that_does_not_look_is_found() {
    let broken = Updates {
        stays: false,
        looks: false,
    };
    let found = explore(broken).discoveries();
    assert!(found.contains_key(NOT_HALVED), "it holds");
}
