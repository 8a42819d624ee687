//! Commands that show and change what the API has.

use serde_json::{Value, json};

use crate::api::{Api, HOUR, World};
use crate::stub::{Reply, Stub};
use crate::{Ended, run};

const NOW: i64 = 1_795_352_400_000;

fn with(url: &str, arguments: &[&str]) -> Ended {
    run(&[arguments, &["--url", url]].concat())
}

fn done(url: &str, arguments: &[&str]) -> String {
    let ended = with(url, arguments);
    assert_eq!(
        (ended.code, ended.errors.as_str()),
        (Some(0), ""),
        "{ended:?}"
    );
    ended.output
}

fn json_of(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// Two spans: one of 20 hours that stopped, one that goes on.
fn world() -> World {
    let mut world = World::new();
    world.add("orders", NOW - 50 * HOUR, 20, false);
    world.add("shop", NOW - 7 * HOUR, 7, true);
    world
}

#[test]
fn spans_are_listed() {
    let api = Api::start(world());
    let text = done(
        &api.url(),
        &["spans", "--resource-id", "postgres", "--from", "5"],
    );
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("span "), "{text}");
    assert!(
        lines[1].starts_with("span-shop    postgres/large/shop "),
        "{text}"
    );
    assert!(
        lines[2].contains("complete") && lines[2].ends_with("20:00:00.000     0:00:00.000"),
        "{text}"
    );
    assert_eq!(lines.len(), 3);
    assert_eq!(
        api.requests(),
        ["/v1/spans?from=5&limit=100&resource_id=postgres"]
    );
    let ended = with(
        &api.url(),
        &[
            "spans",
            "--resource-id",
            "postgres",
            "--limit",
            "1",
            "--json",
        ],
    );
    let document = json_of(&ended.output);
    assert_eq!(document["items"].as_array().unwrap().len(), 1);
    assert_eq!(document["items"][0]["id"], "span-shop");
    let warning = &json_of(&ended.errors)["warning"]["message"];
    assert!(
        warning.as_str().unwrap().contains("the first 1"),
        "{ended:?}"
    );
    let query = ["spans", "--cause", "c", "--resource-id", "x", "--all"];
    assert_eq!(done(&api.url(), &query), "No spans.\n");
    let asked = api.requests().pop().unwrap();
    assert!(
        asked.contains("cause=c") && asked.contains("state=suspended"),
        "{asked}"
    );
}

#[test]
fn a_span_is_drawn_with_its_proof_and_its_usages() {
    let mut world = world();
    world.page = 7;
    let api = Api::start(world);
    let text = done(&api.url(), &["span", "span-orders", "--usages", "2"]);
    for part in [
        "resource_instance_id  orders\n",
        "\nmeasures              memory 512\n",
        "(event orders-1)\n",
        "\nwindows    |",
        "\nforwards   ====",
        "\nproof: used 20:00:00.000 = billed 20:00:00.000 + skipped 0:00:00.000; difference 0 ms, 20 usages\n",
        " 1:00:00.000  accepted ",
        "... and 18 earlier usages: --usages 20\n",
    ] {
        assert!(text.contains(part), "{part:?} in {text}");
    }
    assert!(!text.contains("backwards"), "{text}");
    let document = json_of(&done(&api.url(), &["span", "span-orders", "--json"]));
    assert_eq!(document["usages"].as_array().unwrap().len(), 20);
    assert_eq!(document["span"]["id"], "span-orders");
}

/// The proof is one of what is sampled: what is not stands beside it.
#[test]
fn what_is_not_billed_yet_is_told() {
    let mut world = world();
    world.spans[0]["state"] = json!("suspended");
    world.spans[0]["proof"]["unsampled"] = json!(5 * HOUR);
    let api = Api::start(world);
    let text = done(&api.url(), &["span", "span-orders"]);
    assert!(
        text.contains(" skipped 0:00:00.000; not billed yet 5:00:00.000; difference 0 ms"),
        "{text}"
    );
    let listed = done(&api.url(), &["spans", "--resource-id", "postgres"]);
    assert!(
        listed.lines().any(|line| line.ends_with(" 5:00:00.000")),
        "{listed}"
    );
}

