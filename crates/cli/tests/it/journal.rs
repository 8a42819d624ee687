//! What `sampler events send` keeps beside a file, and how it ends where this machine fails.

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use crate::events::{TARGET, answer, event, events, has_journal, ids, journal, token_has_ended};
use crate::stub::{Reply, Stub};
use crate::{Ended, file, json_of};

/// Keeps all events, but for one request: its token has ended. Only once.
fn interrupting(number: usize) -> Stub {
    let is_done = Arc::new(AtomicBool::new(false));
    Stub::start(move |seen, at| {
        if at == number && !is_done.swap(true, Ordering::SeqCst) {
            return token_has_ended();
        }
        answer(seen, |_| 201)
    })
}

impl Stub {
    /// Sends a file, one event at a time. Asserts how that ends, after how many requests in all.
    #[track_caller]
    fn send_singly(&self, path: &str, code: i32, requests: usize) -> Ended {
        let ended = self.send(path, &["--batch", "1"]);
        let what = (ended.code, self.whats().len());
        assert_eq!(what, (Some(code), requests), "{ended:?}");
        ended
    }
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

/// Stops that are dated by the moment of the command.
fn relative(count: usize) -> String {
    "{\"type\":\"stop\",\"at\":\"-2h\",\"resource_id\":\"r\"}\n".repeat(count)
}

/// With another moment the events would have other timestamps and ids: they would be billed twice.
#[test]
fn a_command_that_is_killed_as_it_goes_on_keeps_the_moment() {
    let stub = interrupting(1);
    let (_folder, path) = file("events.ndjson", &relative(3));
    stub.send_singly(&path, 3, 2);
    let killed = send_on_a_full_disk(&stub.url(), &path, 0, true);
    assert_eq!(killed.code, None, "{killed:?}");
    stub.send(&path, &["--batch", "1"]).writes(0, &[]);
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
    let (_folder, path) = file("events.ndjson", &relative(2));
    let at = |now: &str| stub.send(&path, &["--batch", "1", "--now", now]);
    at("1000000000000").tells(3, &[]);
    at("1000086400000").tells(2, &["--now 1000000000000"]);
    assert_eq!(stub.seen().len(), 2);
    at("1000000000000").writes(0, &[]);
}

/// Such a file is another one whenever it is sent, unless the moment is told.
#[test]
fn moments_that_count_from_now_are_warned_of() {
    let stub = Stub::keeping();
    let (_folder, path) = file("events.ndjson", &relative(2));
    let ended = stub.send(&path, &[]);
    ended.tells(0, &[]);
    assert_eq!(ended.errors.lines().count(), 1, "{ended:?}");
    let (_, now) = ended.errors.split_once("--now ").unwrap();
    let now: String = now.chars().take_while(char::is_ascii_digit).collect();
    stub.send(&path, &["--now", &now]).done();
    let seen = stub.seen();
    assert_eq!(seen[0].body, seen[1].body);
}

#[test]
fn a_journal_that_cannot_be_read_is_not_taken_for_none() {
    let stub = interrupting(1);
    let (_folder, path) = file("events.ndjson", &events(3));
    stub.send_singly(&path, 3, 2);
    let text = std::fs::read_to_string(journal(&path)).unwrap();
    std::fs::write(journal(&path), text.replacen("\"now\"", "\"new\"", 1)).unwrap();
    stub.send_singly(&path, 2, 2).tells(2, &["--restart"]);
    stub.send(&path, &["--restart"]).writes(0, &[]);
    // What is cut short in its first line has sent nothing.
    std::fs::write(journal(&path), "{\"target\":\"ht").unwrap();
    stub.send(&path, &[]).writes(0, &[]);
}

/// The rows that are left would be billed without their memory.
#[test]
fn a_table_that_has_grown_keeps_its_measures() {
    let columns = format!("{TARGET},start,end,measure:memory,note\n");
    let row = |number: usize| format!("o,s,c,r,p,{number},100,,5,1\n");
    let rows: String = (0..3).map(row).collect();
    for done in [0, 1] {
        let stub = interrupting(done);
        let (_folder, path) = file("spans.csv", &format!("{columns}{rows}"));
        let send = |more: [&str; 2]| stub.send(&path, &[&["--batch", "1"], &more[..]].concat());
        send(["--ignore", "note"]).tells(3, &[]);
        let before = stub.whats().len();
        let other = send(["--measures", "note"]);
        other.tells(2, &["measures", "memory", "note", "--restart"]);
        let unmeasured = format!("{columns}{rows}o,s,c,r,p,9,100,,,\n");
        std::fs::write(&path, unmeasured).unwrap();
        send(["--ignore", "note"]).tells(2, &["line 5", "\"memory\""]);
        assert_eq!(stub.whats().len(), before);
        std::fs::write(&path, format!("{columns}{rows}{}", row(9))).unwrap();
        let ended = send(["--ignore", "note"]);
        ended.writes(0, &["4 events: 4 accepted"]);
    }
}

/// Two lines lie before it, of more than a megabyte.
#[test]
fn a_correction_of_what_is_done_is_seen_wherever_it_is() {
    let long = |id: &str, note: &str| {
        let note = format!(r#","note":"{}{note}""#, "x".repeat(700_000));
        event(id, &note) + "\n"
    };
    let lines = |second: &str, third: &str| long("0", "") + &long("1", second) + &long("2", third);
    let stub = interrupting(2);
    let (_folder, path) = file("events.ndjson", &lines("a", "a"));
    stub.send_singly(&path, 3, 3);
    std::fs::write(&path, lines("b", "a")).unwrap();
    stub.send_singly(&path, 2, 3).tells(2, &["--restart"]);
    // What was sent and got no answer may be kept, too.
    std::fs::write(&path, lines("a", "b")).unwrap();
    stub.send_singly(&path, 2, 3);
    // What is left may be corrected.
    std::fs::write(&path, lines("a", "a") + &event("3", "")).unwrap();
    stub.send_singly(&path, 0, 5);
}

/// The first command has sent three events, the second one of them.
#[test]
fn what_was_sent_stays_known_when_batches_become_smaller() {
    let stub = Stub::start(|seen, number| match number {
        1 | 3 => answer(seen, |_| 201),
        _ => token_has_ended(),
    });
    let (_folder, path) = file("events.ndjson", &events(3));
    let three = || stub.send(&path, &["--batch", "3"]);
    three().tells(3, &[]);
    stub.send_singly(&path, 3, 3);
    std::fs::write(&path, events(2) + &event("2", r#","note":1"#)).unwrap();
    three().tells(2, &[]);
    assert_eq!(stub.whats().len(), 3);
    std::fs::write(&path, events(3)).unwrap();
    three().writes(0, &[]);
    assert_eq!(stub.whats().len(), 4);
}

#[test]
fn a_file_that_cannot_be_read_to_its_end_is_not_nothing_done() {
    let stub = Stub::keeping();
    let (_folder, path) = file("events.ndjson", "");
    let mut bytes = events(4).into_bytes();
    bytes.extend(b"\xff\n");
    std::fs::write(&path, &bytes).unwrap();
    let ended = stub.send(&path, &["--batch", "2"]);
    let parts = ["line 6: it is not UTF-8", "4 events before are done"];
    ended.tells(4, &parts);
    assert_eq!(stub.whats().len(), 2);
    std::fs::write(&path, events(4) + &event("4", "")).unwrap();
    stub.send(&path, &["--batch", "2"]).writes(0, &[]);
    assert_eq!(ids(&stub.seen()[2]), ["4"]);
    // Where nothing was sent, it is the file that is wrong.
    std::fs::write(&path, b"\xff\n").unwrap();
    stub.send_singly(&path, 2, 3);
}

#[test]
fn a_disk_that_is_full_is_not_nothing_done() {
    let stub = Stub::keeping();
    let (_folder, path) = file("events.ndjson", &events(40));
    // Where no journal can be begun, nothing is sent.
    let full = send_on_a_full_disk(&stub.url(), &path, 0, false);
    full.tells(2, &[]);
    assert_eq!(stub.whats().len(), 0);
    let full = send_on_a_full_disk(&stub.url(), &path, 2, false);
    full.tells(4, &["sampler-journal"]);
    let before = stub.whats().len();
    assert!((1..40).contains(&before), "{before}");
    let ended = stub.send(&path, &["--batch", "1"]);
    ended.writes(0, &["40 events: 40 accepted"]);
    // One at most is sent again.
    let sent = stub.whats().len();
    assert!((40..=41).contains(&sent), "{sent}");
}

#[test]
fn an_output_that_is_full_is_not_nothing_done() {
    let stub = Stub::keeping();
    let (_folder, path) = file("events.ndjson", &events(2));
    let url = stub.url();
    let mut command = crate::sampler(&["events", "send", &path, "--url", &url]);
    let full = std::fs::File::options().write(true).open("/dev/full");
    let ended: Ended = command.stdout(full.unwrap()).output().unwrap().into();
    ended.tells(4, &[]);
    assert!(!has_journal(&path));
}

/// It would be the mistake of the command line, if nothing was sent before.
#[test]
fn a_batch_that_is_refused_behind_another_is_not_nothing_done() {
    let stub = Stub::start(|seen, number| match number {
        0 => answer(seen, |_| 201),
        _ => Reply::of(400, json!({ "detail": "It nests too deeply." })),
    });
    let (_folder, path) = file("events.ndjson", &events(2));
    stub.send_singly(&path, 3, 2);
    let ended = stub.send(&path, &["--json"]);
    ended.tells(2, &[]);
    let error = json_of(&ended.errors);
    assert_eq!(error["error"]["problem"]["detail"], "It nests too deeply.");
}
