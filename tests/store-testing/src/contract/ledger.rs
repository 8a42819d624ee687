//! Entries of the ledger.

use std::sync::Arc;

use sampler_domain::{Acceptance, Entry, Granularity, Interval, Span, SpanId};
use sampler_store::{EntryOrder, EntryPosition, LedgerSum};
use tokio::task::JoinSet;

use crate::support::{
    Shared, Store, acceptance, at, completed, entry, finished, new_span, start_event, started,
    target,
};

const HOUR: i64 = 3_600_000;
const DAY: i64 = 24 * HOUR;

/// Writes entries that do not expire in a test.
async fn write(store: &dyn Store, entries: &[Entry]) {
    for entry in entries {
        let expires_at = at(4_000 * DAY);
        store.write_entry(entry, expires_at, None).await.unwrap();
    }
}

/// The entries of a span, page by page.
async fn pages(store: &dyn Store, span: &Span, order: EntryOrder, limit: usize) -> Vec<Entry> {
    let (mut all, mut after): (_, Option<EntryPosition>) = (Vec::new(), None);
    loop {
        let page = store.usages(&span.id, &span.target, order, after.as_ref(), limit);
        let page = page.await.unwrap();
        assert!(page.entries.len() <= limit);
        all.extend(page.entries);
        after = page.next;
        if after.is_none() {
            return all;
        }
    }
}

async fn all_of(store: &dyn Store, span: &Span) -> Vec<Entry> {
    pages(store, span, EntryOrder::Oldest, 1_000).await
}

/// An entry that was accepted at this time.
fn accepted(entry: Entry, millis: i64) -> Entry {
    Entry {
        acceptance: acceptance(millis, None),
        ..entry
    }
}

pub async fn an_entry_is_kept_as_it_was_given(store: &Shared) {
    let store = &**store;
    let span = started(store, "a", "a", -2 * HOUR).await;
    let text = SpanId::Text("own id".to_owned());
    let full = entry(&span, -2 * HOUR, -HOUR);
    let bare = Entry {
        span: text.clone(),
        dimension: Granularity::Month,
        acceptance: Acceptance {
            at: at(7),
            status: None,
            location: None,
        },
        ..entry(&span, -HOUR, -2 * HOUR)
    };
    write(store, &[full.clone(), bare.clone()]).await;
    for entry in [&full, &bare] {
        let kept = store.entry(&entry.usage_guid).await.unwrap();
        assert_eq!(kept.as_ref(), Some(entry));
    }
    assert_eq!(all_of(store, &span).await, [full]);
    let of_text = Span { id: text, ..span };
    assert_eq!(all_of(store, &of_text).await, [bare]);
    assert_eq!(store.entry("unknown").await.unwrap(), None);
}

/// Two workers post the same usage; or a span was started again after a restore, and has another `_id`.
pub async fn what_was_written_first_of_a_usage_stays(store: &Shared) {
    let store = &**store;
    let span = started(store, "a", "a", -HOUR).await;
    let first = entry(&span, -HOUR, 0);
    let later = accepted(first.clone(), 9);
    let other = Entry {
        span: SpanId::new(at(0), 7),
        ..first.clone()
    };
    write(store, &[first.clone(), later, other]).await;
    assert_eq!(all_of(store, &span).await, [first]);
}

pub async fn of_64_entries_of_one_usage_one_is_kept(store: &Shared) {
    let span = started(&**store, "a", "a", -HOUR).await;
    let mut tasks = JoinSet::new();
    for number in 0..64 {
        let (store, entry) = (Arc::clone(store), entry(&span, -HOUR, 0));
        tasks.spawn(async move { write(&*store, &[accepted(entry, number)]).await });
    }
    tasks.join_all().await;
    assert_eq!(all_of(&**store, &span).await.len(), 1);
}

/// Also where some of those that share a command are there before.
pub async fn of_64_entries_each_is_kept(store: &Shared) {
    let mut spans = Vec::new();
    for number in 0..64 {
        let name = number.to_string();
        spans.push(started(&**store, &name, &name, -HOUR).await);
    }
    let entries: Vec<Entry> = spans.iter().map(|span| entry(span, -HOUR, 0)).collect();
    for entry in entries.iter().step_by(3) {
        write(&**store, std::slice::from_ref(entry)).await;
    }
    let mut tasks = JoinSet::new();
    for entry in entries.clone() {
        let store = Arc::clone(store);
        tasks.spawn(async move { write(&*store, &[entry]).await });
    }
    tasks.join_all().await;
    for (span, entry) in spans.iter().zip(entries) {
        assert_eq!(all_of(&**store, span).await, [entry]);
    }
}

