//! The watch over usages that are accepted and may not count.

use std::slice;
use std::sync::Arc;

use sampler_domain::partition::partition_of;
use sampler_domain::{Entry, SpanId, Timestamp};
use sampler_store::{DueWatches, Missing, Watch, WatchOutcome, WatchQuery};
use tokio::task::JoinSet;

use crate::support::{Shared, Store, at, entry, everything, filter, id, started, target};

const HOUR: i64 = 3_600_000;

/// Watches the usage of an hour of the instance `name`, that was accepted at this time, from `due` on.
async fn watched(store: &dyn Store, name: &str, accepted_at: i64, due: i64) -> Watch {
    let span = started(store, name, name, accepted_at - HOUR).await;
    let entry = entry(&span, accepted_at - HOUR, accepted_at);
    write(store, &entry, Some(at(due))).await;
    watch(store, &entry.usage_guid)
        .await
        .expect("it is watched")
}

async fn write(store: &dyn Store, entry: &Entry, watch_at: Option<Timestamp>) {
    let expires_at = at(100_000 * HOUR);
    store
        .write_entry(entry, expires_at, watch_at)
        .await
        .unwrap();
}

async fn watch(store: &dyn Store, usage_guid: &str) -> Option<Watch> {
    store.watch(usage_guid).await.unwrap()
}

/// The watches that are due `millis` after the present.
async fn due(store: &dyn Store, millis: i64) -> Vec<Watch> {
    let query = DueWatches {
        partitions: everything(),
        now: at(millis),
        limit: 10,
    };
    store.due_watches(&query).await.unwrap()
}

async fn settle(store: &dyn Store, watch: &Watch, outcome: WatchOutcome) {
    let outcomes = [(watch.clone(), outcome)];
    store.settle_watches(&outcomes).await.unwrap();
}

fn missing(millis: i64) -> Missing {
    Missing {
        since: at(millis),
        error: "unprocessable".to_owned(),
    }
}

/// The usage of a watch is missing.
async fn lose(store: &dyn Store, watch: &Watch, millis: i64) -> Watch {
    settle(store, watch, WatchOutcome::Missing(missing(millis))).await;
    let lost = self::watch(store, &watch.usage_guid).await;
    lost.expect("it is still watched")
}

async fn resend(store: &dyn Store, watch: &Watch, millis: i64) -> bool {
    let resent = store.resend_missing(&watch.usage_guid, at(millis)).await;
    resent.unwrap()
}

pub async fn a_usage_is_watched_where_that_is_asked_for(store: &Shared) {
    let store = &**store;
    let span = started(store, "a", "a", 0).await;
    let entry = entry(&span, 0, HOUR);
    write(store, &entry, None).await;
    assert_eq!(watch(store, &entry.usage_guid).await, None);
    // A worker that died has left the entry alone.
    write(store, &entry, Some(at(7))).await;
    let expected = Watch {
        usage_guid: entry.usage_guid.clone(),
        span: entry.span,
        target: entry.target,
        interval: entry.interval,
        location: entry.acceptance.location,
        accepted_at: at(HOUR),
        due_at: at(7),
        missing: None,
        is_resent: false,
    };
    assert_eq!(watch(store, &entry.usage_guid).await, Some(expected));
}

/// A worker that died has left the entry, and its usage is posted again: earlier answers say nothing of that post.
pub async fn a_watch_begins_anew_where_its_usage_is_posted_again(store: &Shared) {
    let store = &**store;
    let first = watched(store, "a", 0, 7).await;
    let first = lose(store, &first, 8).await;
    let mut again = store.entry(&first.usage_guid).await.unwrap();
    let mut again = again.take().expect("it is kept");
    again.acceptance.at = at(2 * HOUR);
    write(store, &again, Some(at(3 * HOUR))).await;
    let expected = Watch {
        accepted_at: at(2 * HOUR),
        due_at: at(3 * HOUR),
        missing: None,
        ..first
    };
    assert_eq!(watch(store, &again.usage_guid).await, Some(expected));
    let kept = store.entry(&again.usage_guid).await.unwrap();
    assert_eq!(
        kept.map(|it| it.acceptance.at),
        Some(at(0)),
        "the entry stays"
    );
}

