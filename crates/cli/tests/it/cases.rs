//! What people see, command by command, in `tests/cases`. `TRYCMD=overwrite` writes it as it is now.

use serde_json::{Value, json};
use trycmd::TestCases;

use crate::NOW;
use crate::api::{HOUR, World, events};

#[test]
fn people_see_what_the_cases_say() {
    let api = world().start();
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/cases/files.in/events.ndjson"
    );
    let mine: String =
        events("shop-db", NOW - 7 * HOUR, 7, true) + &events("late-db", NOW - 9 * HOUR, 2, false);
    assert_eq!(
        std::fs::read_to_string(path).unwrap(),
        mine,
        "the file of the cases"
    );
    let cases = TestCases::new();
    cases.register_bin(
        "sampler",
        std::path::PathBuf::from(env!("CARGO_BIN_EXE_sampler")),
    );
    cases.env("SAMPLER_URL", api.url());
    cases.env("NO_COLOR", "1");
    cases.case("tests/cases/*.trycmd");
    cases.run();
}

/// An instance with one span, one with two, one that ended; and one that is billed too little.
fn world() -> World {
    let mut world = World::new();
    world.add("shop-db", NOW - 7 * HOUR, 7, true);
    world.add("archive-db", NOW - 90 * HOUR, 3, false);
    world.add("late-db", NOW - 9 * HOUR, 2, false);
    world.usages.get_mut("span-late-db").unwrap().pop();
    for (id, start, is_open) in [
        ("small", NOW - 30 * HOUR, false),
        ("large", NOW - 5 * HOUR, true),
    ] {
        world.add(id, start, 5, is_open);
        let span: &mut Value = world.spans.last_mut().unwrap();
        span["target"]["resource_instance_id"] = json!("orders-db");
        span["target"]["plan_id"] = json!(id);
    }
    world
}
