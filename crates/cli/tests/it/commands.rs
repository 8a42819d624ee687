//! Commands that show and change what the API has.

use axum::http::header::ETAG;
use serde_json::{Value, json};

use crate::api::{HOUR, World};
use crate::stub::{Reply, Stub};
use crate::{Ended, NOW, json_of, run};

/// Two spans: one of 20 hours that stopped, one that continues.
fn world() -> World {
    let mut world = World::new();
    world.add("orders", NOW - 50 * HOUR, 20, false);
    world.add("shop", NOW - 7 * HOUR, 7, true);
    world
}

/// How lists of spans look, the cases show.
#[test]
fn spans_are_asked_for_by_what_narrows_them() {
    let api = world().start();
    let list = ["spans", "--resource-id", "postgres"];
    let text = api.run(&[&list[..], &["--from", "5"]].concat()).done();
    assert_eq!(text.lines().count(), 3, "{text}");
    let limited = api.run(&[&list[..], &["--limit", "1", "--json"]].concat());
    let document = limited.json();
    assert_eq!(document["items"].as_array().unwrap().len(), 1);
    assert_eq!(document["items"][0]["id"], "span-shop");
    let warning = &json_of(&limited.errors)["warning"]["message"];
    assert!(
        warning.as_str().unwrap().contains("the first 1"),
        "{limited:?}"
    );
    let query = ["spans", "--cause", "c", "--resource-id", "x", "--all"];
    assert_eq!(api.run(&query).done(), "No spans.\n");
    api.run(&["spans", "--excluded", "--resource-id", "x"])
        .done();
    let asked = [
        "resource_id=postgres&from=5&limit=100",
        "resource_id=postgres&limit=1",
        "resource_id=x&state=suspended&cause=c&limit=100",
        "resource_id=x&excluded=true&limit=100",
    ];
    assert_eq!(
        api.whats(),
        asked.map(|query| format!("GET /v1/spans?{query}"))
    );
}

#[test]
fn a_span_is_shown_with_all_its_usages() {
    let mut world = world();
    world.page = 7;
    let api = world.start();
    let text = api.run(&["span", "span-orders", "--usages", "2"]).done();
    let rest = "... and 18 earlier usages: --usages 20\n";
    assert!(text.ends_with(rest), "{text}");
    let document = json_of(&api.run(&["span", "span-orders", "--json"]).done());
    assert_eq!(document["usages"].as_array().unwrap().len(), 20);
    assert_eq!(document["span"]["id"], "span-orders");
}

/// The proof is one of what is sampled: what is not stands beside it.
#[test]
fn what_is_not_billed_yet_is_told() {
    let mut world = world();
    world.spans[0]["state"] = json!("suspended");
    world.spans[0]["proof"]["unsampled"] = json!(5 * HOUR);
    let api = world.start();
    let proof = " skipped 0:00:00.000; not billed yet 5:00:00.000; the ledger has 20 usages of 20:00:00.000";
    api.run(&["span", "span-orders"]).writes(0, &[proof]);
    let listed = api.run(&["spans", "--resource-id", "postgres"]);
    listed.writes(0, &[" 5:00:00.000\n"]);
}

#[test]
fn a_ledger_that_differs_is_a_failure_but_where_a_post_had_no_answer() {
    for (unanswered, code, words) in [
        (0, 1, ", DIFFERENCE 5 ms"),
        (
            HOUR,
            0,
            "(the upstream may count 1:00:00.000 of it: a post had no answer)",
        ),
    ] {
        let mut world = world();
        world.spans[0]["proof"]["difference"] = json!(5);
        world.spans[0]["proof"]["unanswered"] = json!(unanswered);
        let ended = world.start().run(&["span", "span-orders"]);
        ended.writes(code, &[words]);
    }
}

