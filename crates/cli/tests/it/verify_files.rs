//! The files that `sampler verify` reads, and what of them is looked at.

use serde_json::{Value, json};

use crate::api::{HOUR, World, events};
use crate::verify::{MOMENT, three};
use crate::{Ended, NOW, file, run_in, sampler};

/// What `sampler events send` reads: a list, with `CloudEvents` in it.
#[test]
fn lists_and_cloud_events_are_read_as_they_are_sent() {
    let event = events("shop", NOW - 7 * HOUR, 7, true);
    let mut data: Value = serde_json::from_str(&event).unwrap();
    data.as_object_mut().unwrap().shift_remove("timestamp");
    let time = "2026-11-22T06:00:00.0004Z";
    let cloud_event = json!({ "specversion": "1.0", "type": "com.example.start", "source": "/b",
                              "id": "1", "time": time, "data": data });
    for (id, list) in [
        ("shop-1", format!("[\n{event}]")),
        ("shop-1", event),
        ("/b\u{1f}1", format!("[{cloud_event}]")),
    ] {
        let mut world = World::new();
        world.add("shop", NOW - 7 * HOUR, 7, true);
        world.spans[0]["start_event_id"] = json!(id);
        let (_folder, path) = file("events.json", &list);
        let verify = [&["verify", &path], &MOMENT[..]].concat();
        world.start().run(&verify).writes(0, &[]);
    }
}

#[test]
fn events_come_from_standard_input_too() {
    let (world, events) = three();
    let api = world.start();
    let (_folder, path) = file("events.ndjson", &events);
    let url = api.url();
    let verify = ["verify", "-", "--format", "ndjson", "--url", &url];
    let mut command = sampler(&[&verify[..], &MOMENT].concat());
    command.stdin(std::fs::File::open(path).unwrap());
    let ended: Ended = command.output().unwrap().into();
    ended.writes(0, &[]);
}

/// What does not fit comes first, and each line fits the terminal.
#[test]
fn what_does_not_fit_is_read_on_any_terminal() {
    let (mut world, events) = three();
    world.usages.get_mut("span-shop").unwrap().remove(3);
    let api = world.start();
    let url = api.url();
    let (_folder, path) = file("events.ndjson", &events);
    let verify = [&["verify", &path, "--all", "--url", &url], &MOMENT[..]].concat();
    for width in [60, 80, 132] {
        let ended = run_in(&verify, &[("COLUMNS", &width.to_string())]);
        ended.writes(1, &[]);
        let lines: Vec<&str> = ended.output.lines().collect();
        assert_eq!(lines[0], "1 of 3 spans does not fit:");
        assert_eq!(lines[2], "postgres/large/shop", "{}", ended.output);
        let longest = lines.iter().map(|line| line.chars().count()).max();
        assert!(longest <= Some(width), "{longest:?}: {}", ended.output);
    }
}
