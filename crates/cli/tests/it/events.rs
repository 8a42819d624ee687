//! `sampler events`.

use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::stub::{Reply, Seen, Stub};
use crate::{Ended, file, sampler};

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
    json!({ "type": "urn:sampler:problem:open-span", "detail": "It is open." })
}

fn outcome(index: usize, status: u16) -> Value {
    match status {
        201 => json!({ "index": index, "status": 201, "replayed": false, "span": "s" }),
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

/// No event can be kept any more.
pub(crate) fn token_has_ended() -> Reply {
    Reply::of(401, json!({ "detail": "The token has ended." }))
}

pub(crate) fn ids(seen: &Seen) -> Vec<String> {
    let events = seen.json();
    let id = |event: &Value| event["id"].as_str().unwrap().to_owned();
    events.as_array().unwrap().iter().map(id).collect()
}

pub(crate) fn journal(path: &str) -> String {
    format!("{path}.sampler-journal")
}

pub(crate) fn has_journal(path: &str) -> bool {
    Path::new(&journal(path)).exists()
}

#[test]
fn a_file_is_sent_in_batches_and_what_is_refused_is_told_with_its_line() {
    let stub = Stub::start(|seen, _| answer(seen, |id| if id == "3" { 409 } else { 201 }));
    let (_folder, path) = file("events.ndjson", &(events(5) + "{broken\n"));
    let ended = stub.send(&path, &["--batch", "2"]);
    ended.writes(1, &[]);
    assert_eq!(ended.errors, "");
    let lines: Vec<&str> = ended.output.lines().collect();
    assert_eq!(lines[0], "line 5: 409 open-span: It is open.");
    assert!(lines[1].starts_with("line 7: not JSON: "), "{ended:?}");
    assert_eq!(lines[2], "6 events: 4 accepted, 0 replayed, 2 refused.");
    assert_eq!(stub.sent(), [&["0", "1"][..], &["2", "3"], &["4"]]);
    let kind = stub.seen()[0].header("content-type").map(str::to_owned);
    assert_eq!(kind.as_deref(), Some("application/json"));
    assert!(!has_journal(&path));
    let document = stub.send(&path, &["--json"]).json();
    let refusal = &document["refusals"][0];
    assert_eq!(
        (&refusal["line"], &document["events"]),
        (&json!(5), &json!(6))
    );
    assert_eq!(refusal["problem"]["detail"], "It is open.");
    assert_eq!(document["accepted"], 4);
}

/// Events whose outcome is unknown are sent again, in their order and before any later ones.
#[test]
fn what_failed_is_sent_again_before_anything_else() {
    let stub = Stub::start(|seen, number| {
        answer(
            seen,
            move |id| if number == 0 && id != "1" { 503 } else { 201 },
        )
    });
    let (_folder, path) = file("events.ndjson", &events(5));
    let ended = stub.send(&path, &["--batch", "4"]);
    ended.writes(0, &[]);
    let expected = [&["0", "1", "2", "3"][..], &["0", "2", "3"], &["4"]];
    assert_eq!(stub.sent(), expected);
    let summary = "5 events: 5 accepted, 0 replayed, 0 refused.\n";
    assert_eq!(ended.output, summary);
}

/// A start that may still be kept makes room for what stands behind it.
#[test]
fn a_refusal_behind_an_event_of_unknown_fate_is_not_final() {
    let stub = Stub::start(|seen, number| {
        answer(seen, move |id| match (number, id) {
            (0, "a") => 500,
            (0, "b") | (_, "c") => 409,
            _ => 201,
        })
    });
    let of =
        |id: &str, instance: &str| event(id, &format!(r#","resource_instance_id":"{instance}""#));
    let lines = [of("a", "i"), of("c", "j"), of("b", "i")].join("\n");
    let (_folder, path) = file("events.ndjson", &lines);
    let ended = stub.send(&path, &[]);
    ended.writes(1, &[]);
    let summary = "3 events: 2 accepted, 0 replayed, 1 refused.\n";
    let expected = format!("line 2: 409 open-span: It is open.\n{summary}");
    assert_eq!(ended.output, expected);
    assert_eq!(stub.sent(), [&["a", "c", "b"][..], &["a", "b"]]);
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

/// What a command that resumes seven events in batches of two has sent in the end: the third batch got no answer.
fn assert_goes_on(stub: &Stub, path: &str) {
    let ended = stub.send(path, &["--batch", "2"]);
    ended.writes(1, &[]);
    assert!(ended.output.starts_with("line 3: 422 "), "{ended:?}");
    let summary = "7 events: 6 accepted, 0 replayed, 1 refused.\n";
    assert!(ended.output.ends_with(summary), "{ended:?}");
    let expected = [
        &["0", "1"][..],
        &["2", "3"],
        &["4", "5"],
        &["4", "5"],
        &["6"],
    ];
    assert_eq!(stub.sent(), expected);
    assert!(!has_journal(path));
}

#[test]
fn an_interrupted_command_goes_on_where_it_stopped() {
    let is_up = Arc::new(AtomicBool::new(false));
    let up = is_up.clone();
    let stub = Stub::start(move |seen, number| {
        if number == 2 && !up.load(Ordering::SeqCst) {
            return token_has_ended();
        }
        answer(seen, |id| if id == "1" { 422 } else { 201 })
    });
    let (_folder, path) = file("events.ndjson", &events(7));
    let ended = stub.send(&path, &["--batch", "2"]);
    ended.tells(3, &["The token has ended."]);
    // The last line of the journal may be cut short by a crash.
    let mut text = std::fs::read_to_string(journal(&path)).unwrap();
    text.push_str("{\"done\":6,\"rep");
    std::fs::write(journal(&path), text).unwrap();
    is_up.store(true, Ordering::SeqCst);
    let other = Stub::keeping().send(&path, &["--batch", "2"]);
    other.tells(2, &["--restart"]);
    assert_goes_on(&stub, &path);
}

/// A stub that keeps all events but `1`, and holds the answer to one request until it is let go; what waits until that
/// came, and what lets it go.
pub(crate) fn holding(number: usize) -> (Stub, mpsc::Receiver<()>, mpsc::Sender<()>) {
    let (asked, was_asked) = mpsc::channel();
    let (let_go, may_go) = mpsc::channel::<()>();
    let (asked, may_go) = (Mutex::new(asked), Mutex::new(may_go));
    let stub = Stub::start(move |seen, at| {
        if at == number {
            asked.lock().unwrap().send(()).unwrap();
            may_go.lock().unwrap().recv().unwrap();
        }
        answer(seen, |id| if id == "1" { 422 } else { 201 })
    });
    (stub, was_asked, let_go)
}

/// A process that is killed has no last word: what it has noted by then is all that is known.
#[test]
fn a_command_that_is_killed_goes_on_where_it_stopped() {
    let (stub, was_asked, let_go) = holding(2);
    let (_folder, path) = file("events.ndjson", &events(7));
    let url = stub.url();
    let mut killed = sampler(&["events", "send", &path, "--batch", "2", "--url", &url]);
    let mut killed = killed.stdout(Stdio::null()).spawn().unwrap();
    was_asked.recv().unwrap();
    killed.kill().unwrap();
    assert_eq!(killed.wait().unwrap().code(), None, "it was killed");
    let_go.send(()).unwrap();
    assert_goes_on(&stub, &path);
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

/// A repeat of a whole file sends the same bytes, whatever the formats and the moment.
#[test]
fn each_event_has_an_id_that_follows_from_it() {
    let csv =
        format!("{TARGET},start,end,measure:memory\no,s,c,r,p,1,100,200,5\no,s,c,r,p,2,300,,6\n");
    let relative = r#"{"type":"stop","day":-1,"time":"10:00:00","resource_id":"r"}"#;
    for (name, text, count) in [
        ("spans.csv", csv.as_str(), 3),
        ("events.ndjson", relative, 1),
    ] {
        let stub = Stub::keeping();
        let (_folder, path) = file(name, text);
        for _ in 0..2 {
            stub.send(&path, &["--now", "1795352400000"]).writes(0, &[]);
        }
        let seen = stub.seen();
        assert_eq!(seen[0].body, seen[1].body);
        assert_eq!(ids(&seen[0]).len(), count);
        assert!(ids(&seen[0])[0].starts_with("sampler-"));
    }
}

/// The columns of a target.
pub(crate) const TARGET: &str =
    "organization_id,space_id,consumer_id,resource_id,plan_id,resource_instance_id";

/// Whatever the numbers of a column are, its name says whether it is a measure.
#[test]
fn no_column_of_a_table_is_lost() {
    let rows = "o,s,c,r,p,1,100,200,512\no,s,c,r,p,2,100,200,512.5\n";
    let stub = Stub::keeping();
    let (_folder, path) = file("spans.csv", &format!("{TARGET},start,end,memory\n{rows}"));
    let parts = ["\"memory\"", "measure:memory", "--measures", "--ignore"];
    stub.send(&path, &[]).tells(2, &parts);
    let verified = stub.run(&["verify", &path]);
    verified.tells(2, &["measure:memory"]);
    assert_eq!(stub.seen().len(), 0);
    stub.send(&path, &["--measures", "memory"]).writes(0, &[]);
    let named = format!("{TARGET},start,end,measure:memory\n{rows}");
    let (_folder, path) = file("spans.csv", &named);
    stub.send(&path, &[]).writes(0, &[]);
    let seen = stub.seen();
    assert_eq!(seen[0].body, seen[1].body);
    for quantity in ["512", "512.5"] {
        let measure = format!(r#"[{{"measure":"memory","quantity":{quantity}}}]"#);
        assert!(seen[0].body.contains(&measure), "{}", seen[0].body);
    }
    let (_folder, path) = file("events.ndjson", "{}");
    let ended = stub.send(&path, &["--measures", "memory"]);
    ended.tells(2, &["only a CSV"]);
}

#[test]
fn cloud_events_are_sent_as_they_are() {
    let stub = Stub::keeping();
    let event = |id: &str| {
        format!(
            "{{\"specversion\": \"1.0\",\n \"id\": \"{id}\", \"source\": \"/x\", \"type\": \"a.start\"}}"
        )
    };
    let stop = "{\"type\": \"stop\", \"id\": \"3\", \"timestamp\": 1}";
    let text = format!("[{},\n{}, {stop}]", event("1"), event("2"));
    let (_folder, path) = file("events.json", &text);
    stub.send(&path, &["--offset", "5ms"]).writes(0, &[]);
    let seen = stub.seen();
    assert_eq!(stub.sent(), [&["1", "2"][..], &["3"]]);
    let kind = seen[0].header("content-type");
    assert_eq!(kind, Some("application/cloudevents-batch+json"));
    assert_eq!(seen[1].json()[0]["timestamp"], 6);
}

#[test]
fn an_answer_that_leaves_out_an_event_is_not_believed() {
    let stub = Stub::start(|_, _| batch(&[outcome(0, 201)]));
    let (_folder, path) = file("events.ndjson", &events(2));
    let ended = stub.send(&path, &[]);
    ended.tells(3, &["not each event has a result"]);
}
