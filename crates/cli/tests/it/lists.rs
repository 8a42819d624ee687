//! Commands that show what the API has.

use serde_json::{Value, json};

use crate::api::{HOUR, World};
use crate::stub::{Reply, Stub};
use crate::{Ended, NOW, json_of, run, spaced};

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
    let items = limited.json()["items"].clone();
    assert_eq!(
        (items[0]["id"].as_str(), &items[1]),
        (Some("span-shop"), &Value::Null)
    );
    let warning = json_of(&limited.errors)["warning"]["message"].to_string();
    assert!(warning.contains("the first 1"), "{limited:?}");
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

/// A ledger that differs is a failure, unless a post had no answer.
#[test]
fn the_proof_is_one_of_what_is_sampled() {
    for (member, value, code, words) in [
        (
            "unsampled",
            json!(5 * HOUR),
            0,
            "; not billed yet 5:00:00.000; the ledger has 20 usages of 20:00:00.000",
        ),
        (
            "unsampled",
            json!(-HOUR),
            0,
            "; to be taken back 1:00:00.000; the ledger has",
        ),
        ("difference", json!(5), 1, ", DIFFERENCE 5 ms"),
        (
            "unanswered",
            json!(HOUR),
            0,
            " (the upstream may count 1:00:00.000 of it: a post had no answer), difference 5 ms",
        ),
    ] {
        let mut world = world();
        let proof = &mut world.spans[0]["proof"];
        proof[member] = value;
        if member == "unanswered" {
            proof["difference"] = json!(5);
        }
        let ended = world.start().run(&["span", "span-orders"]);
        ended.writes(
            code,
            &["proof: used 20:00:00.000 = billed 20:00:00.000 + skipped 0:00:00.000"],
        );
        for part in words.split(", ") {
            ended.writes(code, &[part]);
        }
    }
}

#[test]
fn what_does_not_count_is_shown_above_the_ledger() {
    let mut world = world();
    world.spans[0]["excluded"] =
        json!([{ "start": NOW, "end": NOW + HOUR, "unanswered": true, "error": "no\u{1b}plan" }]);
    world.spans[0]["again"] =
        json!([{ "start": NOW, "end": NOW + HOUR, "back_to": NOW + 5, "unanswered": false }]);
    let text = spaced(&world.start().run(&["span", "span-orders"]).done());
    let range =
        "start end back to unanswered error 2026-11-22T13:00:00.000Z 2026-11-22T14:00:00.000Z";
    for told in [
        format!("skipped: {range} - true no\u{fffd}plan"),
        format!("sent again: {range} 2026-11-22T13:00:00.005Z false -"),
    ] {
        assert!(text.contains(&told), "{told} is not in {text}");
    }
}

fn wrong_query() -> Reply {
    let errors = json!([{ "parameter": "state", "detail": "It is wrong." }]);
    let kind = "/problems/invalid-query";
    Reply::of(
        400,
        json!({ "type": kind, "detail": "No.", "errors": errors }),
    )
}

/// A 404 that says nothing is not one of the API: the address is wrong.
#[test]
fn what_the_api_refuses_is_told() {
    let stub = Stub::start(|seen, _| match &*seen.what {
        what if what.contains("/v1/spans?resource_instance_id") => json!({ "items": [] }).into(),
        what if what.contains("/v1/spans?") => wrong_query(),
        what if what.contains("unconfirmed") => {
            Reply::of(404, json!({ "detail": "There is no usage\u{1b}." }))
        }
        what if what.contains("suspended") => Reply::of(404, json!("nothing")),
        _ => Reply::problem(404, "no-such-span", "There is no span."),
    });
    for (arguments, code, told) in [
        (
            &["span", "a/b"][..],
            2,
            "error: there is no span with the id a/b, and",
        ),
        (
            &["resend", "--usage", "u", "--reason", "r"],
            2,
            "There is no usage\u{fffd}.",
        ),
        (&["spans"], 2, "error: No. [state: It is wrong.]\n"),
        (&["spans", "--limit", "0"], 2, "error: invalid value"),
        (
            &["suspended"],
            3,
            "error: /v1/suspended is answered 404 Not Found\n",
        ),
    ] {
        let ended = stub.run(arguments);
        ended.tells(code, &[told]);
        assert_eq!(ended.output, "");
    }
    let searched = "GET /v1/spans?resource_instance_id=a%2Fb&limit=100";
    assert_eq!(stub.whats()[..2], ["GET /v1/spans/a%2Fb", searched]);
}