#[test]
fn what_does_not_count_is_shown_above_the_ledger() {
    let mut world = world();
    let range =
        json!({ "start": NOW, "end": NOW + HOUR, "unanswered": true, "error": "no\u{1b}plan" });
    world.spans[0]["excluded"] = json!([range]);
    world.spans[0]["again"] =
        json!([{ "start": NOW, "end": NOW + HOUR, "back_to": NOW + 5, "unanswered": false }]);
    let text = world.start().run(&["span", "span-orders"]).done();
    let words: Vec<&str> = text.split_whitespace().collect();
    let text = words.join(" ");
    for told in [
        "skipped: from to taken back to unanswered error 2026-11-22T13:00:00.000Z 2026-11-22T14:00:00.000Z - yes no\u{fffd}plan",
        "sent again: from to taken back to unanswered error 2026-11-22T13:00:00.000Z 2026-11-22T14:00:00.000Z 2026-11-22T13:00:00.005Z - -",
    ] {
        assert!(text.contains(told), "{told} is not in {text}");
    }
}

/// What is wrong with the query, as a receiver of today or of before says it.
fn wrong_query(kind: &str) -> Reply {
    let errors = json!([{ "parameter": "state", "detail": "It is wrong." }]);
    Reply::of(
        400,
        json!({ "type": kind, "detail": "No.", "errors": errors }),
    )
}

#[test]
fn what_the_api_refuses_is_told() {
    let stub = Stub::start(|seen, _| {
        if seen.what.contains("/v1/spans?resource_instance_id") {
            return json!({ "items": [] }).into();
        }
        if seen.what.contains("/v1/spans?") {
            return wrong_query("/problems/invalid-query");
        }
        if seen.what.contains("unconfirmed") {
            return Reply::of(404, json!({ "detail": "There is no usage\u{1b}." }));
        }
        let kind = "/problems/no-such-span";
        Reply::of(404, json!({ "type": kind, "detail": "There is no span." }))
    });
    let ended = stub.run(&["span", "a/b"]);
    ended.tells(2, &["no span with the id a/b"]);
    assert_eq!(ended.output, "");
    let searched = "GET /v1/spans?resource_instance_id=a%2Fb&limit=100";
    assert_eq!(stub.whats(), ["GET /v1/spans/a%2Fb", searched]);
    let ended = stub.run(&["resend", "--usage", "u", "--reason", "r"]);
    ended.tells(2, &["There is no usage\u{fffd}."]);
    let ended = stub.run(&["spans"]);
    ended.tells(2, &[]);
    assert_eq!(ended.errors, "error: No. [state: It is wrong.]\n");
}

/// A 404 that says nothing is not one of the API: the address is wrong.
#[test]
fn another_server_is_not_taken_for_the_api() {
    let stub = Stub::start(|_, _| Reply::of(404, json!("nothing")));
    stub.run(&["span", "s"]).tells(3, &[]);
}

/// With `--json` a program reads standard error, too: one object, whatever failed.
#[test]
fn machines_are_told_failures_in_json() {
    let stub = Stub::start(|_, _| wrong_query("/problems/invalid-query"));
    let failure = |ended: Ended, code: i32| {
        ended.tells(code, &[]);
        assert_eq!(ended.output, "", "{ended:?}");
        assert_eq!(ended.errors.lines().count(), 1, "{ended:?}");
        let error = json_of(&ended.errors)["error"].clone();
        assert_eq!(error["exit_code"], code, "{ended:?}");
        error
    };
    // The API refuses.
    let error = failure(stub.run(&["spans", "--json"]), 2);
    assert_eq!(error["status"], 400);
    let problem = &error["problem"];
    assert_eq!(problem["type"], "/problems/invalid-query");
    assert_eq!(problem["errors"][0]["parameter"], "state");
    assert_eq!(error["message"], "No. [state: It is wrong.]");
    // The command line is wrong, before it is known whether it asks for JSON.
    let error = failure(stub.run(&["spans", "--json", "--limit", "0"]), 2);
    assert_eq!(error["problem"], Value::Null);
    let message = error["message"].as_str().unwrap();
    assert!(
        message.starts_with("invalid value '0' for '--limit"),
        "{error}"
    );
    // There is no such file, and nobody is there.
    let error = failure(stub.run(&["verify", "/nowhere.csv", "--json"]), 2);
    assert!(error["message"].as_str().unwrap().contains("/nowhere.csv"));
    let act = ["resend", "--usage", "u", "--reason", "r", "--json"];
    let nobody = run(&[&act[..], &["--url", "http://127.0.0.1:9"]].concat());
    assert_eq!(failure(nobody, 3)["status"], Value::Null);
    // People are told in words.
    let ended = stub.run(&["spans"]);
    assert_eq!(ended.errors, "error: No. [state: It is wrong.]\n");
    let ended = run(&["spans", "--limit", "0"]);
    assert!(ended.errors.starts_with("error: invalid value"));
}

