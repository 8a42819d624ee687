//! What `sampler events send` keeps beside a file, and how it ends where this machine fails.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use crate::events::{answer, event, events, ids, journal, send};
use crate::stub::{Reply, Stub};
use crate::{Ended, file, run};

/// Keeps all events, but for one request: its token has ended. Only once.
fn interrupting(number: usize) -> Stub {
    let is_done = Arc::new(AtomicBool::new(false));
    Stub::start(move |seen, at| {
        if at == number && !is_done.swap(true, Ordering::SeqCst) {
            return Reply(401, json!({ "detail": "The token has ended." }), None);
        }
        answer(seen, |_| 201)
    })
}

/// Runs the program where a file can have so many blocks and no more: a write ends it, or fails where
/// that is told.
fn send_on_a_full_disk(url: &str, path: &str, limit: u8, is_killed: bool) -> Ended {
    let trap = if is_killed { "" } else { "trap '' XFSZ;" };
    let script = format!(r#"{trap} ulimit -f {limit}; exec "$@""#);
    let mut shell = Command::new("sh");
    shell.args(["-c", &script, "sh", env!("CARGO_BIN_EXE_sampler")]);
    shell.args(["events", "send", path, "--url", url, "--batch", "1"]);
    shell.env_clear().stdin(Stdio::null());
    shell.output().unwrap().into()
}

fn append(path: &str, text: &str) {
    let mut whole = std::fs::read_to_string(path).unwrap();
    whole.push_str(text);
    std::fs::write(path, whole).unwrap();
}

/// With another moment the events would have other timestamps and ids: they would be billed twice.
#[test]
fn a_command_that_is_killed_as_it_goes_on_keeps_the_moment() {
    let stub = interrupting(1);
    let line = r#"{"type":"stop","at":"-2h","resource_id":"r"}"#;
    let (_folder, path) = file("events.ndjson", &format!("{line}\n{line}\n{line}\n"));
    let first = send(&stub.url(), &path, &["--batch", "1"]);
    assert_eq!(first.code, Some(3), "{first:?}");
    let killed = send_on_a_full_disk(&stub.url(), &path, 0, true);
    assert_eq!(killed.code, None, "{killed:?}");
    let ended = send(&stub.url(), &path, &["--batch", "1"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let sent: Vec<Value> = stub
        .seen()
        .iter()
        .map(|seen| seen.json()[0].clone())
        .collect();
    for other in &sent[1..] {
        assert_eq!(other["timestamp"], sent[0]["timestamp"]);
    }
    let others = sent.iter().filter(|event| event["id"] == sent[0]["id"]);
    assert_eq!(others.count(), 1, "the first was kept: {sent:?}");
}

/// The rest of the events of yesterday are not those of today.
#[test]
fn another_moment_than_that_of_the_interrupted_command_is_refused() {
    let stub = interrupting(1);
    let line = r#"{"type":"stop","at":"-2h","resource_id":"r"}"#;
    let (_folder, path) = file("events.ndjson", &format!("{line}\n{line}\n"));
    let begun = ["--batch", "1", "--now", "1000000000000"];
    assert_eq!(send(&stub.url(), &path, &begun).code, Some(3));
    let seen = stub.seen().len();
    let other = ["--batch", "1", "--now", "1000086400000"];
    let refused = send(&stub.url(), &path, &other);
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(
        refused.errors.contains("--now 1000000000000"),
        "{refused:?}"
    );
    assert_eq!(stub.seen().len(), seen);
    let ended = send(&stub.url(), &path, &begun);
    assert_eq!(ended.code, Some(0), "{ended:?}");
}

/// Such a file is another one whenever it is sent, unless the moment is told.
#[test]
fn moments_that_count_from_now_are_warned_of() {
    let stub = Stub::start(|seen, _| answer(seen, |_| 201));
    let line = r#"{"type":"stop","at":"-2h","resource_id":"r"}"#;
    let (_folder, path) = file("events.ndjson", &format!("{line}\n{line}\n"));
    let ended = send(&stub.url(), &path, &[]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(ended.errors.lines().count(), 1, "{ended:?}");
    let (_, now) = ended.errors.split_once("--now ").unwrap();
    let now: String = now.chars().take_while(char::is_ascii_digit).collect();
    let again = send(&stub.url(), &path, &["--now", &now]);
    assert_eq!((again.code, again.errors.as_str()), (Some(0), ""));
    let seen = stub.seen();
    assert_eq!(seen[0].body, seen[1].body);
}

#[test]
fn a_journal_that_cannot_be_read_is_not_taken_for_none() {
    let stub = interrupting(1);
    let (_folder, path) = file("events.ndjson", &events(3));
    send(&stub.url(), &path, &["--batch", "1"]);
    let text = std::fs::read_to_string(journal(&path)).unwrap();
    std::fs::write(journal(&path), text.replacen("\"now\"", "\"new\"", 1)).unwrap();
    let ended = send(&stub.url(), &path, &["--batch", "1"]);
    assert_eq!((ended.code, stub.whats().len()), (Some(2), 2), "{ended:?}");
    assert!(ended.errors.contains("--restart"), "{ended:?}");
    let ended = send(&stub.url(), &path, &["--restart"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    // What is cut short in its first line has sent nothing.
    std::fs::write(journal(&path), "{\"target\":\"ht").unwrap();
    let ended = send(&stub.url(), &path, &[]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
}

/// The rows that are left would be billed without their memory.
#[test]
fn a_table_that_has_grown_keeps_its_measures() {
    let columns = "organization_id,space_id,consumer_id,resource_id,plan_id,resource_instance_id,start,end,measure:memory,note\n";
    let row = |number: usize| format!("o,s,c,r,p,{number},100,,5,1\n");
    let rows: String = (0..3).map(row).collect();
    for done in [0, 1] {
        let stub = interrupting(done);
        let (_folder, path) = file("spans.csv", &format!("{columns}{rows}"));
        let again = ["--batch", "1", "--ignore", "note"];
        let ended = send(&stub.url(), &path, &again);
        assert_eq!(ended.code, Some(3), "{ended:?}");
        let before = stub.whats().len();
        let other = ["--batch", "1", "--measures", "note"];
        let ended = send(&stub.url(), &path, &other);
        assert_eq!(ended.code, Some(2), "{ended:?}");
        for part in ["measures", "memory", "note", "--restart"] {
            assert!(ended.errors.contains(part), "{part}: {ended:?}");
        }
        append(&path, "o,s,c,r,p,9,100,,,\n");
        let ended = send(&stub.url(), &path, &again);
        assert_eq!(ended.code, Some(2), "{ended:?}");
        for part in ["line 5", "\"memory\""] {
            assert!(ended.errors.contains(part), "{part}: {ended:?}");
        }
        assert_eq!(stub.whats().len(), before);
        std::fs::write(&path, format!("{columns}{rows}{}", row(9))).unwrap();
        let ended = send(&stub.url(), &path, &again);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        assert!(
            ended.output.starts_with("4 events: 4 accepted"),
            "{ended:?}"
        );
    }
}

/// Two lines lie before it, of more than a megabyte.
#[test]
fn a_correction_of_what_is_done_is_seen_wherever_it_is() {
    let long = |id: &str, note: &str| {
        let note = format!(r#","note":"{}{note}""#, "x".repeat(700_000));
        event(id, &note)
    };
    let lines = |second: &str, third: &str| {
        format!(
            "{}\n{}\n{}\n",
            long("0", ""),
            long("1", second),
            long("2", third)
        )
    };
    let stub = interrupting(2);
    let (_folder, path) = file("events.ndjson", &lines("a", "a"));
    let sent = |ended: Ended| (ended.code, stub.whats().len());
    let command = || send(&stub.url(), &path, &["--batch", "1"]);
    assert_eq!(sent(command()), (Some(3), 3));
    std::fs::write(&path, lines("b", "a")).unwrap();
    let ended = command();
    assert!(ended.errors.contains("--restart"), "{ended:?}");
    assert_eq!(sent(ended), (Some(2), 3));
    // What was sent and got no answer may be kept, too.
    std::fs::write(&path, lines("a", "b")).unwrap();
    assert_eq!(sent(command()), (Some(2), 3));
    // What is left may be corrected.
    let last = event("3", "");
    std::fs::write(&path, lines("a", "a") + &last).unwrap();
    assert_eq!(sent(command()), (Some(0), 5));
}

/// The first command has sent three events, the second one of them.
#[test]
fn what_was_sent_stays_known_when_batches_become_smaller() {
    let stub = Stub::start(|seen, number| match number {
        1 | 3 => answer(seen, |_| 201),
        _ => Reply(401, json!({ "detail": "The token has ended." }), None),
    });
    let (_folder, path) = file("events.ndjson", &events(3));
    let command = |batch: &str| send(&stub.url(), &path, &["--batch", batch]);
    assert_eq!(command("3").code, Some(3));
    assert_eq!(command("1").code, Some(3));
    std::fs::write(&path, events(2) + &event("2", r#","note":1"#)).unwrap();
    let ended = command("3");
    assert_eq!((ended.code, stub.whats().len()), (Some(2), 3), "{ended:?}");
    std::fs::write(&path, events(3)).unwrap();
    let ended = command("3");
    assert_eq!((ended.code, stub.whats().len()), (Some(0), 4), "{ended:?}");
}

#[test]
fn a_file_that_cannot_be_read_to_its_end_is_not_nothing_done() {
    let stub = Stub::start(|seen, _| answer(seen, |_| 201));
    let (_folder, path) = file("events.ndjson", "");
    let mut bytes = events(4).into_bytes();
    bytes.extend(b"\xff\n");
    std::fs::write(&path, &bytes).unwrap();
    let ended = send(&stub.url(), &path, &["--batch", "2"]);
    assert_eq!((ended.code, stub.whats().len()), (Some(4), 2), "{ended:?}");
    for part in ["line 6: it is not UTF-8", "4 events before are done"] {
        assert!(ended.errors.contains(part), "{part}: {ended:?}");
    }
    std::fs::write(&path, events(4) + &event("4", "")).unwrap();
    let ended = send(&stub.url(), &path, &["--batch", "2"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(ids(&stub.seen()[2]), ["4"]);
    // Where nothing was sent, it is the file that is wrong.
    std::fs::write(&path, b"\xff\n").unwrap();
    let ended = send(&stub.url(), &path, &[]);
    assert_eq!((ended.code, stub.whats().len()), (Some(2), 3), "{ended:?}");
}

#[test]
fn a_disk_that_is_full_is_not_nothing_done() {
    let stub = Stub::start(|seen, _| answer(seen, |_| 201));
    let (_folder, path) = file("events.ndjson", &events(40));
    // Where no journal can be begun, nothing is sent.
    let full = send_on_a_full_disk(&stub.url(), &path, 0, false);
    assert_eq!((full.code, stub.whats().len()), (Some(2), 0), "{full:?}");
    let full = send_on_a_full_disk(&stub.url(), &path, 2, false);
    let before = stub.whats().len();
    assert_eq!(full.code, Some(4), "{full:?}");
    assert!((1..40).contains(&before), "{before}");
    assert!(full.errors.contains("sampler-journal"), "{full:?}");
    let ended = send(&stub.url(), &path, &["--batch", "1"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(
        ended.output.starts_with("40 events: 40 accepted"),
        "{ended:?}"
    );
    let sent = stub.whats().len();
    assert!(
        (40..=41).contains(&sent),
        "one at most is sent again: {sent}"
    );
}

#[test]
fn an_output_that_is_full_is_not_nothing_done() {
    let stub = Stub::start(|seen, _| answer(seen, |_| 201));
    let (_folder, path) = file("events.ndjson", &events(2));
    let url = stub.url();
    let mut command = crate::sampler(&["events", "send", &path, "--url", &url]);
    let full = std::fs::File::options().write(true).open("/dev/full");
    let ended: Ended = command.stdout(full.unwrap()).output().unwrap().into();
    assert_eq!(ended.code, Some(4), "{ended:?}");
    assert!(!Path::new(&journal(&path)).exists());
}

/// It would be the mistake of the command line, if nothing was sent before.
#[test]
fn a_batch_that_is_refused_behind_another_is_not_nothing_done() {
    let stub = Stub::start(|seen, number| match number {
        0 => answer(seen, |_| 201),
        _ => Reply(400, json!({ "detail": "It nests too deeply." }), None),
    });
    let (_folder, path) = file("events.ndjson", &events(2));
    let ended = send(&stub.url(), &path, &["--batch", "1"]);
    assert_eq!(ended.code, Some(3), "{ended:?}");
    let ended = run(&["events", "send", &path, "--url", &stub.url(), "--json"]);
    assert_eq!(ended.code, Some(2), "{ended:?}");
    let error: Value = serde_json::from_str(&ended.errors).unwrap();
    assert_eq!(error["error"]["problem"]["detail"], "It nests too deeply.");
}
