//! Spans that are suspended under a cause, and how they go on.

use std::slice;

use sampler_domain::{Cause, CauseId, Change, Changed, SUSPENDED_DUE_AT, Span, Timestamp};
use sampler_store::{KeptCause, Probe, Resumption};

use crate::support::{
    Changing, Shared, Store, at, done, due, failure, kept, last_refusal, must_plan, must_stop,
    plan_to, refusal, started,
};

const HOUR: i64 = 3_600_000;
const CENTURY: i64 = 100 * 365 * 24 * HOUR;

/// What is resumed `millis` after the present, to be suspended by one more refusal of three.
fn resumption(millis: i64) -> Resumption {
    Resumption {
        now: at(millis),
        refusals: 2,
    }
}

/// A span that is suspended since `millis` after the present, and its cause.
async fn suspended(store: &dyn Store, name: &str, millis: i64) -> (Span, CauseId) {
    let span = started(store, name, name, -HOUR).await;
    let planned = store.plan(&span, plan_to(&span, 0), at(0), at(0)).await;
    suspend(store, &done(planned), millis).await
}

async fn suspend(store: &dyn Store, span: &Span, millis: i64) -> (Span, CauseId) {
    let span = done(store.failed(span, last_refusal("no mapping", millis)).await);
    let suspension = span.processing.suspended.expect("it is suspended");
    (span, suspension.cause)
}

async fn register(store: &dyn Store, span: &Span, millis: i64) -> Cause {
    let error = span.processing.last_error.as_ref();
    let cause = Cause::of(&span.target, error.expect("it was refused"));
    store
        .register(&cause, at(millis), at(millis + HOUR))
        .await
        .unwrap();
    cause
}

async fn due_causes(store: &dyn Store, millis: i64) -> Vec<KeptCause> {
    store.due_causes(at(millis), 10).await.unwrap()
}

/// Has one tried; a probe lasts an hour.
async fn probe(store: &dyn Store, cause: CauseId, millis: i64) -> Probe {
    store.probe(cause, resumption(millis), HOUR).await.unwrap()
}

async fn resume(store: &dyn Store, cause: CauseId, until: Timestamp, limit: usize) -> u64 {
    store
        .resume_batch(cause, until, resumption(HOUR), limit)
        .await
        .unwrap()
}

pub async fn a_suspended_span_is_never_due(store: &Shared) {
    let store = &**store;
    let span = started(store, "a", "i", -HOUR).await;
    let span = must_plan(store, &span, 0).await;
    let span = done(store.failed(&span, refusal("no mapping", 1, at(1))).await);
    let span = done(store.failed(&span, failure("away", at(2))).await);
    assert_eq!(span.processing.refusals, 1);
    assert_eq!(kept(store, "a").await, span);
    let (span, _) = suspend(store, &span, 3).await;
    assert_eq!(span.processing.refusals, 2);
    assert_eq!(kept(store, "a").await, span);
    assert_eq!(due(store, CENTURY).await, [""; 0]);
}

/// The usage may have been counted all the same, by another worker.
pub async fn an_execution_ends_a_suspension(store: &Shared) {
    let store = &**store;
    let (span, _) = suspended(store, "a", 0).await;
    let next = sampler_domain::Next::Wait;
    let span = done(store.executed(&span, next, at(1), at(1)).await);
    assert_eq!(span.processing.suspended, None);
    assert_eq!(span.processing.refusals, 0);
    assert_eq!(kept(store, "a").await, span);
    assert_eq!(due(store, 1).await, ["a"]);
}