/// A sum of a window.
fn sum((start, end): (i64, i64), group: &Value, measures: &Value) -> Value {
    json!({ "window": { "start": start, "end": end }, "group": group, "usages": 24,
            "duration": 86_400_000, "measures": measures })
}

#[test]
fn sums_are_asked_for_and_shown() {
    let group = json!({ "resource_id": "postgres", "plan_id": "large" });
    let measures = json!([{ "measure": "memory", "amount": 44_236_800_000_i64 }]);
    let sum = sum((NOW, NOW + HOUR), &group, &measures);
    let stub = Stub::always(json!({ "items": [sum] }));
    let query = ["usages", "--organization-id", "o", "--window", "hour"];
    let more = ["--group-by", "resource_id,plan_id", "--accepted-to", "5"];
    let text = stub.run(&[&query[..], &more[..]].concat()).done();
    let line = text.lines().nth(1).unwrap();
    assert!(line.contains("postgres/large"), "{text}");
    assert!(line.ends_with("24:00:00.000  memory 44236800000"), "{text}");
    let asked = "GET /v1/usages?organization_id=o&accepted_to=5&window=hour&group_by=resource_id%2Cplan_id&limit=100";
    assert_eq!(stub.whats(), [asked]);
}

/// An invoice is in GB·h: the amount stands there in that, beside the exact one, and how it follows. Sums of all time
/// have no bounds.
#[test]
fn an_amount_with_a_unit_is_shown_by_the_hour() {
    let memory = json!({ "measure": "memory", "amount": 44_236_800_000_i64, "unit": "MB" });
    let measures = json!([memory, { "measure": "load", "amount": 3 }]);
    let ever = (0, 253_402_300_800_000);
    let sums = [(NOW, NOW + HOUR), ever].map(|window| sum(window, &json!({}), &measures));
    let stub = Stub::always(json!({ "items": sums }));
    let text = stub.run(&["usages", "--organization-id", "o"]).done();
    let lines: Vec<&str> = text.lines().collect();
    let expected = "  memory 12.288 GB·h (44236800000 MB·ms), load 3";
    assert!(lines[1].ends_with(expected), "{text}");
    let formula = "GB·h = MB × ms ÷ 1000 ÷ 3600000";
    assert_eq!(&lines[3..], [formula], "{text}");
    let bounds: Vec<&str> = lines[2].split("  ").map(str::trim).collect();
    let bounds: Vec<&str> = bounds.into_iter().filter(|word| !word.is_empty()).collect();
    assert_eq!(bounds[..2], ["beginning", "no end"], "{text}");
}

