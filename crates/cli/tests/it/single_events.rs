//! `sampler start`, `stop` and `update`.

use serde_json::{Value, json};

use crate::api::{HOUR, World};
use crate::habits::{NOW, done};
use crate::run;
use crate::stub::{Reply, Stub};

/// A receiver that has one open span, and one that ended.
fn receiver() -> Stub {
    let mut world = World::new();
    world.add("orders", NOW - 50 * HOUR, 20, false);
    world.add("shop", NOW - 7 * HOUR, 7, true);
    let spans = world.spans;
    Stub::start(move |seen, _| {
        if seen.what.starts_with("GET /v1/spans?") {
            let of = spans.iter().filter(|span| {
                let instance = span["target"]["resource_instance_id"].as_str().unwrap();
                seen.what
                    .contains(&format!("resource_instance_id={instance}&"))
            });
            return json!({ "items": of.collect::<Vec<_>>() }).into();
        }
        if let Some(id) = seen.what.strip_prefix("GET /v1/spans/") {
            let span = spans.iter().find(|span| span["id"] == id);
            let problem = json!({ "type": "/problems/no-such-span", "urn": "urn:sampler:problem:no-such-span" });
            return span.map_or(Reply(404, problem, None), |span| {
                Reply(200, span.clone(), None)
            });
        }
        if seen.what.contains("dry_run") {
            return json!({ "would": 201, "replayed": false, "usages": [] }).into();
        }
        if seen.body.contains("refuse") {
            let problem = json!({ "type": "/problems/open-span", "detail": "It is open." });
            return Reply(409, problem, None);
        }
        Reply(201, Value::Null, None)
    })
}

#[test]
fn one_event_is_sent_from_options() {
    let stub = receiver();
    let url = stub.url();
    let ids = [
        "--organization-id",
        "o",
        "--space-id",
        "s",
        "--consumer-id",
        "c",
    ];
    let plan = [
        "--resource-id",
        "postgres",
        "--plan-id",
        "large",
        "--at",
        "2026-11-22T13:00",
    ];
    let start = |instance: &str, more: &[&str]| {
        let measures = ["--measure", "memory=512", "--measure", "load=0.5"];
        run(&[
            &["start", instance, "--url", &url],
            &ids[..],
            &plan,
            &measures,
            more,
        ]
        .concat())
    };
    let ended = start("new", &[]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(
        ended.output,
        "The start of postgres/large/new at 2026-11-22T13:00:00.000Z is kept.\n"
    );
    start("new", &[]);
    let seen = stub.seen();
    assert_eq!(seen[0].what, "POST /v1/events/start");
    assert_eq!(seen[0].body, seen[1].body, "a repeat is the same event");
    let body = seen[0].json();
    assert!(
        body["id"].as_str().unwrap().starts_with("sampler-"),
        "{body}"
    );
    assert_eq!(body["timestamp"], NOW);
    let measures = r#""measured_usage":[{"measure":"memory","quantity":512},{"measure":"load","quantity":0.5}]"#;
    assert!(seen[0].body.contains(measures), "{}", seen[0].body);
    let refused = start("refuse", &[]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.errors.contains("It is open."), "{refused:?}");
    let foreseen = start("new", &["--dry-run"]);
    assert_eq!(
        (foreseen.code, foreseen.output.as_str()),
        (Some(0), "201\n")
    );
    for wrong in [
        &["--measure", "memory"][..],
        &["--measure", "memory=much"],
        &["--measure", "m=0x1"],
    ] {
        assert_eq!(start("new", wrong).code, Some(2), "{wrong:?}");
    }
}

/// The rest of what they say is what the open span says.
#[test]
fn an_instance_is_enough_to_stop_and_to_update_it() {
    let stub = receiver();
    let url = stub.url();
    let at = ["--at", "1795352400000", "--id", "e", "--url", &url];
    done(&[&["stop", "shop"][..], &at].concat());
    let stop = stub.seen().pop().unwrap();
    assert_eq!(stop.what, "POST /v1/events/stop");
    let expected = json!({
        "id": "e", "timestamp": NOW, "organization_id": "acme", "space_id": "space",
        "consumer_id": "consumer", "resource_id": "postgres", "plan_id": "large",
        "resource_instance_id": "shop",
    });
    let body = stop.json();
    let fields = body.as_object().unwrap().keys().collect::<Vec<_>>();
    assert_eq!(
        fields,
        expected.as_object().unwrap().keys().collect::<Vec<_>>()
    );
    assert_eq!(body["resource_instance_id"], "shop");
    done(&[&["update", "span-shop", "--plan-id", "larger"][..], &at].concat());
    let update = stub.seen().pop().unwrap().json();
    assert_eq!(update["plan_id"], "larger");
    assert_eq!(update["previous"], json!({ "plan_id": "large" }));
    assert_eq!(
        update["measured_usage"],
        json!([{ "measure": "memory", "quantity": 512 }])
    );
    let ended = run(&[&["stop", "orders"][..], &at].concat());
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.errors.contains("has no open span"), "{ended:?}");
    assert_eq!(run(&[&["stop", "nobody"][..], &at].concat()).code, Some(2));
    let ended = run(&[&["update", "shop"][..], &at].concat());
    assert!(ended.errors.contains("--plan-id"), "{ended:?}");
}

/// Whoever gets no answer can send the same event again.
#[test]
fn an_event_without_an_answer_can_be_sent_again() {
    let ids = [
        "--organization-id",
        "o",
        "--space-id",
        "s",
        "--consumer-id",
        "c",
    ];
    let more = [
        "--resource-id",
        "r",
        "--plan-id",
        "p",
        "--url",
        "http://127.0.0.1:9",
    ];
    let ended = run(&[&["start", "i", "--at", "5"], &ids[..], &more].concat());
    assert_eq!(ended.code, Some(3), "{ended:?}");
    assert!(ended.errors.contains("--id sampler-"), "{ended:?}");
    assert!(ended.errors.contains(" --at 5\n"), "{ended:?}");
}
