use serde_json::json;

use super::*;
use sampler_api::Problem;
use sampler_verify::Target;

use crate::event::Event;
use crate::events::Refusal;
use crate::feed::state::{Bound, Change, Cursor, Mark, Phase};

fn platform() -> Url {
    Url::parse("https://api.example.com").unwrap()
}

/// A step with an event, and something that nobody recorded.
fn step(guid: &str) -> Step {
    let id = || guid.to_owned();
    let target = Target::from_ids([id(), id(), id(), id(), id(), id()]);
    let mark = Mark {
        guid: id(),
        created_at: "t".to_owned(),
    };
    let ended = Phase::Ended(i64::MAX);
    let unknown = Bound::End.of(&target, Some(1), 2);
    let event = Event::new("stop", target, 2);
    Step {
        record: Record::Apps,
        cursor: Some(Cursor::Behind(mark)),
        changes: vec![Change::posting(id(), event, ended, vec![unknown])],
    }
}

fn refused(id: &str) -> Refused {
    let refusal = Refusal {
        line: 0,
        status: 409,
        problem: Problem::default(),
    };
    [(id.to_owned(), refusal)].into()
}

/// Where a feed keeps its state, in a folder of its own.
fn place() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("feed.json");
    (folder, path)
}

fn open(path: &Path) -> Store {
    Store::open(path, &platform(), false).unwrap()
}

fn cursor(store: &Store) -> Option<&str> {
    let mark = store.state(Record::Apps).mark();
    mark.map(|mark| mark.guid.as_str())
}

fn untold(store: &Store) -> Vec<&str> {
    let unknown = store.unknown().iter();
    unknown
        .map(|it| it.target.resource_instance_id.as_str())
        .collect()
}

#[test]
fn a_step_counts_once_it_is_answered_and_is_sent_again_until_then() {
    let (_folder, path) = place();
    let mut store = open(&path);
    store.begin(step("a")).unwrap();
    drop(store);
    // Killed before the answers, or before they are written.
    for _ in 0..2 {
        let mut store = open(&path);
        assert_eq!(store.pending(), Some(&step("a")));
        assert_eq!((cursor(&store), untold(&store).len()), (None, 0));
        store.finish(&Refused::new()).unwrap();
        assert_eq!((cursor(&store), untold(&store)), (Some("a"), vec!["a"]));
    }
    // The next step is written with the answers of the one before.
    let mut store = open(&path);
    store.finish(&Refused::new()).unwrap();
    store.begin(step("b")).unwrap();
    drop(store);
    let mut store = open(&path);
    assert_eq!(store.pending(), Some(&step("b")));
    assert_eq!((cursor(&store), untold(&store)), (Some("a"), vec!["a"]));
    store.finish(&Refused::new()).unwrap();
    store.save_answers().unwrap();
    drop(store);
    let store = open(&path);
    assert_eq!(store.pending(), None);
    assert_eq!(
        (cursor(&store), untold(&store)),
        (Some("b"), vec!["a", "b"])
    );
}

#[test]
fn a_write_that_is_cut_short_changes_nothing() {
    let (folder, path) = place();
    let mut store = open(&path);
    store.begin(step("a")).unwrap();
    drop(store);
    let written = fs::read(&path).unwrap();
    for cut in 0..written.len() {
        fs::write(folder.path().join("feed.json.new"), &written[..cut]).unwrap();
        assert_eq!(open(&path).pending(), Some(&step("a")));
    }
}

#[test]
fn what_nobody_recorded_is_kept_until_a_report_has_told_it() {
    let (_folder, path) = place();
    let mut store = open(&path);
    store.begin(step("a")).unwrap();
    store.finish(&Refused::new()).unwrap();
    // What is refused is on no bill.
    store.begin(step("b")).unwrap();
    store.finish(&refused("b")).unwrap();
    assert_eq!(untold(&store), ["a"]);
    store.told().unwrap();
    drop(store);
    assert_eq!(untold(&open(&path)), [""; 0]);
}

#[test]
fn a_state_has_one_feed_and_one_platform() {
    let (_folder, path) = place();
    let mut store = open(&path);
    let taken = Store::open(&path, &platform(), false).unwrap_err();
    assert!(taken.to_string().contains("another feed uses"), "{taken}");
    store.begin(step("a")).unwrap();
    // A dry run looks at the state, and changes nothing.
    let written = fs::read(&path).unwrap();
    let mut looked_at = Store::open(&path, &platform(), true).unwrap();
    assert!(looked_at.pending().is_some());
    looked_at.finish(&refused("a")).unwrap();
    looked_at.save_answers().unwrap();
    assert_eq!(fs::read(&path).unwrap(), written);
    assert!(!path.with_file_name(REFUSED).exists());
    drop(store);
    let other = Url::parse("https://api.other.example.com").unwrap();
    let wrong = Store::open(&path, &other, false).unwrap_err();
    assert!(wrong.to_string().contains("is the state of a feed of"));
    fs::write(&path, "{}").unwrap();
    let wrong = Store::open(&path, &platform(), false).unwrap_err();
    assert!(wrong.to_string().contains("is not the state of a feed"));
}

#[test]
fn what_is_refused_is_kept_in_whole_lines() {
    let (_folder, path) = place();
    let kept = path.with_file_name(REFUSED);
    let mut store = open(&path);
    store.begin(step("a")).unwrap();
    store.finish(&refused("a")).unwrap();
    // A line that is cut short does not spoil the next.
    let mut text = fs::read(&kept).unwrap();
    text.extend(b"{\"event\":");
    fs::write(&kept, text).unwrap();
    store.begin(step("b")).unwrap();
    store.finish(&refused("b")).unwrap();
    let text = fs::read_to_string(&kept).unwrap();
    let events = text.lines().map(|line| serde_json::from_str(line).unwrap());
    let events: Vec<serde_json::Value> = events.collect();
    let ids: Vec<_> = events
        .iter()
        .map(|it| (&it["event"]["id"], &it["status"]))
        .collect();
    assert_eq!(
        ids,
        [(&json!("a"), &json!(409)), (&json!("b"), &json!(409))]
    );
}

#[test]
fn a_disk_that_fails_ends_the_command_and_loses_nothing() {
    let (folder, path) = place();
    let mut store = open(&path);
    store.begin(step("a")).unwrap();
    store.finish(&Refused::new()).unwrap();
    // What is to be sent cannot be written.
    let beside = folder.path().join("feed.json.new");
    fs::create_dir(&beside).unwrap();
    let failure = store.begin(step("b")).unwrap_err();
    assert!(matches!(failure, Failure::Interrupted(_)), "{failure}");
    drop(store);
    let mut store = open(&path);
    assert_eq!(store.pending(), Some(&step("a")));
    fs::remove_dir(&beside).unwrap();
    // What is refused cannot be kept, so the step does not count.
    let kept = path.with_file_name(REFUSED);
    fs::create_dir(&kept).unwrap();
    store.finish(&refused("a")).unwrap_err();
    assert_eq!(store.pending(), Some(&step("a")));
    fs::remove_dir(&kept).unwrap();
    store.finish(&refused("a")).unwrap();
    assert_eq!(store.pending(), None);
}
