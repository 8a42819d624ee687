use serde_json::json;

use super::*;
use crate::feed::rules::{Cursor, Fate, Mark, Outcome, Planned};
use crate::feed::usage_event::Record;

fn platform() -> Url {
    Url::parse("https://api.example.com").unwrap()
}

fn step(guid: &str) -> Step {
    let mark = Some(Mark {
        guid: guid.to_owned(),
        created_at: "t".to_owned(),
    });
    let mut step = Step::default();
    let is_complete = true;
    step.cursors
        .insert(Record::Apps, Cursor { mark, is_complete });
    step.events.push(Planned {
        body: json!({ "id": guid }),
        state: None,
        outcome: Outcome::Stopped,
        key: guid.to_owned(),
        fate: Fate::Ended(i64::MAX),
        unknown: None,
    });
    step
}

fn open(path: &Path) -> Store {
    Store::open(path, &platform(), false).unwrap()
}

fn marks(store: &Store) -> Option<String> {
    let cursor = store.state.cursors.get(&Record::Apps)?;
    cursor.mark.as_ref().map(|mark| mark.guid.clone())
}

#[test]
fn a_step_counts_once_it_is_answered_and_is_found_after_a_kill() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("feed.json");
    let mut store = open(&path);
    store.begin(step("a")).unwrap();
    assert_eq!(marks(&store), None);
    drop(store);
    let mut store = open(&path);
    let pending = store.pending().unwrap();
    assert_eq!(pending.events[0].body, json!({ "id": "a" }));
    assert_eq!(marks(&store), None);
    store.finish(Vec::new(), 0).unwrap();
    drop(store);
    let mut store = open(&path);
    assert!(store.pending().is_none());
    assert_eq!(marks(&store).unwrap(), "a");

    // A line that is cut short was never written.
    store.begin(step("b")).unwrap();
    drop(store);
    let journal = journal_of(&path);
    let text = fs::read(&journal).unwrap();
    fs::write(&journal, &text[..text.len() - 3]).unwrap();
    let mut store = open(&path);
    assert!(store.pending().is_none());
    store.begin(step("c")).unwrap();
    store.finish(Vec::new(), 0).unwrap();
    store.fold(0).unwrap();
    assert_eq!(fs::read(&journal).unwrap(), b"");

    // A kill between the document and the journal: what is in both counts once.
    store.begin(step("d")).unwrap();
    store.finish(Vec::new(), 0).unwrap();
    let before = fs::read(&journal).unwrap();
    store.fold(0).unwrap();
    fs::write(&journal, before).unwrap();
    drop(store);
    let store = open(&path);
    assert!(store.pending().is_none());
    assert_eq!(marks(&store).unwrap(), "d");
    assert_eq!(store.state.fates.len(), 3);
}

#[test]
fn a_state_has_one_feed_and_one_platform() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("feed.json");
    let mut store = open(&path);
    let taken = Store::open(&path, &platform(), false).unwrap_err();
    assert!(taken.to_string().contains("in use by another feed"));
    store.begin(step("a")).unwrap();
    let looked_at = Store::open(&path, &platform(), true).unwrap();
    assert!(looked_at.pending().is_some());
    store.finish(Vec::new(), 0).unwrap();
    store.fold(0).unwrap();
    drop(store);
    let other = Url::parse("https://api.other.example.com").unwrap();
    let wrong = Store::open(&path, &other, false).unwrap_err();
    assert!(wrong.to_string().contains("is the state of a feed of"));
    fs::write(&path, "{}").unwrap();
    let wrong = Store::open(&path, &platform(), false).unwrap_err();
    assert!(wrong.to_string().contains("is not the state of a feed"));
}