pub async fn a_stop_of_a_suspended_span_resumes_nothing(store: &Shared) {
    let store = &**store;
    let (_, cause) = suspended(store, "a", 0).await;
    must_stop(store, None, "a", HOUR).await;
    assert_eq!(due(store, HOUR).await, ["a"]);
    let span = kept(store, "a").await;
    let suspension = span.processing.suspended.expect("it still is");
    let keep = Change::KeepSuspended { suspension };
    assert_eq!(keep.due_at(), Some(SUSPENDED_DUE_AT));
    assert_eq!(
        store.make(&span, keep.clone(), at(0)).await.ok(),
        Some(Some(span.clone()))
    );
    assert_eq!(due(store, CENTURY).await, [""; 0]);
    // A worker that read it before it was resumed does not put it away after that.
    assert_eq!(resume(store, cause, at(0), 10).await, 1);
    assert_eq!(
        store.change(&span, &keep, at(0)).await.unwrap(),
        Changed::Rejected
    );
    assert_eq!(due(store, HOUR).await, ["a"]);
}

pub async fn one_span_of_a_cause_is_probed_at_a_time(store: &Shared) {
    let store = &**store;
    let (_, cause) = suspended(store, "later", 2).await;
    let (first, same) = suspended(store, "first", 1).await;
    assert_eq!(cause, same);
    register(store, &first, 0).await;
    assert_eq!(probe(store, cause, HOUR).await, Probe::Begun);
    let probed = kept(store, "first").await;
    assert_eq!(probed, first.resumed(2, true));
    assert_eq!(probed.processing.probe, Some(cause));
    assert_eq!(due(store, HOUR).await, ["first"]);
    assert_eq!(probe(store, cause, HOUR).await, Probe::Running);
    // One that finds nobody there is still to be answered.
    let probed = done(store.failed(&probed, failure("away", at(HOUR))).await);
    assert_eq!(probe(store, cause, HOUR).await, Probe::Running);
    suspend(store, &probed, 3).await;
    assert_eq!(kept(store, "first").await.processing.probe, None);
    assert_eq!(probe(store, cause, HOUR).await, Probe::Begun);
    assert_eq!(due(store, HOUR).await, ["later"]);
}

/// A probe whose own usage gets no answer does not keep the others waiting for ever.
pub async fn a_probe_without_an_answer_gives_way(store: &Shared) {
    let store = &**store;
    let (first, cause) = suspended(store, "first", 1).await;
    suspended(store, "second", 2).await;
    register(store, &first, 0).await;
    assert_eq!(probe(store, cause, 0).await, Probe::Begun);
    let probed = kept(store, "first").await;
    let probed = done(store.failed(&probed, failure("away", at(CENTURY))).await);
    assert_eq!(probe(store, cause, HOUR - 1).await, Probe::Running);
    assert_eq!(probe(store, cause, HOUR).await, Probe::Begun);
    assert_eq!(due(store, HOUR).await, ["second"]);
    // The first is tried again, as after any failure, and counts for all of the cause.
    assert_eq!(kept(store, "first").await, probed);
    assert_eq!(probed.processing.probe, Some(cause));
    assert_eq!(probe(store, cause, 2 * HOUR).await, Probe::NoSpan);
}

pub async fn a_cause_is_kept_once_and_probed_in_its_time(store: &Shared) {
    let store = &**store;
    let (span, id) = suspended(store, "a", 0).await;
    let cause = register(store, &span, 0).await;
    register(store, &span, 5).await;
    assert_eq!(due_causes(store, HOUR - 1).await, []);
    let expected = KeptCause {
        id,
        cause,
        since: at(0),
        probe_at: at(HOUR),
        touched_at: at(5),
        resuming: None,
        resumes: 0,
    };
    let due = due_causes(store, HOUR).await;
    assert_eq!(due, [expected]);
    let claim = || store.claim_probe(&due[0], at(2 * HOUR));
    assert!(claim().await.unwrap());
    assert!(!claim().await.unwrap(), "only one does");
    assert_eq!(due_causes(store, 2 * HOUR - 1).await, []);
}

