use serde_json::json;

use super::*;
use sampler_verify::Target;

use crate::feed::rules::{Bound, Cursor, Mark, Outcome, Phase, Planned, Unknown};
use crate::feed::usage_event::Record;

fn platform() -> Url {
    Url::parse("https://api.example.com").unwrap()
}

fn step(guid: &str) -> Step {
    let mark = Mark {
        guid: guid.to_owned(),
        created_at: "t".to_owned(),
    };
    let cursor = Cursor {
        mark: Some(mark),
        is_complete: true,
        has_more: false,
    };
    let mut step = Step::default();
    step.cursors.insert(Record::Apps, cursor);
    step.events.push(Planned {
        body: json!({ "id": guid }),
        state: None,
        outcome: Outcome::Stopped,
        key: guid.to_owned(),
        phase: Phase::Ended {
            record: Record::Apps,
            at: i64::MAX,
        },
        unknown: Vec::new(),
    });
    step
}

/// Where a feed keeps its state, in a folder of its own.
fn place() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("feed.json");
    (folder, path)
}

/// Where it keeps what nobody recorded.
fn list_of(path: &Path) -> PathBuf {
    path.with_file_name("feed.json.unknown.ndjson")
}

fn open(path: &Path) -> Store {
    Store::open(path, &platform(), false).unwrap()
}

fn marks(store: &Store) -> Option<String> {
    let cursor = store.state.cursors.get(&Record::Apps)?;
    cursor.mark.as_ref().map(|mark| mark.guid.clone())
}

#[test]
fn a_step_counts_once_though_it_is_killed_between_the_document_and_the_journal() {
    let (_folder, path) = place();
    let mut store = open(&path);
    send(&mut store, step("c"));
    store.fold().unwrap();
    let journal = journal_of(&path);
    assert_eq!(fs::read(&journal).unwrap(), b"");
    send(&mut store, step("d"));
    let before = fs::read(&journal).unwrap();
    store.fold().unwrap();
    fs::write(&journal, before).unwrap();
    drop(store);
    let store = open(&path);
    assert!(store.pending().is_none());
    assert_eq!(marks(&store).unwrap(), "d");
    assert_eq!(store.state.phases.len(), 2);
}

#[test]
fn a_state_has_one_feed_and_one_platform() {
    let (_folder, path) = place();
    let mut store = open(&path);
    let taken = Store::open(&path, &platform(), false).unwrap_err();
    assert!(taken.to_string().contains("in use by another feed"));
    store.begin(step("a")).unwrap();
    let looked_at = Store::open(&path, &platform(), true).unwrap();
    assert!(looked_at.pending().is_some());
    store.finish(Vec::new()).unwrap();
    store.fold().unwrap();
    drop(store);
    let other = Url::parse("https://api.other.example.com").unwrap();
    let wrong = Store::open(&path, &other, false).unwrap_err();
    assert!(wrong.to_string().contains("is the state of a feed of"));
    fs::write(&path, "{}").unwrap();
    let wrong = Store::open(&path, &platform(), false).unwrap_err();
    assert!(wrong.to_string().contains("is not the state of a feed"));
}

fn unknown(guid: &str) -> Unknown {
    let id = || "x".to_owned();
    Unknown {
        target: Target {
            organization_id: id(),
            space_id: id(),
            consumer_id: id(),
            resource_id: id(),
            plan_id: id(),
            resource_instance_id: guid.to_owned(),
        },
        what: Bound::End,
        from: Some(1),
        to: 2,
    }
}

/// A step with something that nobody recorded.
fn step_of_unknown(guid: &str) -> Step {
    let mut step = step(guid);
    step.events[0].unknown.push(unknown(guid));
    step
}

/// All of it is kept.
fn send(store: &mut Store, step: Step) {
    store.begin(step).unwrap();
    store.finish(Vec::new()).unwrap();
}

fn untold(store: &Store) -> Vec<String> {
    let (unknown, count) = store.untold(usize::MAX).unwrap();
    assert_eq!(unknown.len() as u64, count);
    let guids = unknown.into_iter().map(|it| it.target.resource_instance_id);
    guids.collect()
}

/// The files of a state, as a kill leaves them.
fn files(path: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let paths = [path.to_owned(), journal_of(path), list_of(path)];
    let found = paths.into_iter().filter(|path| path.exists());
    found
        .map(|path| (path.clone(), fs::read(&path).unwrap()))
        .collect()
}

