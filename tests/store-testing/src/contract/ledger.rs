//! Entries of the ledger, and the totals that prove them.

use std::sync::Arc;

use sampler_domain::{Entry, EntryState, Failure, Interval, Next, Planned, Span, SpanId};
use sampler_store::{Entries, EntryKey};
use tokio::task::JoinSet;

use crate::support::{
    Changing, Shared, Store, acceptance, at, done, failure, finished, kept, must_plan, must_stop,
    refusal, resend, started, target,
};

const HOUR: i64 = 3_600_000;
const DAY: i64 = 24 * HOUR;

/// The span with a plan up to `millis`.
async fn planned(store: &dyn Store, name: &str, millis: i64) -> Span {
    let span = started(store, name, name, -DAY).await;
    must_plan(store, &span, millis).await
}

/// The entry of what is planned for a span, as it is written once Abacus has it.
fn entry(span: &Span) -> Entry {
    let acceptance = acceptance(7, Some("https://abacus/v1/metering/collected/usage/1"));
    Entry::of_accepted(span, acceptance).expect("it is planned")
}

async fn write(store: &dyn Store, entry: Entry) -> EntryState {
    store.write_entry(entry, DAY).await.unwrap()
}

async fn all_of(store: &dyn Store, span: &Span) -> Vec<Entry> {
    let entries = store
        .usages(&span.id, &span.target, None, 1_000)
        .await
        .unwrap();
    assert_eq!((entries.unreadable, entries.next), (0, None));
    entries.entries
}

pub async fn an_entry_is_kept_as_it_was_given(store: &Shared) {
    let store = &**store;
    let span = planned(store, "a", -HOUR).await;
    let refused = done(
        store
            .failed(&span, refusal("no mapping", 5, at(HOUR)))
            .await,
    );
    let entry = entry(&refused);
    assert_eq!(entry.attempts, 2);
    assert_eq!(write(store, entry.clone()).await, EntryState::Accepted);
    assert_eq!(all_of(store, &span).await, [entry]);
    let bare = planned(store, "b", -HOUR).await;
    let bare = Entry {
        planned_at: at(1),
        skipped_at: Some(at(2)),
        state: EntryState::Skipped,
        error: Some("no mapping".to_owned()),
        ..Entry::of_planned(&bare).expect("it is planned")
    };
    assert_eq!(write(store, bare.clone()).await, EntryState::Skipped);
    assert_eq!(all_of(store, &kept(store, "b").await).await, [bare]);
}

/// Two workers post the same usage, or one that died is followed by another.
pub async fn what_was_written_first_of_a_usage_stays(store: &Shared) {
    let store = &**store;
    let span = planned(store, "a", -HOUR).await;
    let first = entry(&span);
    write(store, first.clone()).await;
    let later = Entry {
        accepted_at: None,
        skipped_at: Some(at(9)),
        state: EntryState::Skipped,
        ..first.clone()
    };
    for _ in 0..2 {
        assert_eq!(write(store, later.clone()).await, EntryState::Accepted);
    }
    assert_eq!(all_of(store, &span).await, [first]);
}

/// A worker notes a lost answer, after another one has written that the usage is skipped.
pub async fn a_skip_learns_that_a_post_had_no_answer(store: &Shared) {
    let store = &**store;
    let span = planned(store, "a", -HOUR).await;
    let skipped = |span: &Span| Entry {
        skipped_at: Some(at(9)),
        state: EntryState::Skipped,
        ..Entry::of_planned(span).expect("it is planned")
    };
    write(store, skipped(&span)).await;
    let lost = Failure {
        unanswered: true,
        ..failure("no answer", at(61))
    };
    let noted = done(store.failed(&span, lost).await);
    assert!(noted.processing.unanswered);
    let by_older_read = store.executed(&span, Next::Wait, at(HOUR), at(HOUR));
    assert_eq!(by_older_read.await.unwrap(), None);
    assert_eq!(write(store, skipped(&noted)).await, EntryState::Skipped);
    let expected = Entry {
        unanswered: true,
        ..skipped(&span)
    };
    assert_eq!(all_of(store, &span).await, std::slice::from_ref(&expected));
    let mark = resend(7, EntryState::Skipped, 5);
    let key = EntryKey::of(&expected);
    assert!(store.mark_resend(&key, &mark).await.unwrap());
    for (unanswered, is_current) in [(false, false), (true, true)] {
        let read = Entry {
            unanswered,
            resend: Some(mark.clone()),
            ..expected.clone()
        };
        let accepted = store.accept_resent(&read, &acceptance(8, None)).await;
        assert_eq!(accepted.unwrap(), is_current);
    }
    done(store.executed(&noted, Next::Wait, at(HOUR), at(HOUR)).await);
}