#[test]
fn acts_give_a_reason_and_what_they_are_based_on() {
    let mut world = World::new();
    world.add("s1", NOW - HOUR, 1, true);
    let span = world.spans.remove(0);
    let stub = Stub::start(move |seen, _| {
        if seen.what.ends_with("/v1/spans/s1") {
            return Reply::from(span.clone()).with(ETAG, "\"7\"");
        }
        if seen.what.contains("suspended/") {
            return Reply::of(202, json!({ "resumed": 12 }));
        }
        if seen.what.contains("unconfirmed/") {
            let interval = json!({ "start": NOW, "end": NOW + HOUR });
            return Reply::of(
                202,
                json!({
                    "usage": "u2", "span": "s1", "target": span["target"], "interval": interval,
                    "duration": HOUR, "error": "set aside", "since": NOW,
                }),
            );
        }
        let mut span = span.clone();
        if !seen.what.ends_with("resume") {
            span["proof"]["skipped"] = json!(HOUR);
            span["proof"]["unanswered"] = json!(HOUR);
        }
        span.into()
    });
    let act = |arguments: &[&str], reason: &str| {
        let ended = stub.run(&[arguments, &["--reason", reason]].concat());
        ended.done()
    };
    let text = act(&["resume", "--cause", "c1"], "mapped");
    assert_eq!(text, "12 spans resumed.\n");
    let text = act(&["resume", "--span", "s1"], "mapped");
    let expected = "The span span-s1 is open, sampled to 2026-11-22T";
    assert!(text.starts_with(expected), "{text}");
    let text = act(&["skip", "s1", "--until", "2026-11-22"], "agreed");
    for told in [
        "Skipped, or to be sent again: 1:00:00.000.",
        "The upstream may count 1:00:00.000",
    ] {
        assert!(text.contains(told), "{text}");
    }
    act(
        &["resend", "s1", "--from", "5", "--to", "2026-11-22T13:00"],
        "mended",
    );
    let text = act(&["resend", "--usage", "u2"], "mended");
    assert_eq!(text, "A worker sends the usage again.\n");
    let seen = stub.seen();
    let expected = [
        "POST /v1/suspended/c1/resume",
        "GET /v1/spans/s1",
        "POST /v1/spans/s1/resume",
        "GET /v1/spans/s1",
        "POST /v1/spans/s1/skip",
        "GET /v1/spans/s1",
        "POST /v1/spans/s1/resend",
        "POST /v1/unconfirmed/u2/resend",
    ];
    assert_eq!(stub.whats(), expected);
    let until = NOW - 13 * HOUR;
    for (request, tag, body) in [
        (0, None, json!({ "reason": "mapped" })),
        (2, Some("\"7\""), json!({ "reason": "mapped" })),
        (
            4,
            Some("\"7\""),
            json!({ "reason": "agreed", "until": until }),
        ),
        (
            6,
            Some("\"7\""),
            json!({ "reason": "mended", "from": 5, "to": NOW }),
        ),
        (7, None, json!({ "reason": "mended" })),
    ] {
        assert_eq!(seen[request].header("if-match"), tag);
        assert_eq!(seen[request].json(), body);
    }
    let reason = ["--reason", "r"];
    for wrong in [
        &["skip"][..],
        &["skip", "s1", "--cause", "c"],
        &["resend"],
        &["resend", "--usage", "u", "--from", "5"],
    ] {
        stub.run(&[wrong, &reason].concat()).tells(2, &[]);
    }
    let ended = stub.run(&["resume", "--span", "s1"]);
    ended.tells(2, &["--reason"]);
}

