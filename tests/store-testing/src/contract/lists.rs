//! Lists of spans.

use sampler_store::{SpanQuery, TargetFilter};

use crate::support::{Changing, Shared, at, id, started, suspended};

pub async fn spans_of_which_something_is_excluded_are_found_alone_and_by_target(store: &Shared) {
    let store = &**store;
    started(store, "other", "other", 0).await;
    let mut skipped = Vec::new();
    for name in ["a", "b"] {
        let span = suspended(store, name, 0).await;
        let skip = span.to_skip(None, at(1)).expect("it is suspended");
        skipped.push(store.must_make(&span, skip).await);
    }
    let list = async |instance: Option<&str>| {
        let mut target = TargetFilter::default();
        if let Some(instance) = instance {
            target.set("resource_instance_id", id(instance));
        }
        let query = SpanQuery {
            target,
            excluded: true,
            limit: 10,
            ..SpanQuery::default()
        };
        let page = store.spans(&query).await.unwrap();
        let mut spans = page.spans;
        spans.sort_by_key(|span| span.id.clone());
        spans
    };
    assert_eq!(list(None).await, skipped);
    assert_eq!(list(Some("a")).await, skipped[..1]);
    assert_eq!(list(Some("other")).await, []);
    // All of it is sent again.
    let resend = skipped[0].to_resend(None, None, at(2));
    let resend = resend.expect("something is excluded");
    store.must_make(&skipped[0], resend).await;
    assert_eq!(list(None).await, skipped[1..]);
}