pub async fn what_waits_longest_is_asked_for_first(store: &Shared) {
    let store = &**store;
    let second = watched(store, "a", 0, 5).await;
    let first = watched(store, "b", 1, 3).await;
    let third = watched(store, "c", 2, 7).await;
    assert_eq!(due(store, 2).await, []);
    assert_eq!(due(store, 5).await, [first.clone(), second.clone()]);
    let all = [first.clone(), second, third];
    assert_eq!(due(store, 7).await, all);
    let query = DueWatches {
        partitions: Arc::new([partition_of(&target("b"))]),
        now: at(9),
        limit: 1,
    };
    assert_eq!(store.due_watches(&query).await.unwrap(), [first]);
    let query = DueWatches {
        partitions: Arc::new([]),
        ..query
    };
    assert_eq!(store.due_watches(&query).await.unwrap(), []);
}

pub async fn of_16_claims_of_a_watch_one_is_granted(store: &Shared) {
    let watch = watched(&**store, "a", 0, 5).await;
    let mut tasks = JoinSet::new();
    for number in 0..16 {
        let (store, watch) = (Arc::clone(store), watch.clone());
        tasks.spawn(async move {
            let claimed = store.claim_watch(&watch, at(HOUR + number)).await;
            claimed.unwrap()
        });
    }
    let granted = tasks.join_all().await.into_iter();
    assert_eq!(granted.filter(|granted| *granted).count(), 1);
    assert_eq!(due(&**store, HOUR - 1).await, []);
    let claimed = due(&**store, 2 * HOUR).await.remove(0);
    let due_at = claimed.due_at;
    assert_eq!(claimed, Watch { due_at, ..watch });
}

pub async fn what_came_of_an_older_watch_is_dropped(store: &Shared) {
    let store = &**store;
    let read = watched(store, "a", 0, 5).await;
    assert!(store.claim_watch(&read, at(6)).await.unwrap());
    let claimed = watch(store, &read.usage_guid).await;
    for outcome in [
        WatchOutcome::Counts,
        WatchOutcome::AskAgain { at: at(9) },
        WatchOutcome::Missing(missing(9)),
    ] {
        settle(store, &read, outcome).await;
        assert_eq!(watch(store, &read.usage_guid).await, claimed);
    }
}

pub async fn what_is_missing_is_sent_again_once_for_each_time_it_is_asked_for(store: &Shared) {
    let store = &**store;
    let read = watched(store, "a", 0, 5).await;
    assert!(!resend(store, &read, 6).await, "it is not missing");
    let lost = lose(store, &read, 6).await;
    let missing = Some(self::missing(6));
    assert_eq!(lost, Watch { missing, ..read });
    assert_eq!(due(store, HOUR).await, [], "it waits for an operator");
    assert!(resend(store, &lost, 7).await);
    assert!(!resend(store, &lost, 8).await, "it is sent already");
    let (due_at, is_resent) = (at(7), true);
    let resent = Watch {
        due_at,
        is_resent,
        ..lost
    };
    assert_eq!(due(store, 7).await, slice::from_ref(&resent));
    // Abacus refuses it again.
    let lost = lose(store, &resent, 9).await;
    assert_eq!(lost.missing, Some(self::missing(9)));
    assert_eq!(due(store, HOUR).await, []);
    assert!(resend(store, &lost, 10).await);
    assert!(!resend(store, &unknown(&lost), 10).await);
}

fn unknown(watch: &Watch) -> Watch {
    Watch {
        usage_guid: "unknown".to_owned(),
        ..watch.clone()
    }
}

