//! `sampler events`, and `sampler start`, `stop` and `update`.

use std::collections::BTreeSet;
use std::process::{Command, Stdio};
use std::sync::{Mutex, mpsc};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::api::{HOUR, IDS, World};
use crate::stub::{Reply, Seen, Stub};
use crate::{Ended, NOW, file, json_of, run, sampler};

impl Stub {
    /// Keeps all events.
    pub(crate) fn keeping() -> Self {
        Self::start(|seen, _| answer(seen, |_| 201))
    }

    /// Sends it the events of a file.
    pub(crate) fn send(&self, path: &str, more: &[&str]) -> Ended {
        self.run(&[&["events", "send", path], more].concat())
    }

    /// The ids of the events that it was sent, batch by batch.
    pub(crate) fn sent(&self) -> Vec<Vec<String>> {
        self.seen().iter().map(ids).collect()
    }
}

pub(crate) fn event(id: &str, more: &str) -> String {
    format!(r#"{{"type":"start","id":"{id}","timestamp":5,"resource_id":"r"{more}}}"#)
}

/// As many events as that, each on a line of its own, with a comment in front.
pub(crate) fn events(count: usize) -> String {
    let lines: Vec<String> = (0..count)
        .map(|number| event(&number.to_string(), ""))
        .collect();
    format!("# {count}\n{}\n", lines.join("\n"))
}

fn open_span() -> Value {
    json!({ "type": "/problems/open-span", "detail": "It is open." })
}

/// Stands for an update of which the stop alone is kept.
const HALF_KEPT: u16 = 0;

fn outcome(index: usize, status: u16) -> Value {
    match status {
        201 => json!({ "index": index, "status": 201, "replayed": false, "span": "s" }),
        HALF_KEPT => {
            let problem = json!({ "type": "/problems/open-span", "stopped": true });
            json!({ "index": index, "status": 409, "problem": problem })
        }
        status => json!({ "index": index, "status": status, "problem": open_span() }),
    }
}

/// Answers a batch, each event by its id.
pub(crate) fn answer(seen: &Seen, status: impl Fn(&str) -> u16) -> Reply {
    let ids = ids(seen);
    let results = ids.iter().enumerate();
    let results = results.map(|(index, id)| outcome(index, status(id)));
    batch(&results.collect::<Vec<_>>())
}

fn batch(results: &[Value]) -> Reply {
    json!({ "accepted": 0, "replayed": 0, "refused": 0, "failed": 0, "results": results }).into()
}

pub(crate) fn ids(seen: &Seen) -> Vec<String> {
    let events = seen.json();
    let id = |event: &Value| event["id"].as_str().unwrap().to_owned();
    events.as_array().unwrap().iter().map(id).collect()
}

#[test]
fn a_file_is_sent_in_batches_and_what_is_refused_is_told_with_its_line() {
    let stub = Stub::start(|seen, _| answer(seen, |id| if id == "3" { 409 } else { 201 }));
    let (_folder, path) = file("events.ndjson", &events(5));
    let ended = stub.send(&path, &["--batch", "2"]);
    let summary = "5 events: 4 accepted, 0 replayed, 1 refused.\n";
    let expected = format!("line 5: 409 open-span: It is open.\n{summary}");
    assert_eq!((ended.code, ended.output), (Some(1), expected));
    assert_eq!(ended.errors, "");
    assert_eq!(stub.sent(), [&["0", "1"][..], &["2", "3"], &["4"]]);
    let kind = stub.seen()[0].header("content-type").map(str::to_owned);
    assert_eq!(kind.as_deref(), Some("application/json"));
    let document = stub.send(&path, &["--json"]).json();
    let refusal = &document["refusals"][0];
    assert_eq!(
        (&refusal["line"], &refusal["status"]),
        (&json!(5), &json!(409))
    );
    assert_eq!(refusal["problem"]["detail"], "It is open.");
    assert_eq!(
        (&document["events"], &document["accepted"]),
        (&json!(5), &json!(4))
    );
}

/// So sending again is always safe.
#[test]
fn nothing_is_sent_of_a_file_with_a_mistake() {
    let stub = Stub::keeping();
    let good = events(3);
    for (line, part) in [
        (
            r#"{"type":"start","timestamp":5}"#,
            "line 5: the event has no \"id\"",
        ),
        (
            r#"{"id":"","timestamp":5}"#,
            "line 5: the event has no \"id\"",
        ),
        (
            r#"{"id":5,"timestamp":5}"#,
            "line 5: invalid type: integer `5`, expected a string",
        ),
        (
            r#"{"specversion":"1.0"}"#,
            "line 5: the event has no \"id\"",
        ),
        ("{\"id\":\"\u{fffd}\"}", "line 5: it is not UTF-8"),
        ("{broken", "line 5: not JSON: "),
    ] {
        let (_folder, path) = file("events.ndjson", &format!("{good}{line}\n[]\n"));
        let ended = stub.send(&path, &["--batch", "1"]);
        ended.tells(2, &[part, "\nline 6: "]);
    }
    let (_folder, path) = file("events.ndjson", "# nothing\n");
    stub.send(&path, &[])
        .tells(2, &["there are no events in it"]);
    assert_eq!(stub.seen().len(), 0);
}

/// Events whose outcome is unknown are sent again, in their order and before any later ones. One of them may make
/// room for what stands behind it.
#[test]
fn what_failed_is_sent_again_before_anything_else() {
    for unsettled in [408, 429, 500, 503, HALF_KEPT] {
        let stub = Stub::start(move |seen, number| {
            answer(seen, move |id| match (number, id) {
                (0, "2") => unsettled,
                (_, "0") | (0, "3") => 409,
                _ => 201,
            })
        });
        let (_folder, path) = file("events.ndjson", &events(5));
        let ended = stub.send(&path, &["--batch", "4"]);
        let summary = "5 events: 4 accepted, 0 replayed, 1 refused.\n";
        let expected = format!("line 2: 409 open-span: It is open.\n{summary}");
        assert_eq!((ended.code, ended.output), (Some(1), expected));
        let expected = [&["0", "1", "2", "3"][..], &["2", "3"], &["4"]];
        assert_eq!(stub.sent(), expected);
    }
}

/// What has no final answer may still be done until then.
#[test]
fn the_receiver_says_when_to_send_again() {
    let stub = Stub::start(|_, number| {
        let mut outcome = outcome(0, if number == 0 { 503 } else { 201 });
        if number == 0 {
            outcome["retry_after"] = json!(1);
        }
        batch(&[outcome])
    });
    let (_folder, path) = file("events.ndjson", &events(1));
    let begin = Instant::now();
    stub.send(&path, &[]).writes(0, &[]);
    assert!(begin.elapsed() >= Duration::from_secs(1));
    assert_eq!(stub.whats().len(), 2);
}

/// Whoever was interrupted sends the file again.
#[test]
fn an_interruption_says_how_to_go_on() {
    let (asked, was_asked) = mpsc::channel();
    let (let_go, may_go) = mpsc::channel::<()>();
    let held = Mutex::new((asked, may_go));
    let stub = Stub::start(move |seen, at| {
        if at == 1 {
            let (asked, may_go) = &*held.lock().unwrap();
            asked.send(()).unwrap();
            may_go.recv().unwrap();
        }
        answer(seen, |_| 201)
    });
    let (_folder, path) = file("events.ndjson", &events(5));
    let url = stub.url();
    let mut command = sampler(&["events", "send", &path, "--batch", "2", "--url", &url]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let sending = command.spawn().unwrap();
    was_asked.recv().unwrap();
    let id = sending.id().to_string();
    let interrupt = Command::new("kill").args(["-INT", &id]).status();
    assert!(interrupt.unwrap().success());
    let ended: Ended = sending.wait_with_output().unwrap().into();
    let_go.send(()).unwrap();
    let told = format!(
        "error: interrupted: 2 events of {path} are done; the same command continues: what is kept is \
         recognised\n"
    );
    ended.tells(130, &[]);
    assert_eq!(ended.errors, told);
}

#[test]
fn a_batch_that_is_too_large_is_sent_in_halves() {
    let stub = Stub::start(|seen, _| {
        if ids(seen).len() > 2 {
            return Reply::of(413, json!({ "detail": "Too much." }));
        }
        answer(seen, |_| 201)
    });
    let (_folder, path) = file("events.ndjson", &events(5));
    stub.send(&path, &[]).writes(0, &[]);
    let kept = stub.sent().into_iter().filter(|ids| ids.len() <= 2);
    let kept: Vec<String> = kept.flatten().collect();
    assert_eq!(kept, ["0", "1", "2", "3", "4"]);
}

/// A row has no id: its events have ids that follow from it, so that a repeat is the same events.
#[test]
fn the_rows_of_a_table_are_sent_under_the_same_ids_again() {
    let rows = "o,s,c,r,p,1,100,200,5\no,s,c,r,p,1,100,200,5\n,,,,,,,,\no,s,c,r,p,2,300,,6.5\n";
    let stub = Stub::keeping();
    let (_folder, path) = file(
        "spans.csv",
        &format!("{TARGET},start,end,measure:memory\n{rows}"),
    );
    for _ in 0..2 {
        stub.send(&path, &[]).writes(0, &["5 events: 5 accepted"]);
    }
    let seen = stub.seen();
    assert_eq!(seen[0].body, seen[1].body);
    let ids = ids(&seen[0]);
    assert_eq!(ids[..2], ids[2..4]);
    assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), 3, "{ids:?}");
    let measure = r#""measured_usage":[{"measure":"memory","quantity":6.5}]"#;
    assert!(seen[0].body.contains(measure), "{}", seen[0].body);
}