pub async fn entries_come_page_by_page_in_the_order_of_acceptance(store: &Shared) {
    let store = &**store;
    let span = started(store, "a", "a", -9 * HOUR).await;
    let hours = [(3, 3), (1, 5), (2, 1), (5, 5), (4, 2)];
    let mut entries = hours.map(|(hour, millis)| {
        let end = hour * HOUR;
        accepted(entry(&span, end - HOUR, end), millis)
    });
    write(store, &entries).await;
    entries.sort_by_key(|entry| (entry.acceptance.at, entry.usage_guid.clone()));
    for limit in [1, 2, 5, 6] {
        let oldest = pages(store, &span, EntryOrder::Oldest, limit).await;
        assert_eq!(oldest, entries, "{limit} at a time");
        let mut newest = pages(store, &span, EntryOrder::Newest, limit).await;
        newest.reverse();
        assert_eq!(newest, entries, "{limit} at a time");
    }
}

pub async fn entries_of_other_spans_do_not_show(store: &Shared) {
    let store = &**store;
    let span = started(store, "a", "a", -HOUR).await;
    let other = started(store, "b", "b", -HOUR).await;
    write(store, &[entry(&span, -HOUR, 0)]).await;
    let elsewhere = Span {
        target: target("c"),
        ..span.clone()
    };
    for span in [&other, &elsewhere] {
        assert_eq!(all_of(store, span).await, []);
        let sum = store.sum_of(&span.id, &span.target).await.unwrap();
        assert_eq!(sum, LedgerSum::default());
    }
}

pub async fn entries_outlive_their_span(store: &Shared) {
    let store = &**store;
    let span = completed(store, "a", 0).await;
    let entries = [entry(&span, -HOUR, 0)];
    write(store, &entries).await;
    assert_eq!(store.remove(&[finished(&span)]).await.unwrap(), 1);
    assert_eq!(all_of(store, &span).await, entries);
}

async fn sum(store: &dyn Store, span: &Span) -> (Option<i64>, u64, i64) {
    let sum = store.sum_of(&span.id, &span.target).await.unwrap();
    let shown = store.ledger_of(&span.id, &span.target).await.unwrap();
    assert_eq!(sum, shown);
    let LedgerSum {
        since,
        usages,
        duration,
    } = sum;
    (since.map(|it| it.since(at(0))), usages, duration)
}

pub async fn entries_add_up_with_their_signs(store: &Shared) {
    let store = &**store;
    let span = started(store, "a", "a", 0).await;
    assert_eq!(sum(store, &span).await, (None, 0, 0));
    let forward = [entry(&span, 0, HOUR), entry(&span, HOUR, 2 * HOUR)];
    write(store, &forward).await;
    let back = accepted(entry(&span, 2 * HOUR, HOUR + 1), 3 * HOUR);
    write(store, &[back]).await;
    assert_eq!(sum(store, &span).await, (Some(0), 3, HOUR + 1));
}

/// An entry of what was sent again is kept for longer than those around it.
pub async fn entries_do_not_add_up_from_what_was_sent_again(store: &Shared) {
    let store = &**store;
    let span = started(store, "a", "a", 0).await;
    let again = Entry {
        is_again: true,
        ..entry(&span, 0, HOUR)
    };
    write(store, std::slice::from_ref(&again)).await;
    assert_eq!(sum(store, &span).await, (None, 0, 0));
    write(store, &[entry(&span, 5 * HOUR, 6 * HOUR)]).await;
    assert_eq!(sum(store, &span).await, (Some(5 * HOUR), 1, HOUR));
}

/// Those from before may have expired.
pub async fn entries_add_up_from_the_time_of_the_first_that_is_kept(store: &Shared) {
    let store = &**store;
    let event = start_event(Some("a"), "a", 0);
    let span = new_span(event).span;
    let kept = entry(&span, HOUR, 2 * HOUR);
    let back = entry(&span, 2 * HOUR, HOUR);
    let beyond = entry(&span, HOUR, HOUR / 2);
    let entries = [
        kept,
        accepted(back, 3 * HOUR),
        accepted(beyond, 3 * HOUR + 1),
    ];
    write(store, &entries).await;
    assert_eq!(sum(store, &span).await, (Some(HOUR), 2, 0));
    let Interval { start, .. } = entries[0].interval;
    assert_eq!(span.billed_since(start), 0);
}