pub async fn of_64_entries_of_one_usage_one_is_kept(store: &Shared) {
    let span = planned(&**store, "a", -HOUR).await;
    let mut tasks = JoinSet::new();
    for number in 0..64 {
        let (store, mut entry) = (Arc::clone(store), entry(&span));
        entry.accepted_at = Some(at(number));
        tasks.spawn(async move { write(&*store, entry).await });
    }
    for state in tasks.join_all().await {
        assert_eq!(state, EntryState::Accepted);
    }
    assert_eq!(all_of(&**store, &span).await.len(), 1);
}

/// Also where some of those that share a command are there before.
pub async fn of_64_entries_each_has_its_own_answer(store: &Shared) {
    let mut tasks = JoinSet::new();
    let mut spans = Vec::new();
    for number in 0..64_i64 {
        let span = planned(&**store, &number.to_string(), -HOUR).await;
        if number % 3 == 0 {
            let skipped = Entry {
                skipped_at: Some(at(1)),
                state: EntryState::Skipped,
                ..Entry::of_planned(&span).expect("it is planned")
            };
            write(&**store, skipped).await;
        }
        spans.push(span);
    }
    for (number, span) in spans.iter().enumerate() {
        let (store, entry) = (Arc::clone(store), entry(span));
        tasks.spawn(async move { (number, write(&*store, entry).await) });
    }
    for (number, state) in tasks.join_all().await {
        let expected = if number % 3 == 0 {
            EntryState::Skipped
        } else {
            EntryState::Accepted
        };
        assert_eq!(state, expected, "{number}");
    }
}

pub async fn entries_come_page_by_page_from_either_end(store: &Shared) {
    let store = &**store;
    let span = planned(store, "a", -HOUR).await;
    for version in [3, 9, 5, 11, 7] {
        let entry = Entry {
            version,
            usage_guid: format!("guid {version}"),
            ..entry(&span)
        };
        write(store, entry).await;
    }
    for (limit, is_from_end) in [1, 2, 5, 6]
        .map(|limit| [(limit, false), (limit, true)])
        .concat()
    {
        let (mut seen, mut last) = (Vec::new(), None);
        loop {
            let page = if is_from_end {
                store
                    .usages_from_end(&span.id, &span.target, last, limit)
                    .await
            } else {
                store.usages(&span.id, &span.target, last, limit).await
            };
            let Entries { entries, next, .. } = page.unwrap();
            assert!(entries.len() <= limit);
            seen.extend(entries.iter().map(|entry| entry.version));
            last = next;
            if last.is_none() {
                break;
            }
        }
        if is_from_end {
            seen.reverse();
        }
        assert_eq!(seen, [3, 5, 7, 9, 11], "{limit} at a time");
    }
}

pub async fn entries_of_other_spans_do_not_show(store: &Shared) {
    let store = &**store;
    let span = planned(store, "a", -HOUR).await;
    let other = planned(store, "b", -HOUR).await;
    write(store, entry(&span)).await;
    assert_eq!(all_of(store, &other).await, []);
    assert_eq!(
        store
            .usages(&span.id, &target("c"), None, 10)
            .await
            .unwrap()
            .entries,
        []
    );
    let mut text = Span {
        id: SpanId::Text("own id".to_owned()),
        ..span.clone()
    };
    let interval = Interval {
        start: at(0),
        end: at(HOUR),
    };
    text.processing.planned = Some(Planned {
        interval,
        usage_guid: "of a text".to_owned(),
        planned_at: at(1),
        granularity: None,
        posts_end_by: None,
        withheld: None,
    });
    write(store, entry(&text)).await;
    assert_eq!(all_of(store, &text).await, [entry(&text)]);
    assert_eq!(all_of(store, &span).await, [entry(&span)]);
}

/// A store removes what has expired when it gets round to it, which no test waits for.
/// A start that was sent again after a restore has another `_id`, and its usages have the same ids.
pub async fn an_entry_is_kept_once_whatever_span_names_it(store: &Shared) {
    let store = &**store;
    let span = planned(store, "a", 0).await;
    let first = entry(&span);
    assert_eq!(write(store, first.clone()).await, EntryState::Accepted);
    let mut again = first;
    again.span = SpanId::new(at(0), 7);
    assert_eq!(write(store, again).await, EntryState::Accepted);
    assert_eq!(all_of(store, &span).await.len(), 1);
}

pub async fn entries_outlive_their_span(store: &Shared) {
    let store = &**store;
    let span = planned(store, "a", -HOUR).await;
    must_stop(store, None, "a", -HOUR).await;
    let span = store
        .read(&span.id, &span.target)
        .await
        .unwrap()
        .expect("it is there");
    let year = Entry {
        accepted_at: Some(at(400 * DAY)),
        ..entry(&span)
    };
    store.write_entry(year.clone(), 4_000 * DAY).await.unwrap();
    done(store.executed(&span, Next::Complete, at(0), at(0)).await);
    let finished = [finished(&span)];
    for _ in 0..2 {
        store.expire(&finished).await.unwrap();
    }
    assert_eq!(store.remove(&finished).await.ok(), Some(1));
    assert_eq!(all_of(store, &span).await, [year]);
}