#[test]
fn a_proof_that_does_not_add_up_is_a_failure() {
    let mut world = world();
    world.spans[0]["proof"]["difference"] = json!(5);
    let api = Api::start(world);
    let ended = with(&api.url(), &["span", "span-orders"]);
    assert_eq!(ended.code, Some(1));
    assert!(ended.output.contains(" IS NOT billed "), "{ended:?}");
}

#[test]
fn what_the_api_refuses_is_told() {
    let stub = Stub::start(|seen, _| {
        if seen.what.contains("/v1/spans?resource_instance_id") {
            return json!({ "items": [] }).into();
        }
        if seen.what.contains("/v1/spans?") {
            let errors = json!([{ "parameter": "state", "detail": "It is wrong." }]);
            let kind = "/problems/invalid-query";
            return Reply(
                400,
                json!({ "type": kind, "detail": "No.", "errors": errors }),
                None,
            );
        }
        if seen.what.contains("usages") {
            return Reply(404, json!({ "detail": "There is no usage\u{1b}." }), None);
        }
        let kind = "urn:sampler:problem:no-such-span";
        Reply(
            404,
            json!({ "type": kind, "detail": "There is no span." }),
            None,
        )
    });
    let ended = with(&stub.url(), &["span", "a/b"]);
    assert_eq!((ended.code, ended.output.as_str()), (Some(2), ""));
    assert!(
        ended.errors.contains("no span with the id a/b"),
        "{ended:?}"
    );
    let searched = "GET /v1/spans?resource_instance_id=a%2Fb&limit=100";
    assert_eq!(stub.whats(), ["GET /v1/spans/a%2Fb", searched]);
    let ended = with(&stub.url(), &["resend", "u", "--reason", "r"]);
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(
        ended.errors.contains("There is no usage\u{fffd}."),
        "{ended:?}"
    );
    let ended = with(&stub.url(), &["spans"]);
    assert_eq!(ended.code, Some(2));
    assert_eq!(ended.errors, "error: No. [--state: It is wrong.]\n");
}

/// A 404 that says nothing is not one of the API: the address is wrong.
#[test]
fn another_server_is_not_taken_for_the_api() {
    let stub = Stub::start(|_, _| Reply(404, json!("nothing"), None));
    let ended = with(&stub.url(), &["span", "s"]);
    assert_eq!(ended.code, Some(3), "{ended:?}");
}

/// With `--json` a program reads standard error, too: one object, whatever failed.
#[test]
fn machines_are_told_failures_in_json() {
    let stub = Stub::start(|_, _| {
        let errors = json!([{ "parameter": "state", "detail": "It is wrong." }]);
        let kind = "urn:sampler:problem:invalid-query";
        Reply(
            400,
            json!({ "type": kind, "detail": "No.", "errors": errors }),
            None,
        )
    });
    let failure = |arguments: &[&str]| {
        let ended = with(&stub.url(), arguments);
        assert_eq!(ended.output, "", "{ended:?}");
        assert_eq!(ended.errors.lines().count(), 1, "{ended:?}");
        let error = json_of(&ended.errors)["error"].clone();
        assert_eq!(error["exit_code"], json!(ended.code), "{ended:?}");
        error
    };
    // The API refuses.
    let error = failure(&["spans", "--json"]);
    assert_eq!(
        (&error["exit_code"], &error["status"]),
        (&json!(2), &json!(400))
    );
    assert_eq!(
        error["problem"]["type"],
        "urn:sampler:problem:invalid-query"
    );
    assert_eq!(error["problem"]["errors"][0]["parameter"], "state");
    assert_eq!(error["message"], "No. [--state: It is wrong.]");
    // The command line is wrong, before it is known whether it asks for JSON.
    let error = failure(&["spans", "--json", "--limit", "0"]);
    assert_eq!(
        (&error["exit_code"], &error["problem"]),
        (&json!(2), &Value::Null)
    );
    let message = error["message"].as_str().unwrap();
    assert!(
        message.starts_with("invalid value '0' for '--limit"),
        "{error}"
    );
    // There is no such file, and nobody is there.
    let error = failure(&["verify", "/nowhere.csv", "--json"]);
    assert!(error["message"].as_str().unwrap().contains("/nowhere.csv"));
    let ended = run(&[
        "resend",
        "u",
        "--reason",
        "r",
        "--json",
        "--url",
        "http://127.0.0.1:9",
    ]);
    let error = &json_of(&ended.errors)["error"];
    assert_eq!(
        (&error["exit_code"], &error["status"]),
        (&json!(3), &Value::Null)
    );
    // People are told in words.
    let ended = with(&stub.url(), &["spans"]);
    assert_eq!(ended.errors, "error: No. [--state: It is wrong.]\n");
    assert!(
        run(&["spans", "--limit", "0"])
            .errors
            .starts_with("error: invalid value")
    );
}

