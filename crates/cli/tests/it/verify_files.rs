//! The files that `sampler verify` reads.

use serde_json::{Value, json};

use crate::api::{Api, HOUR, World, events};
use crate::verify::{MOMENT, NOW, three};
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