/// With `--json` a program reads standard error, too: one object, whatever failed.
#[test]
fn machines_are_told_failures_in_json() {
    let stub = Stub::start(|_, _| wrong_query());
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
}

/// An invoice is in GB·h: the amount stands there in that, beside the exact one.
#[test]
fn sums_are_asked_for_and_shown() {
    let memory = json!({ "measure": "memory", "amount": 44_236_800_000_i64, "unit": "MB" });
    let sum = json!({
        "window": { "start": NOW, "end": NOW + HOUR }, "usages": 24, "duration": 86_400_000,
        "group": { "resource_id": "postgres", "plan_id": "large" },
        "measures": [memory, { "measure": "load", "amount": 3 }],
    });
    let stub = Stub::always(json!({ "items": [sum] }));
    let query = ["usages", "--organization-id", "o", "--window", "hour"];
    let more = ["--group-by", "resource_id,plan_id", "--accepted-to", "5"];
    let text = stub.run(&[&query[..], &more[..]].concat()).done();
    let amounts = "memory 12.288 GB·h (44236800000 MB·ms), load 3";
    let expected = format!(
        "start end group usages duration measures \
         2026-11-22T13:00:00.000Z 2026-11-22T14:00:00.000Z postgres large 24 24:00:00.000 {amounts}"
    );
    assert_eq!(spaced(&text), expected);
    let asked = "GET /v1/usages?organization_id=o&accepted_to=5&window=hour&group_by=resource_id%2Cplan_id&limit=100";
    assert_eq!(stub.whats(), [asked]);
}

#[test]
fn causes_and_the_audit_trail_are_listed() {
    let stub = Stub::start(|seen, _| {
        if seen.what.contains("audit") {
            let act = |outcome| {
                json!({ "id": "a1", "at": NOW, "who": "ann", "act": "skip", "subject": "s1",
                        "reason": "agreed\u{7}", "before": {}, "after": {}, "outcome": outcome })
            };
            let acts = ["done", "refused"].map(act);
            return json!({ "items": acts }).into();
        }
        json!({ "items": [{ "cause": "c1", "status": 422, "error": "noplan", "resource_id": "r",
                            "plan_id": "p", "spans": 10_000, "since": NOW }] })
        .into()
    });
    let since = "2026-11-22T13:00:00.000Z";
    let act = |outcome| format!("{since} ann skip s1 {outcome} agreed\u{fffd} a1");
    for (arguments, expected) in [
        (
            ["suspended", "--resource-id", "r"],
            format!(
                "cause status error resource id plan id spans since c1 422 noplan r p 10000 {since}"
            ),
        ),
        (
            ["audit", "--who", "ann"],
            format!(
                "at who act subject outcome reason id {} {}",
                act("done"),
                act("refused")
            ),
        ),
    ] {
        assert_eq!(spaced(&stub.run(&arguments).done()), expected);
    }
    let audit = "GET /v1/audit?who=ann&limit=100";
    assert_eq!(stub.whats(), ["GET /v1/suspended?resource_id=r", audit]);
}

#[test]
fn the_backlog_is_shown_under_the_names_of_the_api() {
    let closing = json!({ "month": "2026-10", "left": 1200, "closes_at": NOW });
    let stub = Stub::always(json!({ "due": 1200, "oldest": null, "closing": closing }));
    let expected = "\
due                1200
oldest             -
closing.month      2026-10
closing.left       1200
closing.closes_at  2026-11-22T13:00:00.000Z
";
    assert_eq!(stub.run(&["backlog"]).done(), expected);
}

#[test]
fn shells_complete_commands() {
    for shell in ["bash", "zsh", "fish"] {
        run(&["completions", shell]).writes(0, &["suspended"]);
    }
}
