//! The files that `sampler verify` reads, and what of them is looked at.

use serde_json::{Value, json};

use crate::api::{Api, HOUR, World, events};
use crate::verify::{MOMENT, NOW, json_of, three, verify_with};
use crate::{Ended, file, run, sampler};

/// What `sampler events send` reads: a list, with `CloudEvents` in it.
#[test]
fn lists_and_cloud_events_are_read_as_they_are_sent() {
    let mut world = World::new();
    world.add("shop", NOW - 7 * HOUR, 7, true);
    let event = events("shop", NOW - 7 * HOUR, 7, true);
    let mut data: Value = serde_json::from_str(&event).unwrap();
    data.as_object_mut().unwrap().shift_remove("timestamp");
    let time = "2026-11-22T06:00:00.0004Z";
    let cloud_event = json!({ "specversion": "1.0", "type": "com.example.start", "source": "/b",
                              "id": "1", "time": time, "data": data });
    let mut other = World::new();
    other.add("shop", NOW - 7 * HOUR, 7, true);
    other.spans[0]["start_event_id"] = json!("/b\u{1f}1");
    let (api, other) = (Api::start(world), Api::start(other));
    for (api, list) in [
        (&api, format!("[\n{event}]")),
        (&api, event),
        (&other, format!("[{cloud_event}]")),
    ] {
        let (_folder, path) = file("events.json", &list);
        let ended = run(&["verify", &path, "--url", &api.url(), "--now", MOMENT]);
        assert_eq!(ended.code, Some(0), "{ended:?}");
    }
}

#[test]
fn events_come_from_standard_input_too() {
    let (world, events) = three();
    let api = Api::start(world);
    let (_folder, path) = file("events.ndjson", &events);
    let arguments = [
        "verify",
        "-",
        "--format",
        "ndjson",
        "--url",
        &api.url(),
        "--now",
        MOMENT,
    ];
    let mut command = sampler(&arguments);
    let ended: Ended = command
        .stdin(std::fs::File::open(path).unwrap())
        .output()
        .unwrap()
        .into();
    assert_eq!(ended.code, Some(0), "{ended:?}");
}

/// Whoever has only some of the events asks for these: other instances are no mistake.
#[test]
fn instances_that_the_file_does_not_know_can_be_left_out() {
    let (world, events) = three();
    let api = Api::start(world);
    let orders = events.lines().filter(|line| line.contains("orders"));
    let orders: String = orders.flat_map(|line| [line, "\n"]).collect();
    let ended = verify_with(&api, &orders, &[]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(
        ended.output.starts_with("2 of 3 spans do not fit:\n"),
        "{}",
        ended.output
    );
    assert!(ended.output.contains("--known-only"), "{}", ended.output);
    let ended = verify_with(&api, &orders, &["--known-only"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    // A plan has no index by itself.
    let (code, document) = json_of(&api, &events, &["--plan-id", "large"]);
    assert_eq!((code, &document["totals"]["spans"]), (Some(0), &json!(3)));
    let asked = "/v1/spans?limit=100&plan_id=large&resource_id=postgres".to_owned();
    assert!(api.requests().contains(&asked), "{:?}", api.requests());
}

/// What does not fit comes first, and each line fits the terminal.
#[test]
fn what_does_not_fit_is_read_on_any_terminal() {
    let (mut world, events) = three();
    world.usages.get_mut("span-shop").unwrap().remove(3);
    let api = Api::start(world);
    let (_folder, path) = file("events.ndjson", &events);
    for width in [60, 80, 132] {
        let arguments = [
            "verify",
            &path,
            "--url",
            &api.url(),
            "--now",
            MOMENT,
            "--all",
        ];
        let mut command = sampler(&arguments);
        let ended: Ended = command
            .env("COLUMNS", width.to_string())
            .output()
            .unwrap()
            .into();
        assert_eq!(ended.code, Some(1), "{ended:?}");
        let lines: Vec<&str> = ended.output.lines().collect();
        assert_eq!(lines[0], "1 of 3 spans does not fit:");
        assert_eq!(lines[2], "postgres/large/shop", "{}", ended.output);
        let longest = lines.iter().map(|line| line.chars().count()).max();
        assert!(longest <= Some(width), "{longest:?}: {}", ended.output);
    }
}