#[test]
fn sums_are_asked_for_and_shown() {
    let stub = Stub::start(|_, _| {
        let window = json!({ "start": NOW, "end": NOW + HOUR });
        let group = json!({ "resource_id": "postgres", "plan_id": "large" });
        let measures = json!([{ "measure": "memory", "amount": 44_236_800_000_i64 }]);
        json!({ "items": [{ "window": window, "group": group, "usages": 24,
                            "duration": 86_400_000, "measures": measures }] })
        .into()
    });
    let query = ["usages", "--organization-id", "o", "--window", "hour"];
    let more = ["--group-by", "resource_id,plan_id", "--as-of", "7"];
    let text = done(&stub.url(), &[&query[..], &more[..]].concat());
    let line = text.lines().nth(1).unwrap();
    assert!(line.contains("postgres/large"), "{text}");
    assert!(line.ends_with("24:00:00.000  memory 44236800000"), "{text}");
    let asked = "GET /v1/usages?organization_id=o&window=hour&group_by=resource_id%2Cplan_id&as_of=7&limit=100";
    assert_eq!(stub.whats(), [asked]);
}

/// An invoice is in GB·h: the amount stands there in that, beside the exact one, and how it follows.
#[test]
fn an_amount_with_a_unit_is_shown_by_the_hour() {
    let stub = Stub::start(|_, _| {
        let window = json!({ "start": NOW, "end": NOW + HOUR });
        let memory = json!({ "measure": "memory", "amount": 44_236_800_000_i64, "unit": "MB" });
        let measures = json!([memory, { "measure": "load", "amount": 3 }]);
        let sum = json!({ "window": window, "group": {}, "usages": 24, "duration": 86_400_000,
                          "measures": measures });
        json!({ "items": [sum, sum] }).into()
    });
    let text = done(&stub.url(), &["usages", "--organization-id", "o"]);
    let lines: Vec<&str> = text.lines().collect();
    let expected = "  memory 12.288 GB·h (44236800000 MB·ms), load 3";
    assert!(lines[1].ends_with(expected), "{text}");
    let formula = "GB·h = MB × ms ÷ 1000 ÷ 3600000";
    assert_eq!(&lines[3..], [formula], "{text}");
}

#[test]
fn sums_of_all_time_have_no_bounds() {
    let stub = Stub::start(|_, _| {
        let window = json!({ "start": 0, "end": 253_402_300_800_000_i64 });
        json!({ "items": [{ "window": window, "group": {}, "usages": 1, "duration": 1_000, "measures": [] }] })
            .into()
    });
    let text = done(&stub.url(), &["usages", "--organization-id", "o"]);
    let line = text.lines().nth(1).unwrap();
    assert!(line.starts_with("beginning  no end "), "{text}");
}

