//! The files that `sampler verify` reads, and what of them is looked at.

use serde_json::{Value, json};

use crate::api::{HOUR, World, events};
use crate::verify::{MOMENT, three};
use crate::{Ended, NOW, file, sampler};

#[test]
fn cloud_events_are_read_as_they_are_sent() {
    let event = events("shop", NOW - 7 * HOUR, 7, true);
    let mut data: Value = serde_json::from_str(&event).unwrap();
    data.as_object_mut().unwrap().shift_remove("timestamp");
    let time = "2026-11-22T06:00:00.0004Z";
    let cloud_event = json!({ "specversion": "1.0", "type": "com.example.start", "source": "/b",
                              "id": "1", "time": time, "data": data });
    let mut world = World::new();
    world.add("shop", NOW - 7 * HOUR, 7, true);
    world.spans[0]["start_event_id"] = json!("/b\u{1f}1");
    world.start().verified(0, &format!("{cloud_event}\n"), &[]);
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
