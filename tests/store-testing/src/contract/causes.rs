//! Spans that are suspended for a cause, and how they go on.

use std::slice;

use sampler_domain::{Cause, CauseId, SUSPENDED_DUE_AT, Span};
use sampler_store::{CauseQuery, Resumption, SuspendedCause};

use crate::support::{
    Changing, Shared, Store, at, due, failed, id, kept, must_stop, new_span, next, refusal,
    start_event, suspended,
};

const HOUR: i64 = 3_600_000;
const CENTURY: i64 = 100 * 365 * 24 * HOUR;

/// What is resumed `millis` after the present, when two refusals count already.
fn resumption(millis: i64) -> Resumption {
    Resumption {
        now: at(millis),
        refusals: 2,
    }
}

fn cause_of(span: &Span) -> CauseId {
    span.suspension().expect("it is suspended").cause
}

async fn probe(store: &dyn Store, cause: CauseId, millis: i64) -> bool {
    store.probe(cause, resumption(millis)).await.unwrap()
}

async fn suspended_causes(store: &dyn Store) -> Vec<CauseId> {
    let mut causes = store.suspended_causes(10).await.unwrap();
    causes.sort();
    causes
}

/// A span of this resource that is suspended since `millis` after the present, for this error.
async fn suspended_of(store: &dyn Store, resource: &str, error: &str, millis: i64) -> Cause {
    let mut event = start_event(None, &format!("{resource} {error} {millis}"), -HOUR);
    event.target.resource_id = id(resource);
    let new = new_span(event);
    store.start(new.clone()).await.unwrap();
    let span = store.must_make(&new.span, next(&new.span, 0)).await;
    let refused = failed(&span, refusal(error, millis));
    store.must_make(&span, refused).await;
    Cause::of(&span.target, Some(400), error)
}

pub async fn a_suspended_span_is_never_due(store: &Shared) {
    let store = &**store;
    let span = suspended(store, "a", 0).await;
    assert_eq!(kept(store, "a").await, span);
    assert_eq!(due(store, CENTURY).await, [""; 0]);
}

pub async fn a_stop_of_a_suspended_span_resumes_nothing(store: &Shared) {
    let store = &**store;
    let cause = cause_of(&suspended(store, "a", 0).await);
    must_stop(store, None, "a", HOUR).await;
    assert_eq!(due(store, HOUR).await, ["a"]);
    let span = kept(store, "a").await;
    assert_eq!(cause_of(&span), cause);
    let put_away = next(&span, HOUR);
    assert_eq!(put_away.after.processing.due_at, SUSPENDED_DUE_AT);
    store.must_make(&span, put_away).await;
    assert_eq!(due(store, CENTURY).await, [""; 0]);
}

pub async fn the_span_that_is_suspended_for_longest_is_probed(store: &Shared) {
    let store = &**store;
    let later = suspended(store, "later", 2).await;
    let first = suspended(store, "first", 1).await;
    let cause = cause_of(&first);
    assert_eq!(cause_of(&later), cause);
    assert!(probe(store, cause, HOUR).await);
    let probed = kept(store, "first").await;
    assert_eq!(probed, first.resumed(2, true, at(HOUR)));
    assert_eq!(due(store, HOUR).await, ["first"]);
    // One that is refused again waits behind the others.
    let refused = failed(&probed, refusal("no mapping", 3));
    store.must_make(&probed, refused).await;
    assert!(probe(store, cause, HOUR).await);
    assert_eq!(due(store, HOUR).await, ["later"]);
    assert!(probe(store, cause, HOUR).await);
    assert!(!probe(store, cause, HOUR).await);
}

pub async fn what_was_decided_before_a_probe_is_rejected(store: &Shared) {
    let store = &**store;
    let read = suspended(store, "a", 0).await;
    let skip = read.to_skip(None, at(1)).expect("it is suspended");
    assert!(probe(store, cause_of(&read), 1).await);
    assert_eq!(store.make(&read, skip).await.unwrap(), None);
}

pub async fn spans_of_a_cause_resume_in_batches(store: &Shared) {
    let store = &**store;
    let mut spans = Vec::new();
    for number in 0..5 {
        spans.push(suspended(store, &number.to_string(), number).await);
    }
    let cause = cause_of(&spans[0]);
    let resume = async |limit| {
        let batch = store.resume_batch(cause, at(3), resumption(HOUR), limit);
        batch.await.unwrap()
    };
    assert_eq!(resume(3).await, 3);
    assert_eq!(resume(3).await, 1);
    assert_eq!(resume(3).await, 0, "one was suspended later");
    // They fall due together, in no order.
    let mut resumed = due(store, HOUR).await;
    resumed.sort();
    assert_eq!(resumed, ["0", "1", "2", "3"]);
    let third = kept(store, "3").await;
    assert_eq!(third, spans[3].resumed(2, false, at(HOUR)));
    assert_eq!(kept(store, "4").await, spans[4]);
}

pub async fn a_span_of_another_cause_stays_suspended(store: &Shared) {
    let store = &**store;
    let other = suspended(store, "a", 0).await;
    let cause = suspended_of(store, "resource", "too large", 0).await.id();
    assert!(probe(store, cause, 1).await);
    let batch = store.resume_batch(cause, at(1), resumption(1), 10);
    assert_eq!(batch.await.unwrap(), 0);
    assert_eq!(kept(store, "a").await, other);
}

pub async fn a_cause_is_there_as_long_as_a_span_is_suspended_for_it(store: &Shared) {
    let store = &**store;
    assert_eq!(suspended_causes(store).await, []);
    let span = suspended(store, "a", 0).await;
    suspended(store, "b", 0).await;
    let mut causes = vec![
        cause_of(&span),
        suspended_of(store, "resource", "too large", 0).await.id(),
    ];
    causes.sort();
    assert_eq!(suspended_causes(store).await, causes);
    assert_eq!(store.suspended_causes(1).await.unwrap().len(), 1);
    for cause in causes {
        let batch = store.resume_batch(cause, at(0), resumption(1), 10);
        batch.await.unwrap();
        assert_eq!(store.cause(cause).await.unwrap(), None);
    }
    assert_eq!(suspended_causes(store).await, []);
    let query = CauseQuery {
        resources: None,
        limit: 9,
    };
    assert_eq!(store.causes(&query).await.unwrap(), []);
}

pub async fn causes_are_listed_with_those_that_have_the_most_spans_first(store: &Shared) {
    let store = &**store;
    let few = suspended_of(store, "r", "few", 7).await;
    let mut many = Vec::new();
    for millis in [9, 5, 8] {
        many.push(suspended_of(store, "s", "many", millis).await);
    }
    let [few, many] = [(few, 7, 1), (many.remove(0), 5, 3)].map(|(cause, since, spans)| {
        let (id, since) = (cause.id(), at(since));
        SuspendedCause {
            id,
            cause,
            since,
            spans,
        }
    });
    let list = async |resources: Option<&str>, limit| {
        let resources = resources.map(|name| vec![id(name)]);
        let query = CauseQuery { resources, limit };
        store.causes(&query).await.unwrap()
    };
    assert_eq!(list(None, 10).await, [many.clone(), few.clone()]);
    assert_eq!(list(None, 1).await, slice::from_ref(&many));
    // However many spans other resources have.
    assert_eq!(list(Some("r"), 1).await, slice::from_ref(&few));
    assert_eq!(list(Some("t"), 10).await, []);
    for cause in [few, many] {
        assert_eq!(store.cause(cause.id).await.unwrap(), Some(cause));
    }
}
