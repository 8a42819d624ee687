//! Commands that change what the API has.

use axum::http::header::ETAG;
use serde_json::{Value, json};

use crate::NOW;
use crate::api::{HOUR, World};
use crate::stub::{Reply, Stub};

#[test]
fn acts_give_a_reason_and_what_they_are_based_on() {
    let mut world = World::new();
    world.add("1", NOW - HOUR, 1, true);
    let mut span = world.spans.remove(0);
    span["proof"]["skipped"] = json!(HOUR);
    let stub = Stub::start(move |seen, _| {
        if seen.what.contains("suspended/") {
            return Reply::of(202, json!({ "resumed": 12 }));
        }
        if seen.what.contains("unconfirmed/") {
            let interval = json!({ "start": NOW, "end": NOW + HOUR });
            let usage = json!({
                "usage": "u2", "span": "s1", "target": span["target"], "interval": interval,
                "duration": HOUR, "error": "set aside", "since": NOW,
            });
            return Reply::of(202, usage);
        }
        Reply::from(span.clone()).with(ETAG, "\"7\"")
    });
    let told = "The span span-1 is open, sampled to 2026-11-22T13:00:00.000Z: used 1:00:00.000 = ";
    let day = NOW - 13 * HOUR;
    for (arguments, post, tag, times, said) in [
        (
            "resume --cause c1",
            "suspended/c1/resume",
            None,
            json!({}),
            "12 spans resumed.\n",
        ),
        (
            "resume --span span-1",
            "spans/span-1/resume",
            Some("\"7\""),
            json!({}),
            told,
        ),
        (
            "skip span-1 --until 2026-11-22",
            "spans/span-1/skip",
            Some("\"7\""),
            json!({ "until": day }),
            told,
        ),
        (
            "resend span-1 --from 5 --to 2026-11-22T13:00",
            "spans/span-1/resend",
            Some("\"7\""),
            json!({ "from": 5, "to": NOW }),
            told,
        ),
        (
            "resend --usage u2",
            "unconfirmed/u2/resend",
            None,
            json!({}),
            "A worker sends the usage again.\n",
        ),
    ] {
        let mut words: Vec<&str> = arguments.split(' ').collect();
        words.extend(["--reason", "agreed"]);
        let text = stub.run(&words).done();
        assert!(text.starts_with(said), "{text}");
        let request = stub.seen().pop().unwrap();
        assert_eq!(request.what, format!("POST /v1/{post}"));
        assert_eq!(request.header("if-match"), tag);
        let mut body = json!({ "reason": "agreed" });
        body.as_object_mut()
            .unwrap()
            .extend(times.as_object().unwrap().clone());
        assert_eq!(request.json(), body);
    }
    for wrong in [
        "skip --reason r",
        "skip s1 --cause c --reason r",
        "resend --reason r",
        "resend --usage u --from 5 --reason r",
        "resume --span s1",
    ] {
        stub.run(&wrong.split(' ').collect::<Vec<_>>())
            .tells(2, &[]);
    }
}

