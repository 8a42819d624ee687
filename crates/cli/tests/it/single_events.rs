//! `sampler start`, `stop` and `update`.

use serde_json::{Value, json};

use crate::api::{HOUR, IDS, World};
use crate::stub::{Reply, Stub};
use crate::{NOW, run};

/// A receiver that has one open span, and one that ended.
fn receiver() -> Stub {
    let mut world = World::new();
    world.add("orders", NOW - 50 * HOUR, 20, false);
    world.add("shop", NOW - 7 * HOUR, 7, true);
    world.writes = Some(|seen| {
        if seen.body.contains("refuse") {
            return Reply::problem(409, "open-span", "It is open.");
        }
        Reply::of(201, Value::Null)
    });
    world.start()
}

const CUSTOMER: [&str; 6] = [
    "--organization-id",
    "o",
    "--space-id",
    "s",
    "--consumer-id",
    "c",
];
const PLAN: [&str; 4] = ["--resource-id", "postgres", "--plan-id", "large"];

#[test]
fn one_event_is_sent_from_options() {
    let stub = receiver();
    let start = |instance: &str, more: &[&str]| {
        let what = ["start", instance, "--at", "2026-11-22T13:00"];
        let measures = ["--measure", "memory=512", "--measure", "load=0.5"];
        stub.run(&[&what, &CUSTOMER[..], &PLAN, &measures, more].concat())
    };
    let kept = "The start of postgres/large/new at 2026-11-22T13:00:00.000Z is kept.\n";
    for _ in 0..2 {
        assert_eq!(start("new", &[]).done(), kept);
    }
    let seen = stub.seen();
    assert_eq!(seen[0].what, "POST /v1/events/start");
    assert_eq!(seen[0].body, seen[1].body, "a repeat is the same event");
    let body = seen[0].json();
    let id = body["id"].as_str().unwrap();
    assert!(id.starts_with("sampler-"), "{body}");
    assert_eq!(body["timestamp"], NOW);
    let measures = r#""measured_usage":[{"measure":"memory","quantity":512},{"measure":"load","quantity":0.5}]"#;
    assert!(seen[0].body.contains(measures), "{}", seen[0].body);
    start("refuse", &[]).tells(1, &["It is open."]);
    for wrong in ["memory", "memory=much", "m=0x1"] {
        start("new", &["--measure", wrong]).tells(2, &[]);
    }
}

/// The rest of what they say is what the open span says.
#[test]
fn an_instance_is_enough_to_stop_and_to_update_it() {
    let stub = receiver();
    let send = |arguments: &[&str]| {
        let at = ["--at", "1795352400000", "--id", "e"];
        stub.run(&[arguments, &at].concat())
    };
    send(&["stop", "shop"]).writes(0, &[]);
    let stop = stub.seen().pop().unwrap();
    assert_eq!(stop.what, "POST /v1/events/stop");
    let body = stop.json();
    let fields: Vec<&String> = body.as_object().unwrap().keys().collect();
    assert_eq!(fields, [&["id", "timestamp"], &IDS[..]].concat());
    assert_eq!(body["resource_instance_id"], "shop");
    send(&["update", "span-shop", "--plan-id", "larger"]).writes(0, &[]);
    let update = stub.seen().pop().unwrap().json();
    assert_eq!(update["plan_id"], "larger");
    assert_eq!(update["previous"], json!({ "plan_id": "large" }));
    let measures = json!([{ "measure": "memory", "quantity": 512 }]);
    assert_eq!(update["measured_usage"], measures);
    send(&["stop", "orders"]).tells(2, &["has no open span"]);
    send(&["stop", "nobody"]).tells(2, &[]);
    send(&["update", "shop"]).tells(2, &["--plan-id"]);
}

/// Whoever gets no answer can send the same event again.
#[test]
fn an_event_without_an_answer_can_be_sent_again() {
    let what = ["start", "i", "--at", "5", "--url", "http://127.0.0.1:9"];
    let ended = run(&[&what, &CUSTOMER[..], &PLAN].concat());
    ended.tells(3, &["--id sampler-", " --at 5\n"]);
}