#[test]
fn a_kill_at_any_byte_of_a_write_loses_nothing_and_repeats_nothing() {
    let (_folder, path) = place();
    let mut store = open(&path);
    send(&mut store, step_of_unknown("a"));
    let at_rest = files(&path);
    store.begin(step_of_unknown("b")).unwrap();
    let sent = files(&path);
    store.finish(Vec::new()).unwrap();
    let finished = files(&path);
    store.fold().unwrap();
    drop(store);
    let journal = journal_of(&path);
    let of = |files: &[(PathBuf, Vec<u8>)], path: &Path| {
        let found = files.iter().find(|(name, _)| name == path);
        found.map(|(_, bytes)| bytes.clone()).unwrap_or_default()
    };
    let list = list_of(&path);
    let (first, second) = (of(&sent, &list), of(&finished, &list));
    // Each file grows to its next length, one after the other.
    let mut kills = Vec::new();
    for cut in of(&at_rest, &journal).len()..of(&sent, &journal).len() {
        kills.push((of(&sent, &journal)[..cut].to_vec(), first.clone(), false));
    }
    for cut in first.len()..=second.len() {
        kills.push((of(&sent, &journal), second[..cut].to_vec(), true));
    }
    for cut in of(&sent, &journal).len()..of(&finished, &journal).len() {
        kills.push((
            of(&finished, &journal)[..cut].to_vec(),
            second.clone(),
            true,
        ));
    }
    for (bytes, listed, is_sent) in kills {
        fs::remove_file(&path).ok();
        fs::write(&journal, &bytes).unwrap();
        fs::write(&list, &listed).unwrap();
        let mut store = open(&path);
        assert_eq!(
            marks(&store).unwrap(),
            "a",
            "the cursor moves behind the answers only"
        );
        assert_eq!(untold(&store), ["a"]);
        if is_sent {
            assert_eq!(store.pending().unwrap().events, step_of_unknown("b").events);
        } else {
            assert!(store.pending().is_none());
            store.begin(step_of_unknown("b")).unwrap();
        }
        store.finish(Vec::new()).unwrap();
        assert_eq!(marks(&store).unwrap(), "b");
        assert_eq!(untold(&store), ["a", "b"]);
        drop(store);
        let store = open(&path);
        assert_eq!(untold(&store), ["a", "b"]);
        assert!(store.pending().is_none());
    }
}

#[test]
fn what_nobody_recorded_is_kept_until_a_table_has_told_it() {
    let (_folder, path) = place();
    let mut store = open(&path);
    send(&mut store, step_of_unknown("a"));
    drop(store);
    // Killed before the table; and again after the table, before its note.
    let mut store = open(&path);
    assert_eq!(untold(&store), ["a"]);
    store.told();
    assert_eq!(untold(&store), [""; 0]);
    drop(store);
    let mut store = open(&path);
    assert_eq!(untold(&store), ["a"]);
    store.told();
    store.fold().unwrap();
    drop(store);
    let mut store = open(&path);
    assert_eq!(untold(&store), [""; 0]);
    send(&mut store, step_of_unknown("b"));
    assert_eq!(untold(&store), ["b"]);
    // What is refused is on no bill: it is among the refusals, not here.
    store.begin(step_of_unknown("c")).unwrap();
    let refused = Refused {
        index: 0,
        status: 409,
        is_open: false,
    };
    store.finish(vec![refused]).unwrap();
    assert_eq!(untold(&store), ["b"]);
    // Somebody has moved the list away.
    fs::remove_file(list_of(&path)).unwrap();
    drop(store);
    let mut store = open(&path);
    send(&mut store, step_of_unknown("d"));
    assert_eq!(untold(&store), ["d"]);
}

#[test]
fn what_is_refused_is_kept_once_also_if_it_is_sent_twice() {
    let (_folder, path) = place();
    let kept = path.with_file_name(REFUSED);
    let refusal = |guid: &str| json!({ "event": { "id": guid }, "status": 409, "problem": guid });
    let mut store = open(&path);
    store.begin(step("a")).unwrap();
    store.refuse(&[refusal("a")]).unwrap();
    drop(store);
    // A line that is cut short does not spoil the next.
    let mut text = fs::read(&kept).unwrap();
    text.extend(b"{\"event\":");
    fs::write(&kept, text).unwrap();
    let mut store = open(&path);
    let mut again = refusal("a");
    again["problem"] = json!("in other words");
    store.refuse(&[again, refusal("b")]).unwrap();
    let text = fs::read_to_string(&kept).unwrap();
    assert_eq!(text, format!("{}\n{}\n", refusal("a"), refusal("b")));
}

/// A device that is always full.
#[cfg(target_os = "linux")]
fn full() -> File {
    File::options().write(true).open("/dev/full").unwrap()
}

#[cfg(target_os = "linux")]
#[test]
fn a_disk_that_fails_ends_the_command_and_loses_nothing() {
    let (_folder, path) = place();
    let mut store = open(&path);
    store.begin(step_of_unknown("a")).unwrap();
    let before = files(&path);
    // The answers cannot be noted: what was sent must not be forgotten at the end of the command.
    let journal = store.journal.replace(full()).unwrap();
    let failure = store.finish(Vec::new()).unwrap_err();
    assert!(matches!(failure, Failure::Interrupted(_)), "{failure}");
    assert_eq!(marks(&store), None);
    store.journal = Some(journal);
    store.fold().unwrap();
    drop(store);
    assert_eq!(files(&path)[0], before[0], "the journal is as it was");
    let mut store = open(&path);
    assert_eq!(store.pending().unwrap().events, step_of_unknown("a").events);
    store.finish(Vec::new()).unwrap();

    // What is to be sent cannot be noted: it is not sent, and the cursor stays.
    let journal = store.journal.replace(full()).unwrap();
    store.begin(step("b")).unwrap_err();
    assert!(store.pending().is_none());
    store.journal = Some(journal);
    store.fold().unwrap();
    drop(store);
    let mut store = open(&path);
    assert_eq!(marks(&store).unwrap(), "a");
    assert_eq!(untold(&store), ["a"]);

    // The list of what nobody recorded cannot be written: the step does not count.
    let list = list_of(&path);
    fs::remove_file(&list).unwrap();
    fs::create_dir(&list).unwrap();
    store.begin(step_of_unknown("c")).unwrap();
    store.finish(Vec::new()).unwrap_err();
    store.fold().unwrap();
    assert_eq!(marks(&store).unwrap(), "a");
    fs::remove_dir(&list).unwrap();
    drop(store);
    assert!(open(&path).pending().is_some());
}
