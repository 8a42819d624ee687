//! The list of causes.

use sampler_domain::{Cause, Next};
use sampler_store::{CauseQuery, SuspendedCause};

use sampler_store_testing::support::{
    Changing, Store, at, done, id, kept, last_refusal, must_plan, new_span, start_event, stop,
};

use crate::support::store_and_spans;

const HOUR: i64 = 3_600_000;

/// Suspends a span of this name and resource for this error.
async fn suspend(store: &dyn Store, name: &str, resource: &str, error: &str, millis: i64) {
    let mut event = start_event(Some(name), name, -HOUR);
    event.target.resource_id = id(resource);
    store.start(new_span(event)).await.unwrap();
    let span = kept(store, name).await;
    let span = must_plan(store, &span, 0).await;
    let span = done(store.failed(&span, last_refusal(error, millis)).await);
    let last_error = span.processing.last_error.as_ref();
    let cause = Cause::of(&span.target, last_error.expect("it was refused"));
    store
        .register(&cause, at(millis), at(millis + HOUR))
        .await
        .unwrap();
}

/// Completes a span.
async fn end(store: &dyn Store, name: &str) {
    stop(store, None, name, 0).await;
    let span = kept(store, name).await;
    done(
        store
            .executed(&span, Next::Complete, at(HOUR), at(HOUR))
            .await,
    );
}

/// The list of these resources, with so many of each and in all.
async fn listed(
    store: &dyn Store,
    resources: Option<&[&str]>,
    [of_each, limit]: [usize; 2],
) -> Vec<SuspendedCause> {
    let query = CauseQuery {
        resources: resources.map(|all| all.iter().map(|it| id(it)).collect()),
        of_each,
        limit,
    };
    store.causes(&query).await.unwrap()
}

/// All causes.
async fn all_causes(store: &dyn Store) -> Vec<SuspendedCause> {
    listed(store, None, [10, 10]).await
}

/// The errors of causes, their spans, and how many more there are.
fn shown(causes: &[SuspendedCause]) -> Vec<(&str, u64, u64)> {
    let shown = causes
        .iter()
        .map(|it| (it.kept.cause.error.as_str(), it.spans, it.more));
    shown.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_largest_cause_comes_first_and_no_resource_hides_another() {
    let (store, _) = store_and_spans("cause_list").await;
    let store = &store;
    for (name, error, millis) in [
        ("a1", "a", 1),
        ("b1", "b", 2),
        ("c1", "c", 3),
        ("d1", "d", 4),
        ("b2", "b", 5),
        ("d2", "d", 6),
        ("b3", "b", 7),
    ] {
        suspend(store, name, "resource", error, millis).await;
    }
    let all = all_causes(store).await;
    let expected = [("b", 3, 0), ("d", 2, 0), ("a", 1, 0), ("c", 1, 0)];
    assert_eq!(shown(&all), expected);
    // A resource with more causes than it may list shows the oldest, and says how many more there are.
    let folded = listed(store, None, [3, 10]).await;
    assert_eq!(shown(&folded), [("b", 3, 0), ("a", 1, 0), ("c", 1, 1)]);
    // It says so where nothing else is left of the last one that is shown.
    end(store, "c1").await;
    let folded = listed(store, None, [3, 10]).await;
    assert_eq!(shown(&folded), [("b", 3, 0), ("a", 1, 0), ("c", 0, 1)]);
    // Where there is no room for all, each resource has the same share, also one that came last.
    suspend(store, "e1", "other", "e", 9).await;
    for (limit, expected) in [
        (4, &[("b", 3, 0), ("a", 1, 0), ("e", 1, 0), ("c", 0, 1)][..]),
        (3, &[("b", 3, 2), ("a", 1, 0), ("e", 1, 0)]),
        (2, &[("a", 1, 3), ("e", 1, 0)]),
        (1, &[("a", 1, 3)]),
    ] {
        let cut = listed(store, None, [10, limit]).await;
        assert_eq!(shown(&cut), expected, "{limit}");
    }
    let other = listed(store, Some(&["other", "third"]), [10, 10]).await;
    assert_eq!(shown(&other), [("e", 1, 0)]);
    assert_eq!(listed(store, Some(&[]), [10, 10]).await, []);
}