/// A cause has many spans. One that cannot be skipped holds up no other.
#[test]
fn all_spans_of_a_cause_are_skipped_one_after_the_other() {
    let mut world = World::new();
    for (instance, is_open) in [("a", true), ("b", false), ("c", true)] {
        world.add(instance, NOW - 9 * HOUR, 2, is_open);
    }
    let spans = world.spans;
    let stub = Stub::start(move |seen, _| {
        let of = |span: &&Value| seen.what.contains(span["id"].as_str().unwrap());
        let Some(span) = spans.iter().find(of) else {
            return match seen.what.as_str() {
                "GET /v1/suspended/none" => {
                    Reply::problem(404, "no-such-cause", "There is no cause.")
                }
                what if what.starts_with("GET /v1/suspended") => json!({}).into(),
                _ => json!({ "items": spans }).into(),
            };
        };
        if seen.what.ends_with("span-a/skip") {
            return Reply::problem(422, "invalid-until", "It is no boundary.");
        }
        Reply::from(span.clone()).with(ETAG, "\"7\"")
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
    assert_eq!(
        seen[1].what,
        "GET /v1/spans?state=suspended&cause=c1&limit=100"
    );
    let skips = seen.iter().filter(|seen| seen.what.ends_with("/skip"));
    let skips = skips.map(|seen| {
        (
            seen.what.as_str(),
            seen.header("if-match"),
            seen.json()["until"].clone(),
        )
    });
    // None is skipped beyond its end.
    let expected = [("a", NOW - HOUR), ("b", NOW - 7 * HOUR), ("c", NOW - HOUR)];
    let expected = expected.map(|(id, until)| (format!("POST /v1/spans/span-{id}/skip"), until));
    let expected = expected
        .iter()
        .map(|(what, until)| (what.as_str(), Some("\"7\""), json!(until)));
    assert!(skips.eq(expected), "{seen:#?}");
    let document = skip("c1", &["--json"]).json();
    assert_eq!(document["skipped"], 2);
    assert_eq!(document["refused"][0]["span"], "span-a");
    assert_eq!(
        document["refused"][0]["problem"]["type"],
        "/problems/invalid-until"
    );
    skip("none", &[]).tells(2, &["There is no cause."]);
}

/// An act whose answer is lost may have been done: it is sent once. One that was turned away was not.
#[test]
fn an_act_is_repeated_only_where_it_was_not_done() {
    let stub = Stub::start(|_, number| {
        let name = ["overloaded", "database-unavailable"][number.min(1)];
        let kind = format!("/problems/{name}");
        Reply::of(503, json!({ "type": kind }))
    });
    stub.run(&["resend", "--usage", "u", "--reason", "r"])
        .tells(3, &[]);
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
                            "plan_id": "p", "spans": 10_000, "since": NOW }] })
        .into()
    });
    let rows = |arguments: &[&str]| -> Vec<Vec<String>> {
        let text = stub.run(arguments).done();
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect();
        text.lines().map(words).collect()
    };
    let causes = rows(&["suspended", "--resource-id", "r"]);
    let since = "2026-11-22T13:00:00.000Z";
    let expected = ["c1", "422", "noplan", "r", "p", "10000", since];
    assert_eq!(causes[1..], [expected]);
    let acts = rows(&["audit", "--who", "ann", "--from", "2026-11-22T13:00:00Z"]);
    let header = ["at", "who", "act", "subject", "outcome", "reason", "id"];
    let row = |outcome| {
        [
            since,
            "ann",
            "skip",
            "s1",
            outcome,
            "agreed\u{fffd}",
            outcome,
        ]
    };
    let expected = [header, row("done"), row("refused"), row("unknown")];
    assert_eq!(acts, expected);
    let audit = format!("GET /v1/audit?from={NOW}&who=ann&limit=100");
    assert_eq!(stub.whats(), ["GET /v1/suspended?resource_id=r", &audit]);
}

#[test]
fn the_backlog_is_shown() {
    let closing = json!({ "month": "2026-10", "left": 1200, "closes_at": NOW });
    let stub = Stub::always(
        json!({ "due": 1200, "at_least": true, "oldest": NOW, "suspended": 3,
                "rate": 5012.3, "closing": closing }),
    );
    let text = stub.run(&["backlog"]).done();
    for line in ["spans due      at least 1200", "usages/s       5012.30"] {
        assert!(text.lines().any(|it| it == line), "{line} in {text}");
    }
    let document = json_of(&stub.run(&["backlog", "--json"]).done());
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
        Reply::from(now()).with(ETAG, "\"3\"")
    });
    let shown = stub.run(&["control"]);
    shown.writes(0, &["postgres 50 %, redis 5 %", "sampling         runs"]);
    let set =
        |options: &[&str]| stub.run(&[&["control", "set", "--reason", "drain"], options].concat());
    let resources = ["--resource", "postgres=0", "--resource", "redis"];
    let changed = set(&[&["--rate", "12.5", "--paused", "true"], &resources[..]].concat());
    changed.writes(0, &["12.5 %", "sampling         paused"]);
    let put = &stub.seen()[2];
    assert_eq!(put.what, "PUT /v1/control");
    assert_eq!(put.header("if-match"), Some("\"3\""));
    let expected = json!({
        "starts": { "rate": 12.5, "resources": { "postgres": 0 } },
        "sampling": { "paused": true },
        "controller": { "enabled": false, "target_seconds": 600, "kp": 8, "ki": 0, "kd": 0 },
        "reason": "drain",
    });
    assert_eq!(put.json(), expected);
    for wrong in [&[][..], &["--rate", "101"], &["--resource", "a=b"]] {
        set(wrong).tells(2, &[]);
    }
}

#[test]
fn shells_complete_commands() {
    for shell in ["bash", "zsh", "fish"] {
        run(&["completions", shell]).writes(0, &["suspended"]);
    }
}
