//! The backlog: spans that wait for the workers.

use sampler_domain::{ClosingMonth, Span, Timestamp};
use sampler_store::{Backlog, BacklogQuery, ClosingBacklog, Published};

use crate::support::{
    Changing, Shared, Store, at, done, failure, last_refusal, must_plan, must_stop, plan_to,
    started,
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

/// A span that started an hour ago, with its first interval planned.
async fn planned(store: &dyn Store, name: &str) -> Span {
    let span = started(store, name, name, -HOUR).await;
    must_plan(store, &span, 0).await
}

pub async fn the_backlog_is_what_is_due_and_what_waits_after_a_failure(store: &Shared) {
    let store = &**store;
    assert_eq!(count(store, &query(0)).await, Backlog::default());
    started(store, "due", "due", -5 * HOUR / 2).await;
    let idle = started(store, "idle", "idle", -3 * HOUR).await;
    done(store.postpone(&idle, at(1)).await);
    let complete = started(store, "complete", "complete", -4 * HOUR).await;
    done(store.complete(&complete, at(0)).await);
    let one = Backlog {
        due: 1,
        oldest: Some(at(-5 * HOUR / 2)),
        ..Backlog::default()
    };
    assert_eq!(count(store, &query(0)).await, one);
    // A stop beyond which too much was sampled: sampling goes back.
    let back = started(store, "back", "back", -3 * HOUR).await;
    let back = must_plan(store, &back, 0).await;
    done(
        store
            .executed(&back, sampler_domain::Next::Wait, at(0), at(HOUR))
            .await,
    );
    must_stop(store, None, "back", -HOUR).await;
    // Its usage is tried again later; until then it still waits.
    let failed = planned(store, "failed").await;
    done(store.failed(&failed, failure("away", at(HOUR))).await);
    let suspended = planned(store, "suspended").await;
    done(
        store
            .failed(&suspended, last_refusal("no mapping", 0))
            .await,
    );
    let all = Backlog {
        due: 3,
        suspended: 1,
        ..one
    };
    assert_eq!(count(store, &query(0)).await, all);
    // It fell due at the end of its interval, and not when it is tried again.
    let span = started(store, "now", "now", 0).await;
    assert_eq!(span.start, at(0));
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
    let open = started(store, "open", "open", -4 * HOUR).await;
    done(store.postpone(&open, month.last_due_at).await);
    started(store, "new", "new", -HOUR / 4).await;
    // It is left before it falls due.
    assert_eq!(left(-HOUR + 1).await, 1);
    assert_eq!(left(0).await, 1);
    let failed = started(store, "failed", "failed", -3 * HOUR / 2).await;
    let plan = plan_to(&failed, -HOUR);
    let failed = done(store.plan(&failed, plan, at(-HOUR), at(-HOUR)).await);
    done(store.failed(&failed, failure("away", at(HOUR))).await);
    assert_eq!(left(0).await, 2);
    let open = must_plan(store, &open, -HOUR).await;
    let next = sampler_domain::Next::Wait;
    done(store.executed(&open, next, at(0), at(HOUR)).await);
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