/// The columns of a target.
pub(crate) const TARGET: &str =
    "organization_id,space_id,consumer_id,resource_id,plan_id,resource_instance_id";

/// Whatever the numbers of a column are, its name says whether it is a measure.
#[test]
fn no_column_of_a_table_is_lost() {
    let stub = Stub::keeping();
    let send = |column: &str, more: &[&str]| {
        let text =
            format!("{TARGET},start,end,{column}\no,s,c,r,p,1,100,,512\no,s,c,r,p,2,100,,512.5\n");
        let (_folder, path) = file("spans.csv", &text);
        stub.send(&path, more)
    };
    let parts = [
        "\"memory\"",
        "measure:memory",
        "--measures \"memory\"",
        "--ignore \"memory\"",
    ];
    send("memory", &[]).tells(2, &parts);
    assert_eq!(stub.seen().len(), 0);
    send("memory", &["--measures", "memory"]).writes(0, &[]);
    send("measure:memory", &[]).writes(0, &[]);
    let seen = stub.seen();
    assert_eq!(seen[0].body, seen[1].body);
    for quantity in ["512", "512.5"] {
        let measure = format!(r#"[{{"measure":"memory","quantity":{quantity}}}]"#);
        assert!(seen[0].body.contains(&measure), "{}", seen[0].body);
    }
    let (_folder, path) = file("events.ndjson", "{}");
    stub.send(&path, &["--measures", "memory"])
        .tells(2, &["only a CSV"]);
}

#[test]
fn events_are_sent_as_they_are_written() {
    let stub = Stub::keeping();
    let event = |id: &str| {
        format!(r#"{{"specversion": "1.0", "id": "{id}", "source": "/x", "type": "a.start"}}"#)
    };
    let stop =
        r#"{"type": "stop", "id": "3", "timestamp": 1e2, "x": 123456789012345678901234567890}"#;
    let text = format!("{}\n{}\n{stop}\n", event("1"), event("2"));
    let (_folder, path) = file("events.ndjson", &text);
    stub.send(&path, &[]).writes(0, &[]);
    let seen = stub.seen();
    assert_eq!(stub.sent(), [&["1", "2"][..], &["3"]]);
    let kind = seen[0].header("content-type");
    assert_eq!(kind, Some("application/cloudevents-batch+json"));
    assert!(seen[0].body.contains(&event("1")), "{}", seen[0].body);
    assert_eq!(seen[1].body, format!("[{stop}]"));
}

#[test]
fn events_come_from_standard_input_too() {
    let stub = Stub::keeping();
    let (_folder, path) = file("events", &events(2));
    let url = stub.url();
    let mut command = sampler(&["events", "send", "-", "--format", "ndjson", "--url", &url]);
    command.stdin(std::fs::File::open(path).unwrap());
    let ended: Ended = command.output().unwrap().into();
    ended.writes(0, &["2 events: 2 accepted"]);
}

#[test]
fn an_answer_that_leaves_out_an_event_is_not_believed() {
    let stub = Stub::start(|_, _| batch(&[outcome(0, 201)]));
    let (_folder, path) = file("events.ndjson", &events(2));
    let ended = stub.send(&path, &[]);
    ended.tells(3, &["not each event has a result"]);
}

/// Two and a half hours by hours: 30 minutes, an hour, an hour; what began later runs until then.
#[test]
fn a_preview_shows_what_the_upstream_would_get() {
    let event = |kind: &str, id: &str, instance: &str, minutes: i64| {
        let mut event = json!({ "type": kind, "id": id, "timestamp": minutes * 60_000 });
        for (name, value) in TARGET.split(',').zip(["o", "s", "c", "r", "p", instance]) {
            event[name] = json!(value);
        }
        event["measured_usage"] = json!([{ "measure": "memory", "quantity": 0.1 }]);
        format!("{event}\n")
    };
    let start = event("start", "1", "db", 30);
    let more = event("stop", "2", "db", 180) + &event("start", "3", "runs", 200);
    let (_folder, path) = file("events.ndjson", &(start.clone() + &more));
    let preview = [
        "events",
        "preview",
        &path,
        "--granularity",
        "hour",
        "--until",
    ];
    let until = |until: &str, more: &[&str]| run(&[&preview[..], &[until], more].concat());
    let first = "r/p/db    1970-01-01T00:30:00.000Z  1970-01-01T01:00:00.000Z";
    let parts = [
        "\n5 usages of 4:10:00.000 together.\n",
        "memory 0.1, duration 1800000",
        first,
    ];
    until("1970-01-01T05:00", &[]).writes(0, &parts);
    until("1970-01-01T01:59", &[]).writes(0, &["\n1 usage of 0:30:00.000 together."]);
    let usages = until("1970-01-01T02:00", &["--json"]).json()["usages"].clone();
    assert_eq!(usages.as_array().unwrap().len(), 2);
    assert_eq!(usages[1]["start"], 90 * 60_000);
    assert_eq!(usages[1]["measured_usage"][1]["quantity"], 3_600_000);
    let twice = start + &event("start", "9", "db", 40);
    let (_folder, path) = file("events.ndjson", &twice);
    let ended = run(&["events", "preview", &path, "--until", "1970-01-02"]);
    let parts = ["line 2: a start at", "1 usage of 23:30:00.000 together."];
    ended.writes(1, &parts);
}

#[test]
fn an_output_that_is_full_is_not_nothing_done() {
    let stub = Stub::keeping();
    let (_folder, path) = file("events.ndjson", &events(2));
    let url = stub.url();
    let mut command = sampler(&["events", "send", &path, "--url", &url]);
    let full = std::fs::File::options().write(true).open("/dev/full");
    let ended: Ended = command.stdout(full.unwrap()).output().unwrap().into();
    ended.tells(4, &[]);
}

/// It would be the mistake of the command line, if nothing was sent before.
#[test]
fn a_batch_that_is_refused_behind_another_is_not_nothing_done() {
    let stub = Stub::start(|seen, number| match number {
        0 => answer(seen, |_| 201),
        _ => Reply::of(400, json!({ "detail": "It nests too deeply." })),
    });
    let (_folder, path) = file("events.ndjson", &events(2));
    stub.send(&path, &["--batch", "1"]).tells(3, &[]);
    let ended = stub.send(&path, &["--json"]);
    ended.tells(2, &[]);
    let error = &json_of(&ended.errors)["error"];
    assert_eq!(error["problem"]["detail"], "It nests too deeply.");
}

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
        let measures = [
            "--measure",
            "memory=512",
            "--measure",
            "load=0.50000000000000000001",
        ];
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
    let measures = r#""measured_usage":[{"measure":"memory","quantity":512},{"measure":"load","quantity":0.50000000000000000001}]"#;
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
