//! Finding spans that are due, and removing those that are complete.

use std::sync::Arc;

use sampler_domain::Timestamp;
use sampler_domain::partition::{PARTITIONS, partition_of};
use sampler_store::DueQuery;

use crate::support::{
    Changing, LookingUp, Shared, at, completed, due, due_ids, everything, finished, id, kept,
    must_start, must_stop, next_page, postponed, started, target,
};

const HOUR: i64 = 3_600_000;
const DAY: i64 = 24 * HOUR;

pub async fn idle_and_finished_spans_are_not_due(store: &Shared) {
    let store = &**store;
    let due_span = started(store, "due", "i", -DAY).await;
    let idle = started(store, "idle", "j", -DAY).await;
    store.must_make(&idle, postponed(&idle, at(1))).await;
    completed(store, "finished", -HOUR).await;
    assert_eq!(due(store, 0).await, ["due"]);
    assert_eq!(due(store, 1).await, ["due", "idle"]);
    let later = postponed(&due_span, at(2));
    store.must_make(&due_span, later).await;
    assert_eq!(due(store, 1).await, ["idle"]);
}

pub async fn what_waits_longest_is_due_first(store: &Shared) {
    let store = &**store;
    for (number, millis) in [-5, -9, -1, -7, -3].into_iter().enumerate() {
        let name = millis.to_string();
        must_start(store, Some(&name), &format!("{number}"), millis).await;
    }
    assert_eq!(due(store, 0).await, ["-9", "-7", "-5", "-3", "-1"]);
    assert_eq!(due(store, -4).await, ["-9", "-7", "-5"]);
}

/// Whatever has become meanwhile of the spans that were found before.
pub async fn a_search_goes_on_where_it_was(store: &Shared) {
    let store = &**store;
    for number in 0..7 {
        let name = number.to_string();
        started(store, &name, &name, number - 100).await;
    }
    let mut pages = store.due(DueQuery {
        partitions: everything(),
        now: at(0),
        page: 3,
    });
    assert_eq!(
        next_page(&mut pages).await.expect("a page"),
        ["0", "1", "2"]
    );
    for (name, due_at) in [("0", HOUR), ("2", -HOUR), ("4", HOUR)] {
        let span = kept(store, name).await;
        store.must_make(&span, postponed(&span, at(due_at))).await;
    }
    assert_eq!(
        next_page(&mut pages).await.expect("a page"),
        ["3", "5", "6"]
    );
    assert_eq!(next_page(&mut pages).await, None);
}

pub async fn only_the_partitions_asked_for_are_due(store: &Shared) {
    let store = &**store;
    let mut expected = vec![Vec::new(); PARTITIONS as usize];
    for number in 0..40 {
        let name = format!("{number:02}");
        started(store, &name, &name, number - 100).await;
        expected[partition_of(&target(&name)) as usize].push(name);
    }
    for partition in 0..PARTITIONS {
        let query = DueQuery {
            partitions: Arc::new([partition]),
            now: at(0),
            page: 100,
        };
        assert_eq!(due_ids(store, query).await, expected[partition as usize]);
    }
    let none = DueQuery {
        partitions: Arc::new([]),
        now: at(0),
        page: 100,
    };
    assert_eq!(due_ids(store, none).await, Vec::<String>::new());
}

pub async fn a_stop_makes_its_span_due(store: &Shared) {
    let store = &**store;
    for (name, end) in [("past", -HOUR), ("future", HOUR), ("far", 3 * HOUR)] {
        let span = started(store, name, name, -DAY).await;
        let later = postponed(&span, at(2 * HOUR));
        store.must_make(&span, later).await;
        must_stop(store, None, name, end).await;
    }
    assert_eq!(due(store, 0).await, ["past"]);
    assert_eq!(due(store, HOUR).await, ["past", "future"]);
    assert_eq!(due(store, 2 * HOUR).await, ["past", "future", "far"]);
}

pub async fn completed_spans_go_after_the_cutoff(store: &Shared) {
    let store = &**store;
    for (name, end) in [("old", -2 * DAY), ("older", -3 * DAY), ("new", -HOUR)] {
        completed(store, name, end).await;
    }
    let open = started(store, "open", "open", -4 * DAY).await;
    let over = async |limit| store.completed_before(at(-DAY), limit).await.unwrap();
    assert_eq!(over(1).await.len(), 1);
    let mut ids = over(10).await;
    assert_eq!(ids.len(), 2);
    ids.push(finished(&open));
    assert_eq!(store.remove(&ids).await.unwrap(), 2);
    assert_eq!(store.remove(&ids).await.unwrap(), 0);
    kept(store, "open").await;
    kept(store, "new").await;
    let old = store.started_by(&target("old"), &id("old")).await;
    assert_eq!(old.unwrap(), None);
}

pub async fn workers_know_of_each_other_and_of_the_time(store: &Shared) {
    let mut before = store.time().await.unwrap();
    let mut alive = async |worker| {
        let mut alive = store.heartbeat(worker).await.unwrap();
        assert!(alive.now >= before);
        before = alive.now;
        alive.workers.sort();
        alive.workers
    };
    assert_eq!(alive("a").await, ["a"]);
    assert_eq!(alive("b").await, ["a", "b"]);
    assert_eq!(alive("a").await, ["a", "b"]);
    store.leave("b").await.unwrap();
    assert_eq!(alive("a").await, ["a"]);
}

pub async fn the_age_of_events_is_limited_and_what_was_too_old_stays_so(store: &Shared) {
    let store = &**store;
    let since = async || store.events_taken_since().await.unwrap();
    assert_eq!(since().await, Timestamp::MIN, "nothing was ever removed");
    let now = store.limit_event_age(9 * DAY).await.unwrap();
    assert_eq!(since().await, now.plus(-9 * DAY));
    // Another worker keeps spans for less long.
    let now = store.limit_event_age(5 * DAY).await.unwrap();
    assert_eq!(since().await, now.plus(-5 * DAY));
    // What it has removed does not come back where it is set to keep them for longer.
    let later = store.limit_event_age(9 * DAY).await.unwrap();
    assert!(later >= now);
    assert_eq!(since().await, now.plus(-5 * DAY));
    store.limit_event_age(0).await.unwrap();
    assert!(since().await >= later);
}