pub async fn a_cause_goes_when_nothing_is_suspended_under_it(store: &Shared) {
    let store = &**store;
    let (span, id) = suspended(store, "a", 0).await;
    register(store, &span, 0).await;
    let cause = due_causes(store, HOUR).await.remove(0);
    let remove = || store.remove_cause(&cause);
    assert!(!remove().await.unwrap());
    assert_eq!(resume(store, id, at(0), 10).await, 1);
    register(store, &span, 5).await;
    assert!(!remove().await.unwrap(), "touched since");
    let cause = due_causes(store, HOUR).await.remove(0);
    assert!(store.remove_cause(&cause).await.unwrap());
    assert_eq!(due_causes(store, HOUR).await, []);
    assert_eq!(probe(store, id, HOUR).await, Probe::NoSpan);
    assert!(!store.begin_resuming(id, at(0)).await.unwrap());
}

pub async fn a_cause_that_is_missing_is_found_by_its_spans(store: &Shared) {
    let store = &**store;
    let (span, id) = suspended(store, "a", 0).await;
    suspended(store, "b", 0).await;
    let register = || store.register_missing(at(7), at(HOUR));
    assert_eq!(register().await.unwrap(), 1);
    assert_eq!(register().await.unwrap(), 0);
    let found = due_causes(store, HOUR).await;
    let error = span.processing.last_error.expect("it was refused");
    assert_eq!(found[0].cause, Cause::of(&span.target, &error));
    assert_eq!((found[0].id, found[0].since), (id, at(7)));
}

pub async fn spans_of_a_cause_go_on_in_batches(store: &Shared) {
    let store = &**store;
    let mut spans = Vec::new();
    for number in 0..5 {
        spans.push(suspended(store, &number.to_string(), number).await.0);
    }
    let id = spans[0]
        .processing
        .suspended
        .expect("it is suspended")
        .cause;
    register(store, &spans[0], 0).await;
    assert!(store.begin_resuming(id, at(3)).await.unwrap());
    assert!(store.begin_resuming(id, at(9)).await.unwrap());
    // The second one has read something else.
    let ahead = due_causes(store, 0).await.remove(0);
    for until in [3, 5] {
        store.set_resuming(&ahead, at(until)).await.unwrap();
    }
    let cause = due_causes(store, 0).await.remove(0);
    assert_eq!(cause.resuming, Some(at(3)));
    assert_eq!(resume(store, id, at(3), 3).await, 3);
    assert_eq!(resume(store, id, at(3), 3).await, 1);
    assert_eq!(
        resume(store, id, at(3), 3).await,
        0,
        "one was suspended later"
    );
    // They fall due together, in no order.
    let mut resumed = due(store, HOUR).await;
    resumed.sort();
    assert_eq!(resumed, ["0", "1", "2", "3"]);
    let third = kept(store, "3").await;
    assert_eq!(third, spans[3].resumed(2, false));
    assert_eq!(third.processing.attempts, 1, "it counts as put off");
    store.end_resuming(&cause).await.unwrap();
    assert_eq!(due_causes(store, 0).await, []);
}

/// A worker that was frozen between its read and its write takes no later resume for the one that it read:
/// what was suspended in between would not be resumed.
pub async fn each_resume_of_an_operator_is_one_of_its_own(store: &Shared) {
    let store = &**store;
    let (span, id) = suspended(store, "a", 0).await;
    register(store, &span, 0).await;
    let resume_all = async || {
        assert!(store.resume_by_operator(id).await.unwrap());
        due_causes(store, 0).await.remove(0)
    };
    let first = resume_all().await;
    store.set_resuming(&first, at(1)).await.unwrap();
    let begun = due_causes(store, 0).await.remove(0);
    assert_eq!(begun.resuming, Some(at(1)));
    store.end_resuming(&begun).await.unwrap();
    assert_eq!(due_causes(store, 0).await, []);

    let second = resume_all().await;
    assert_eq!(second.resuming, first.resuming);
    store.set_resuming(&first, at(1)).await.unwrap();
    store.end_resuming(&first).await.unwrap();
    assert_eq!(due_causes(store, 0).await, slice::from_ref(&second));
    store.end_resuming(&second).await.unwrap();
    assert_eq!(due_causes(store, 0).await, []);
}
