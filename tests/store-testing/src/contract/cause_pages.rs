//! Pages of causes.

use std::collections::BTreeSet;

use sampler_domain::{Cause, Next, Timestamp};
use sampler_store::{CausePage, CausePosition, CauseQuery, SuspendedCause};

use crate::support::{
    Changing, Shared, Store, at, done, kept, last_refusal, plan_to, started, stop,
};

const HOUR: i64 = 3_600_000;

/// Suspends a span of this name for this error.
async fn suspend(store: &dyn Store, name: &str, error: &str, millis: i64) {
    let span = started(store, name, name, -HOUR).await;
    let span = done(store.plan(&span, plan_to(&span, 0), at(0), at(0)).await);
    let span = done(store.failed(&span, last_refusal(error, millis)).await);
    let told = span.processing.last_error.as_ref();
    let cause = Cause::of(&span.target, told.expect("it was refused"));
    let registered = store.register(&cause, at(millis), at(millis + HOUR)).await;
    registered.expect("the store answers");
}

/// Lets a span go on, and be complete.
async fn end(store: &dyn Store, name: &str) {
    stop(store, None, name, 0).await;
    let span = kept(store, name).await;
    done(
        store
            .executed(&span, Next::Complete, at(HOUR), at(HOUR))
            .await,
    );
}

async fn page(
    store: &dyn Store,
    after: Option<CausePosition>,
    [block, limit]: [usize; 2],
) -> CausePage {
    let query = CauseQuery {
        resources: None,
        fold: None,
        after,
        block,
        limit,
    };
    let page = store.causes(&query).await.expect("the store answers");
    assert!(page.causes.len() <= limit);
    page
}

/// All causes, by pages of this length.
pub(crate) async fn all_causes(store: &dyn Store, limit: usize) -> Vec<SuspendedCause> {
    in_blocks(store, [100, limit]).await
}

async fn in_blocks(store: &dyn Store, sizes: [usize; 2]) -> Vec<SuspendedCause> {
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        let page = page(store, after, sizes).await;
        all.extend(page.causes);
        after = page.next;
        if after.is_none() {
            return all;
        }
    }
}

fn errors(causes: &[SuspendedCause]) -> Vec<&str> {
    let errors = causes.iter().map(|cause| cause.kept.cause.error.as_str());
    errors.collect()
}

/// Causes of one, three, one and two spans, in the order in which they came.
async fn four_causes(store: &dyn Store) {
    for (name, error, millis) in [
        ("a1", "a", 1),
        ("b1", "b", 2),
        ("c1", "c", 3),
        ("d1", "d", 4),
        ("b2", "b", 5),
        ("d2", "d", 6),
        ("b3", "b", 7),
    ] {
        suspend(store, name, error, millis).await;
    }
}

pub async fn causes_come_page_by_page_the_largest_first(store: &Shared) {
    let store = &**store;
    four_causes(store).await;
    for limit in 1..=5 {
        let all = all_causes(store, limit).await;
        assert_eq!(errors(&all), ["b", "d", "a", "c"], "{limit} on a page");
        let spans: Vec<u64> = all.iter().map(|cause| cause.spans).collect();
        assert_eq!(spans, [3, 2, 1, 1]);
    }
    assert_eq!(page(store, None, [4, 4]).await.next, None, "all is shown");
    // Of each block the largest comes first, and those that have been there longest are the first block.
    for limit in 1..=3 {
        assert_eq!(
            errors(&in_blocks(store, [2, limit]).await),
            ["b", "a", "d", "c"]
        );
        assert_eq!(
            errors(&in_blocks(store, [3, limit]).await),
            ["b", "a", "c", "d"]
        );
    }
    // A resource with more causes than it may list shows the oldest, and says how many more there are.
    let folding = CauseQuery {
        resources: None,
        fold: Some(3),
        limit: 10,
        block: 10,
        after: None,
    };
    let folded = store.causes(&folding).await.expect("the store answers");
    let more = folded.causes.iter().map(|cause| cause.more);
    assert_eq!(errors(&folded.causes), ["b", "a", "c"]);
    assert_eq!(more.collect::<Vec<_>>(), [0, 0, 1]);
    assert_eq!(folded.next, None);
    // It says so where nothing else is left of the last one that is shown.
    end(store, "c1").await;
    let folded = store.causes(&folding).await.expect("the store answers");
    let shown = folded.causes.iter().map(|cause| (cause.spans, cause.more));
    assert_eq!(errors(&folded.causes), ["b", "a", "c"]);
    assert_eq!(shown.collect::<Vec<_>>(), [(3, 0), (1, 0), (0, 1)]);
    let of_other = CauseQuery {
        resources: Some(Vec::new()),
        fold: None,
        limit: 10,
        block: 10,
        after: None,
    };
    let none = store.causes(&of_other).await;
    assert_eq!(none.expect("the store answers"), CausePage::default());
}

pub async fn pages_of_causes_go_on_while_causes_grow_shrink_come_and_go(store: &Shared) {
    let store = &**store;
    for block in [2, 3, 100] {
        let sizes = [block, 1];
        four_causes_of(store, block).await;
        let first = page(store, None, sizes).await;
        let name = |error: &str| format!("{error}{block}");
        assert_eq!(errors(&first.causes), [name("b")]);
        // What was shown shrinks; what was not shown grows beyond it; one comes, dated as the first.
        for span in ["b2", "b3"] {
            end(store, &format!("{span} of {block}")).await;
        }
        for number in 4..9 {
            suspend_of(store, block, &format!("a{number}"), "a", 9).await;
        }
        suspend_of(store, block, "e1", "e", -9).await;
        let (mut shown, mut after) = (Vec::new(), first.next);
        while let Some(position) = after {
            let page = page(store, Some(position), sizes).await;
            shown.extend(page.causes);
            after = page.next;
        }
        let mut counts = errors(&shown);
        counts.retain(|error| *error != name("e"));
        let once: BTreeSet<&str> = counts.iter().copied().collect();
        let expected = ["a", "c", "d"].map(name);
        assert_eq!(once, expected.iter().map(String::as_str).collect());
        assert_eq!(counts.len(), 3, "each is shown once: {counts:?}");
        remove_all(store).await;
    }
}

async fn four_causes_of(store: &dyn Store, block: usize) {
    for (name, error, millis) in [
        ("a1", "a", 1),
        ("b1", "b", 2),
        ("c1", "c", 3),
        ("d1", "d", 4),
        ("b2", "b", 5),
        ("b3", "b", 7),
    ] {
        suspend_of(store, block, name, error, millis).await;
    }
}

async fn suspend_of(store: &dyn Store, block: usize, name: &str, error: &str, millis: i64) {
    let (name, error) = (format!("{name} of {block}"), format!("{error}{block}"));
    suspend(store, &name, &error, millis).await;
}

/// Lets all spans of all causes go on, and removes the causes.
async fn remove_all(store: &dyn Store) {
    for cause in all_causes(store, 100).await {
        let resumption = sampler_store::Resumption {
            now: Timestamp::MAX,
            refusals: 0,
        };
        let resumed = store.resume_batch(cause.kept.id, Timestamp::MAX, resumption, 100);
        resumed.await.expect("the store answers");
        let removed = store.remove_cause(&cause.kept).await;
        assert!(removed.expect("the store answers"));
    }
}
