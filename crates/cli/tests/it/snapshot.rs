//! `sampler snapshot`.

use serde_json::{Value, json};

use crate::events::{answer, ids};
use crate::stub::Stub;
use crate::{Ended, file};

/// A quantity that becomes 31.24527019143944 where it is read as a number and written again.
const QUANTITY: &str = "31.245270191439438";

fn command(stub: &Stub, act: &str, more: &[&str]) -> Ended {
    let (_folder, path) = file("now.ndjson", "{\"resource_id\":\"r\",\"at\":5}\n{}\n");
    stub.run(&[&["snapshot", act, &path], more].concat())
}

/// Answers snapshots with this, and keeps all events.
fn answering(difference: Value) -> Stub {
    Stub::start(move |seen, _| {
        if seen.what.ends_with("/v1/events") {
            return answer(seen, |_| 201);
        }
        difference.clone().into()
    })
}

/// A comparison of so many instances, with what no longer runs and what was not started.
fn comparison(checked: usize, stops: &[Value], starts: &[Value]) -> Value {
    json!({ "at": 5, "checked": checked, "open_without_instance": stops,
            "instance_without_span": starts, "differs": [] })
}

#[test]
fn a_snapshot_shows_and_mends_what_differs() {
    let proposal = json!({ "type": "stop", "id": "snapshot-1", "timestamp": 5, "organization_id": "o",
                           "space_id": "s", "consumer_id": "c", "resource_id": "r", "plan_id": "p",
                           "resource_instance_id": "i" });
    let stop = json!({ "span": "s1", "proposal": proposal });
    let stub = answering(comparison(812, &[stop], &[]));
    let row = "r/p/i   no longer runs  stop at 1970-01-01T00:00:00.005Z  s1";
    command(&stub, "diff", &[]).writes(1, &[row]);
    let kind = stub.seen()[0].header("content-type").map(str::to_owned);
    assert_eq!(kind.as_deref(), Some("application/x-ndjson"));
    command(&stub, "apply", &["--most", "0"]).writes(1, &[]);
    assert_eq!(stub.whats().len(), 2);
    command(&stub, "apply", &[]).writes(0, &[]);
    assert_eq!(ids(&stub.seen()[3]), ["snapshot-1"]);
    let nothing = answering(comparison(812, &[], &[]));
    let text = command(&nothing, "diff", &[]).done();
    assert!(text.starts_with("Nothing differs: 812 instances"), "{text}");
}

fn starts(count: usize) -> Value {
    let quantity: f64 = QUANTITY.parse().unwrap();
    let measures = json!([{ "measure": "memory", "quantity": quantity }]);
    let start = |number: usize| {
        json!({ "proposal": { "type": "start", "id": format!("snapshot-{number}"), "timestamp": 5,
                "resource_id": "r", "measured_usage": measures } })
    };
    comparison(count, &[], &(0..count).map(start).collect::<Vec<_>>())
}

/// The id of a proposal was made from its text: another quantity under it would be billed.
#[test]
fn proposals_are_passed_on_as_they_are_written() {
    let stub = answering(starts(1));
    let ended = command(&stub, "apply", &["--json"]);
    ended.writes(0, &[QUANTITY]);
    let sent = &stub.seen()[1].body;
    assert!(sent.contains(QUANTITY), "{sent}");
    assert_eq!(ended.json()["report"]["accepted"], 1);
    let ended = command(&stub, "diff", &["--json"]);
    ended.writes(1, &[QUANTITY]);
    assert_eq!(ended.json()["checked"], 1);
}

#[test]
fn an_answer_that_leaves_out_differences_is_not_all() {
    let mut difference = starts(2);
    difference["more"] = json!(true);
    let stub = answering(difference);
    command(&stub, "diff", &[]).tells(1, &["more differences"]);
    command(&stub, "apply", &[]).tells(1, &["apply it again"]);
    assert_eq!(ids(&stub.seen()[2]), ["snapshot-0", "snapshot-1"]);
}

/// The first comparison of a platform has very many; a table for people has an end.
#[test]
fn an_answer_of_many_megabytes_is_read() {
    let mut difference = starts(1);
    let mut one = difference["instance_without_span"][0].clone();
    one["target"] = json!({ "space_id": "s".repeat(1_024) });
    difference["instance_without_span"] = Value::Array(vec![one; 60_000]);
    let stub = answering(difference);
    let ended = command(&stub, "diff", &[]);
    assert_eq!(ended.code, Some(1), "{}", ended.errors);
    let lines = ended.output.lines().count();
    assert!(lines < 11_000, "{lines}");
    assert!(ended.output.contains("60000 differences"));
    assert!(ended.output.contains("--json shows all"));
}

#[test]
fn a_difference_without_a_proposal_is_no_answer() {
    let stub = answering(json!({ "at": 5, "checked": 1, "differs": [{ "span": "s" }] }));
    command(&stub, "apply", &[]).tells(3, &[]);
    assert_eq!(stub.whats().len(), 1);
}