#[test]
fn acts_give_a_reason_and_what_they_are_based_on() {
    let mut world = World::new();
    world.add("s1", NOW - HOUR, 1, true);
    let span = world.spans.remove(0);
    let stub = Stub::start(move |seen, _| {
        if seen.what.ends_with("/v1/spans/s1") {
            return Reply(200, span.clone(), Some("\"7\""));
        }
        if seen.what.contains("suspended/") {
            let resumed = if seen.what.contains("c1") {
                12
            } else {
                100_000
            };
            return Reply(202, json!({ "resumed": resumed }), None);
        }
        span.clone().into()
    });
    let url = stub.url();
    let text = done(&url, &["resume", "--cause", "c1", "--reason", "mapped"]);
    assert_eq!(text, "Workers resume 12 spans.\n");
    let text = done(&url, &["resume", "--span", "s1", "--reason", "mapped"]);
    assert!(
        text.starts_with("The span span-s1 is open, sampled to 2026-11-22T"),
        "{text}"
    );
    let text = done(&url, &["skip", "s1", "u1", "--reason", "agreed"]);
    assert!(
        text.contains("\nA worker skips the usage five minutes"),
        "{text}"
    );
    done(&url, &["resend", "u2", "--reason", "mended", "--json"]);
    let seen = stub.seen();
    let whats: Vec<&str> = seen.iter().map(|seen| seen.what.as_str()).collect();
    let expected = [
        "POST /v1/suspended/c1/resume",
        "GET /v1/spans/s1",
        "POST /v1/spans/s1/resume",
        "GET /v1/spans/s1",
        "POST /v1/spans/s1/skip",
        "POST /v1/usages/u2/resend",
    ];
    assert_eq!(whats, expected);
    assert_eq!(seen[0].json(), json!({ "reason": "mapped" }));
    assert_eq!(seen[0].header("if-match"), None);
    assert_eq!(seen[2].header("if-match"), Some("\"7\""));
    assert_eq!(
        seen[4].json(),
        json!({ "reason": "agreed", "usage_id": "u1" })
    );
    assert_eq!(seen[4].header("if-match"), Some("\"7\""));
    let text = done(&url, &["resume", "--cause", "c2", "--reason", "mapped"]);
    assert_eq!(text, "Workers resume at least 100000 spans.\n");
    let ended = with(&url, &["resume", "--span", "s1"]);
    assert_eq!(ended.code, Some(2));
    assert!(ended.errors.contains("--reason"), "{ended:?}");
}

/// An act whose answer is lost may have been done: it is sent once. One that was turned away was not.
#[test]
fn an_act_is_repeated_only_where_it_was_not_done() {
    let stub = Stub::start(|_, number| match number {
        0 => Reply(
            503,
            json!({ "type": "urn:sampler:problem:overloaded" }),
            None,
        ),
        _ => Reply(
            503,
            json!({ "type": "urn:sampler:problem:database-unavailable" }),
            None,
        ),
    });
    let ended = with(&stub.url(), &["resend", "u", "--reason", "r"]);
    assert_eq!(ended.code, Some(3), "{ended:?}");
    assert_eq!(stub.whats().len(), 2);
}

#[test]
fn causes_and_the_audit_trail_are_listed() {
    let stub = Stub::start(|seen, _| {
        if seen.what.contains("audit") {
            let acts = ["done", "refused", "unknown"].map(|outcome| {
                json!({ "id": outcome, "at": NOW, "who": "ann", "act": "skip", "subject": "s1",
                        "reason": "agreed\u{7}", "before": {}, "after": {}, "outcome": outcome })
            });
            return json!({ "items": acts }).into();
        }
        json!({ "items": [{ "cause": "c1", "status": 422, "error": "noplan", "resource_id": "r",
                            "plan_id": "p", "spans": 10_000, "set_aside": 7, "since": NOW,
                            "probe_at": NOW, "more": 12 }] })
        .into()
    });
    let text = done(&stub.url(), &["suspended", "--resource-id", "r"]);
    let words: Vec<&str> = text.lines().nth(1).unwrap().split_whitespace().collect();
    let since = "2026-11-22T13:00:00.000Z";
    assert_eq!(
        words,
        ["c1", "422", "noplan", "r", "p", "10000", "7", since, since]
    );
    assert_eq!(text.lines().nth(2), Some("12 more of r: see --resource-id"));
    let text = done(
        &stub.url(),
        &["audit", "--who", "ann", "--from", "2026-11-22T13:00:00Z"],
    );
    let rows: Vec<Vec<&str>> = text
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(
        rows[0],
        ["at", "who", "act", "subject", "outcome", "reason"]
    );
    for (row, outcome) in rows[1..].iter().zip(["done", "refused", "unknown"]) {
        assert_eq!(
            row[..],
            [since, "ann", "skip", "s1", outcome, "agreed\u{fffd}"]
        );
    }
    assert_eq!(rows.len(), 4, "{text}");
    assert_eq!(stub.whats()[0], "GET /v1/suspended?resource_id=r");
    let expected = format!("GET /v1/audit?from={NOW}&who=ann&limit=100");
    assert_eq!(stub.whats()[1], expected);
}

