//! The backlog: spans that wait for the workers.

use sampler_domain::{ClosingMonth, Timestamp};
use sampler_store::{Backlog, BacklogQuery, ClosingBacklog, Published};

use crate::support::{
    Changing, Shared, Store, at, completed, failed, failure, must_stop, next, planned, postponed,
    recorded, started, suspended,
};

const HOUR: i64 = 3_600_000;

/// `millis` after the present.
fn query(millis: i64) -> BacklogQuery {
    BacklogQuery {
        now: at(millis),
        closing: None,
    }
}

async fn count(store: &dyn Store, query: &BacklogQuery) -> Backlog {
    store.count_backlog(query).await.unwrap()
}

pub async fn the_backlog_is_what_is_due_and_what_waits_after_a_failure(store: &Shared) {
    let store = &**store;
    assert_eq!(count(store, &query(0)).await, Backlog::default());
    started(store, "due", "due", -5 * HOUR / 2).await;
    let idle = started(store, "idle", "idle", -3 * HOUR).await;
    store.must_make(&idle, postponed(&idle, at(1))).await;
    completed(store, "complete", -3 * HOUR).await;
    let one = Backlog {
        due: 1,
        oldest: Some(at(-5 * HOUR / 2)),
        ..Backlog::default()
    };
    assert_eq!(count(store, &query(0)).await, one);
    // A stop beyond which too much was sampled: sampling goes back.
    let back = planned(store, "back", -HOUR).await;
    store.must_make(&back, recorded(&back, 0)).await;
    must_stop(store, None, "back", -HOUR / 2).await;
    // Its usage is tried again later; until then it still waits.
    let away = planned(store, "failed", -HOUR).await;
    let failed = failed(&away, failure("away", 0, at(HOUR)));
    store.must_make(&away, failed).await;
    suspended(store, "suspended", 0).await;
    let all = Backlog {
        due: 3,
        suspended: 1,
        ..one
    };
    assert_eq!(count(store, &query(0)).await, all);
    // It fell due at the end of its interval, and not when it is tried again.
    started(store, "now", "now", 0).await;
    let late = count(store, &query(2 * HOUR)).await;
    assert_eq!((late.due, late.oldest), (5, Some(at(-5 * HOUR / 2))));
}

pub async fn a_closing_month_has_left_what_is_not_sampled_of_it(store: &Shared) {
    let store = &**store;
    // It ended an hour ago, and spans fall due half an hour after a boundary.
    let month = ClosingMonth {
        start: at(-30 * 24 * HOUR),
        end: at(-HOUR),
        last_due_at: at(-HOUR / 2),
    };
    let during = |millis| BacklogQuery {
        closing: Some(month),
        ..query(millis)
    };
    let left = async |millis| {
        let closing = count(store, &during(millis)).await.closing;
        let ClosingBacklog { start, end, spans } = closing.expect("it is closing");
        assert_eq!((start, end), (month.start, month.end));
        spans
    };
    assert_eq!(left(0).await, 0);
    let open = started(store, "open", "open", -2 * HOUR).await;
    let later = postponed(&open, month.last_due_at);
    let open = store.must_make(&open, later).await;
    started(store, "new", "new", -HOUR / 4).await;
    // It is left before it falls due.
    assert_eq!(left(-HOUR + 1).await, 1);
    assert_eq!(left(0).await, 1);
    let away = planned(store, "failed", -3 * HOUR / 2).await;
    let failed = failed(&away, failure("away", -HOUR, at(HOUR)));
    store.must_make(&away, failed).await;
    assert_eq!(left(0).await, 2);
    let open = store.must_make(&open, next(&open, -HOUR)).await;
    store.must_make(&open, recorded(&open, -HOUR)).await;
    assert_eq!(left(0).await, 1);
}

pub async fn what_was_counted_is_told_to_all(store: &Shared) {
    assert_eq!(store.published_backlog().await.ok(), Some(None));
    let backlog = Backlog {
        due: 7,
        at_least: true,
        oldest: Some(at(-1)),
        suspended: 10,
        rate: 0.5,
        closing: Some(ClosingBacklog {
            start: Timestamp::MIN,
            end: at(0),
            spans: 11,
        }),
        cost: 13,
    };
    for backlog in [backlog, Backlog::default()] {
        store.publish_backlog(&backlog).await.unwrap();
        let published = store.published_backlog().await.unwrap();
        let Published { value, age } = published.expect("it was published");
        assert_eq!(value, backlog);
        assert!((0..60_000).contains(&age), "{age}");
    }
}

pub async fn the_rates_of_live_workers_add_up(store: &Shared) {
    let store = &**store;
    let rate = async || count(store, &query(0)).await.rate.to_string();
    let report = async |worker, rate| {
        store.report_rate(worker, rate).await.unwrap();
    };
    report("a", 1.5).await;
    assert_eq!(rate().await, "0", "nobody knows that worker");
    for worker in ["a", "b"] {
        store.heartbeat(worker).await.unwrap();
    }
    report("a", 1.5).await;
    report("b", 2.0).await;
    assert_eq!(rate().await, "3.5");
    store.heartbeat("a").await.unwrap();
    assert_eq!(rate().await, "3.5", "a heartbeat keeps it");
    store.leave("b").await.unwrap();
    assert_eq!(rate().await, "1.5");
}