/// A cause has many spans. One that cannot be skipped holds up no other, and none is skipped beyond its end.
#[test]
fn all_spans_of_a_cause_are_skipped_one_after_the_other() {
    let mut world = World::new();
    for (instance, is_open) in [("a", true), ("b", false), ("c", true)] {
        world.add(instance, NOW - 9 * HOUR, 2, is_open);
    }
    let spans = world.spans;
    let stub = Stub::start(move |seen, _| {
        let of = |span: &&Value| seen.what.contains(span["id"].as_str().unwrap());
        match (spans.iter().find(of), &*seen.what) {
            (None, "GET /v1/suspended/none") => {
                Reply::problem(404, "no-such-cause", "There is no cause.")
            }
            (None, what) if what.contains("suspended/") => json!({}).into(),
            (None, _) => json!({ "items": spans }).into(),
            (_, what) if what.ends_with("span-a/skip") => {
                Reply::problem(422, "invalid-until", "It is no boundary.")
            }
            (Some(span), _) => Reply::from(span.clone()).with(ETAG, "\"7\""),
        }
    });
    let skip = |cause: &str, more: &[&str]| {
        let skip = [
            "skip",
            "--cause",
            cause,
            "--until",
            "2026-11-22T12:00",
            "--reason",
            "r",
        ];
        stub.run(&[&skip[..], more].concat())
    };
    let ended = skip("c1", &[]);
    ended.writes(1, &["2 spans skipped.\n"]);
    ended.tells(1, &["the span span-a is not skipped: It is no boundary."]);
    let seen = stub.seen();
    let list = "GET /v1/spans?state=suspended&cause=c1&limit=100";
    assert_eq!(seen[1].what, list);
    let skips = seen.iter().filter(|seen| seen.what.ends_with("/skip"));
    let skips: Vec<_> = skips
        .map(|seen| {
            (
                seen.what.as_str(),
                seen.header("if-match"),
                seen.json()["until"].clone(),
            )
        })
        .collect();
    let at = |what, until: i64| (what, Some("\"7\""), json!(until));
    let expected = [
        at("POST /v1/spans/span-a/skip", NOW - HOUR),
        at("POST /v1/spans/span-b/skip", NOW - 7 * HOUR),
        at("POST /v1/spans/span-c/skip", NOW - HOUR),
    ];
    assert_eq!(skips, expected);
    let document = skip("c1", &["--json"]).json();
    assert_eq!(
        (&document["skipped"], &document["refused"][0]["span"]),
        (&json!(2), &json!("span-a"))
    );
    let kind = &document["refused"][0]["problem"]["type"];
    assert_eq!(kind, "/problems/invalid-until");
    skip("none", &[]).tells(2, &["There is no cause."]);
}

/// An act whose answer is lost may have been done: it is sent once. One that was turned away was not.
#[test]
fn an_act_is_repeated_only_where_it_was_not_done() {
    let stub = Stub::start(|_, number| {
        let name = ["overloaded", "database-unavailable"][number.min(1)];
        Reply::problem(503, name, "Later.")
    });
    let act = ["resend", "--usage", "u", "--reason", "r"];
    stub.run(&act).tells(3, &[]);
    assert_eq!(stub.whats().len(), 2);
}

#[test]
fn control_changes_what_is_named_and_nothing_else() {
    let controller = json!({ "enabled": false, "target_seconds": 600, "kp": 8, "ki": 0, "kd": 0 });
    let now = json!({ "starts": { "rate": 100, "resources": { "postgres": 50, "redis": 5 } },
                      "sampling": { "paused": false }, "controller": controller });
    let stub = Stub::start(move |seen, _| {
        if seen.what.starts_with("PUT") {
            let mut control = seen.json();
            control.as_object_mut().unwrap().shift_remove("reason");
            return control.into();
        }
        Reply::from(now.clone()).with(ETAG, "\"3\"")
    });
    let shown = stub.run(&["control"]);
    let lines = [
        "starts.resources.postgres  50\n",
        "sampling.paused            false\n",
    ];
    shown.writes(0, &lines);
    let set =
        |options: &[&str]| stub.run(&[&["control", "set", "--reason", "drain"], options].concat());
    let resources = ["--resource", "postgres=0", "--resource", "redis"];
    let changed = set(&[&["--rate", "12.5", "--paused", "true"], &resources[..]].concat());
    changed.writes(0, &["12.5\n", "sampling.paused            true\n"]);
    let put = &stub.seen()[2];
    assert_eq!(
        (&*put.what, put.header("if-match")),
        ("PUT /v1/control", Some("\"3\""))
    );
    let expected = json!({
        "starts": { "rate": 12.5, "resources": { "postgres": 0 } }, "sampling": { "paused": true },
        "controller": controller, "reason": "drain",
    });
    assert_eq!(put.json(), expected);
    for wrong in [&[][..], &["--rate", "x"], &["--resource", "a=b"]] {
        set(wrong).tells(2, &[]);
    }
}