pub async fn the_watch_over_what_was_sent_again_begins_anew(store: &Shared) {
    let store = &**store;
    let read = watched(store, "a", 0, 5).await;
    let lost = lose(store, &read, 6).await;
    assert!(resend(store, &lost, 7).await);
    let resent = due(store, 7).await.remove(0);
    let location = Some("https://abacus/2".to_owned());
    let accepted = WatchOutcome::Accepted {
        at: at(8),
        location: location.clone(),
        due_at: at(11),
    };
    settle(store, &resent, accepted).await;
    let anew = Watch {
        accepted_at: at(8),
        due_at: at(11),
        location,
        ..read
    };
    assert_eq!(due(store, 10).await, []);
    assert_eq!(due(store, 11).await, [anew]);
}

pub async fn many_watches_are_settled_at_once(store: &Shared) {
    let store = &**store;
    let counts = watched(store, "a", 0, 1).await;
    let later = watched(store, "b", 1, 2).await;
    let lost = watched(store, "c", 2, 3).await;
    let outcomes = [
        (counts.clone(), WatchOutcome::Counts),
        (unknown(&counts), WatchOutcome::Counts),
        (later.clone(), WatchOutcome::AskAgain { at: at(9) }),
        (lost.clone(), WatchOutcome::Missing(missing(9))),
    ];
    store.settle_watches(&outcomes).await.unwrap();
    assert_eq!(watch(store, &counts.usage_guid).await, None);
    assert!(!resend(store, &counts, 9).await);
    assert_eq!(due(store, 8).await, []);
    let due_at = at(9);
    assert_eq!(due(store, 9).await, [Watch { due_at, ..later }]);
    let lost = watch(store, &lost.usage_guid).await;
    assert_eq!(lost.and_then(|it| it.missing), Some(missing(9)));
}

/// The watches of a list, page by page.
async fn list(store: &dyn Store, query: &WatchQuery) -> Vec<Watch> {
    let (mut query, mut all) = (query.clone(), Vec::new());
    loop {
        let page = store.unconfirmed(&query).await.unwrap();
        assert!(page.watches.len() <= query.limit);
        all.extend(page.watches);
        query.after = page.next;
        if query.after.is_none() {
            return all;
        }
    }
}

pub async fn watches_are_listed_in_the_order_of_acceptance(store: &Shared) {
    let store = &**store;
    let mut all = Vec::new();
    for (number, accepted_at) in [5, 1, 3, 5].into_iter().enumerate() {
        all.push(watched(store, &number.to_string(), accepted_at, 9).await);
    }
    all.sort_by_key(Watch::position);
    for limit in [1, 2, 4, 5] {
        let query = WatchQuery {
            limit,
            ..WatchQuery::default()
        };
        assert_eq!(list(store, &query).await, all, "{limit} at a time");
    }
}

pub async fn a_list_of_watches_is_narrowed_by_target_resource_and_loss(store: &Shared) {
    let store = &**store;
    let read = watched(store, "a", 0, 9).await;
    let lost = watched(store, "b", 1, 9).await;
    let lost = lose(store, &lost, 9).await;
    let span = started(store, "c", "c", 0).await;
    let mut other = entry(&span, 2 - HOUR, 2);
    other.span = SpanId::Text("other".to_owned());
    other.target.resource_id = id("other");
    write(store, &other, Some(at(9))).await;
    let other = watch(store, &other.usage_guid).await;
    let other = other.expect("it is watched");
    let all = WatchQuery {
        limit: 1,
        ..WatchQuery::default()
    };
    let everything = [read.clone(), lost.clone(), other.clone()];
    assert_eq!(list(store, &all).await, everything);
    let only_missing = WatchQuery {
        missing: true,
        ..all.clone()
    };
    assert_eq!(list(store, &only_missing).await, [lost]);
    let of_resource = WatchQuery {
        resources: Some(vec![id("other")]),
        ..all.clone()
    };
    assert_eq!(list(store, &of_resource).await, [other]);
    let of_target = WatchQuery {
        target: filter(&[("resource_instance_id", "a")]),
        ..all
    };
    assert_eq!(list(store, &of_target).await, [read]);
}