#[test]
fn the_backlog_is_shown() {
    let stub = Stub::start(|_, _| {
        let closing =
            json!({ "month": "2026-10", "left": 1200, "closes_at": NOW, "done_at": null });
        json!({ "due": 1200, "oldest": NOW, "span_seconds": 86400.5, "suspended": 3,
                "rate": 5012.3, "closing": closing })
        .into()
    });
    let text = done(&stub.url(), &["backlog"]);
    for line in [
        "spans due      1200",
        "to sample      24:00:00.500",
        "usages/s       5012.30",
        "  done at      -",
    ] {
        assert!(text.lines().any(|it| it == line), "{line} in {text}");
    }
    let document = json_of(&done(&stub.url(), &["backlog", "--json"]));
    assert_eq!(document["closing"]["month"], "2026-10");
}

#[test]
fn control_changes_what_is_named_and_nothing_else() {
    let now = || {
        json!({ "starts": { "rate": 100, "resources": { "postgres": 50, "redis": 5 } },
                "sampling": { "paused": false },
                "controller": { "enabled": false, "target_seconds": 600, "kp": 8, "ki": 0, "kd": 0 } })
    };
    let stub = Stub::start(move |seen, _| {
        if seen.what.starts_with("PUT") {
            let mut control = seen.json();
            control.as_object_mut().unwrap().shift_remove("reason");
            return control.into();
        }
        Reply(200, now(), Some("\"3\""))
    });
    let url = stub.url();
    let text = done(&url, &["control"]);
    assert!(text.contains("postgres 50 %, redis 5 %"), "{text}");
    assert!(text.contains("sampling         runs"), "{text}");
    let set = [
        "control",
        "set",
        "--rate",
        "12.5",
        "--resource",
        "postgres=0",
        "--resource",
        "redis",
    ];
    let text = done(
        &url,
        &[&set[..], &["--paused", "true", "--reason", "drain"]].concat(),
    );
    assert!(
        text.contains("12.5 %") && text.contains("sampling         paused"),
        "{text}"
    );
    let seen = stub.seen();
    let put = &seen[2];
    assert_eq!(
        (put.what.as_str(), put.header("if-match")),
        ("PUT /v1/control", Some("\"3\""))
    );
    let expected = json!({
        "starts": { "rate": 12.5, "resources": { "postgres": 0 } },
        "sampling": { "paused": true },
        "controller": { "enabled": false, "target_seconds": 600, "kp": 8, "ki": 0, "kd": 0 },
        "reason": "drain",
    });
    assert_eq!(put.json(), expected);
    for wrong in [
        &["control", "set", "--reason", "r"][..],
        &["control", "set", "--rate", "101", "--reason", "r"],
        &["control", "set", "--resource", "a=b", "--reason", "r"],
    ] {
        assert_eq!(with(&url, wrong).code, Some(2), "{wrong:?}");
    }
}

#[test]
fn shells_complete_commands() {
    for shell in ["bash", "zsh", "fish"] {
        let ended = run(&["completions", shell]);
        assert_eq!(ended.code, Some(0));
        assert!(ended.output.contains("suspended"), "{shell}");
    }
}
