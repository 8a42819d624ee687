//! Lists of spans, and single ones.

use sampler_domain::{Id, Span, SpanState, Timestamp};
use sampler_store::{SpanPosition, SpanQuery, StartOutcome, StopOutcome};

use crate::support::{
    Changing, Shared, Store, at, complete, failed, finished, id, kept, must_stop, new_span,
    new_stop, next, refusal, span_query, start_event, started, suspended,
};

const HOUR: i64 = 3_600_000;

const O: (&str, &str) = ("organization_id", "o");
const R: (&str, &str) = ("resource_id", "r");
const ONE: (&str, &str) = ("resource_instance_id", "one");

/// Starts a span of these organization, resource and instance.
async fn start_of(store: &dyn Store, name: &str, target: [&str; 3], millis: i64) {
    let mut new = new_span(start_event(Some(name), target[2], millis));
    new.span.target.organization_id = id(target[0]);
    new.span.target.resource_id = id(target[1]);
    assert_eq!(store.start(new).await.unwrap(), StartOutcome::Opened);
}

async fn stop_of(store: &dyn Store, target: [&str; 3], millis: i64) {
    let mut new = new_stop(None, target[2], millis);
    new.event.target.organization_id = id(target[0]);
    new.event.target.resource_id = id(target[1]);
    assert_eq!(store.stop(new).await.unwrap(), StopOutcome::Ended);
}

fn in_state(conditions: &[(&str, &str)], state: SpanState) -> SpanQuery {
    SpanQuery {
        state: Some(state),
        ..span_query(conditions)
    }
}

/// Spans that run between these times.
fn between(conditions: &[(&str, &str)], from: Option<i64>, to: Option<i64>) -> SpanQuery {
    SpanQuery {
        from: from.map(at),
        to: to.map(at),
        ..span_query(conditions)
    }
}

fn of_resources(conditions: &[(&str, &str)], resources: &[&str]) -> SpanQuery {
    SpanQuery {
        resources: Some(resources.iter().map(|name| id(name)).collect()),
        ..span_query(conditions)
    }
}

/// The start ids of a page, and where the next one begins.
async fn page(store: &dyn Store, query: &SpanQuery) -> (Vec<String>, Option<SpanPosition>) {
    let page = store.spans(query).await.unwrap();
    let name = |id: Option<Id>| id.map_or_else(String::new, String::from);
    let spans = page.spans.into_iter();
    let names = spans.map(|span| name(span.start_id)).collect();
    (names, page.next)
}

/// The start ids of all pages.
async fn list(store: &dyn Store, query: &SpanQuery) -> Vec<String> {
    let (mut query, mut all) = (query.clone(), Vec::new());
    loop {
        let (names, next) = page(store, &query).await;
        assert!(names.len() <= query.limit);
        all.extend(names);
        query.after = next;
        if query.after.is_none() {
            return all;
        }
    }
}

pub async fn a_list_holds_what_its_query_asks_for(store: &Shared) {
    let store = &**store;
    // Out of the order of their starts.
    start_of(store, "b", ["o", "r", "two"], 20).await;
    start_of(store, "a", ["o", "r", "one"], 10).await;
    stop_of(store, ["o", "r", "one"], 30).await;
    start_of(store, "d", ["o", "s", "one"], 40).await;
    start_of(store, "c", ["p", "r", "one"], 30).await;
    stop_of(store, ["p", "r", "one"], 50).await;
    complete(store, "c", HOUR).await;
    start_of(store, "e", ["q", "r", "two"], 50).await;
    let span = kept(store, "e").await;
    let span = store.must_make(&span, next(&span, HOUR)).await;
    let refused = failed(&span, refusal("no mapping", HOUR));
    store.must_make(&span, refused).await;
    let q = ("organization_id", "q");
    let plan = ("plan_id", "plan");
    let consumer = ("consumer_id", "consumer");
    let whole = [
        O,
        ("space_id", "space"),
        consumer,
        ("resource_id", "s"),
        plan,
        ONE,
    ];
    let before_all = SpanQuery {
        to: Some(Timestamp::MIN),
        ..span_query(&[O])
    };
    let cases: [(SpanQuery, &[&str]); 22] = [
        (span_query(&[O]), &["d", "b", "a"]),
        (span_query(&[R]), &["e", "c", "b", "a"]),
        (span_query(&[ONE]), &["d", "c", "a"]),
        (span_query(&[ONE, O]), &["d", "a"]),
        (span_query(&[O, R]), &["b", "a"]),
        (span_query(&[O, ("space_id", "other")]), &[]),
        (span_query(&[O, plan, consumer]), &["d", "b", "a"]),
        (span_query(&whole), &["d"]),
        (span_query(&[("organization_id", "nobody")]), &[]),
        (in_state(&[O], SpanState::Open), &["d", "b"]),
        (in_state(&[O], SpanState::Stopped), &["a"]),
        (in_state(&[ONE], SpanState::Complete), &["c"]),
        (in_state(&[ONE], SpanState::Suspended), &[]),
        (in_state(&[], SpanState::Suspended), &["e"]),
        (in_state(&[R], SpanState::Suspended), &["e"]),
        (in_state(&[q], SpanState::Open), &[]),
        (of_resources(&[O], &["s", "t"]), &["d"]),
        (of_resources(&[ONE], &[]), &[]),
        (between(&[O], Some(30), None), &["d", "b"]),
        (between(&[O], None, Some(40)), &["b", "a"]),
        (between(&[ONE], Some(29), Some(31)), &["c", "a"]),
        (before_all, &[]),
    ];
    for (query, expected) in cases {
        for limit in [1, 2, 100] {
            let query = SpanQuery {
                limit,
                ..query.clone()
            };
            assert_eq!(list(store, &query).await, expected, "{query:?}");
        }
    }
}

/// Spans that are there all the while are on exactly one page, whatever becomes of the others.
pub async fn a_list_goes_on_while_spans_come_change_and_go(store: &Shared) {
    let store = &**store;
    let start = async |name: &str, millis| start_of(store, name, ["o", "r", name], millis).await;
    start("a", 10).await;
    // Some have the same start.
    for name in ["b", "c", "d", "e"] {
        start(name, 20).await;
    }
    start("f", 30).await;
    let mut query = span_query(&[O]);
    query.limit = 2;
    let (first, next) = page(store, &query).await;
    // The one that the page ended with is completed and removed; a shown and an unshown one are
    // stopped; one comes in front, and one behind.
    let last = first[1].as_str();
    for name in ["a", "f", last] {
        stop_of(store, ["o", "r", name], 40).await;
    }
    let last = complete(store, last, HOUR).await;
    assert_eq!(store.remove(&[finished(&last)]).await.ok(), Some(1));
    start("new", 50).await;
    start("old", 5).await;
    query.after = next;
    let mut rest = list(store, &query).await;
    assert_eq!(rest.split_off(rest.len() - 2), ["a", "old"]);
    let mut all = [first[1..].to_vec(), rest].concat();
    all.sort();
    assert_eq!(all, ["b", "c", "d", "e"]);
}

pub async fn a_span_is_found_by_how_its_id_is_written(store: &Shared) {
    let store = &**store;
    let span = started(store, "a", "i", 10).await;
    let written = span.id.to_string();
    let found = async |id: &str| store.span(id, None).await.unwrap();
    assert_eq!(found(&written).await, Some(span));
    must_stop(store, None, "i", 20).await;
    let listed = found(&written).await.expect("it is kept");
    assert_eq!(listed.end, Some(at(20)));
    let other = if written.ends_with('0') { "1" } else { "0" };
    let other = format!("{}{other}", &written[..23]);
    let upper = written.to_uppercase();
    for unknown in ["", "a", "$a", "\u{0}", &written[..22], &other, &upper] {
        // Of digits alone there is but one form.
        if unknown != written {
            assert_eq!(found(unknown).await, None, "{unknown:?}");
        }
    }
}

pub async fn the_spans_that_were_kept_last_come_first(store: &Shared) {
    let store = &**store;
    for (name, millis) in [("a", 3_000), ("b", 1_000), ("c", 2_000)] {
        start_of(store, name, ["o", "r", name], millis).await;
    }
    let newest = store.newest_spans(2).await.unwrap();
    let mut all = store.spans(&span_query(&[O])).await.unwrap().spans;
    all.sort_by_key(|span| std::cmp::Reverse(span.id.clone()));
    assert_eq!(newest, all[..2]);
}

pub async fn spans_of_which_something_is_excluded_are_found_alone_and_by_target(store: &Shared) {
    let store = &**store;
    started(store, "other", "other", 0).await;
    let mut skipped = Vec::new();
    for name in ["a", "b"] {
        let span = suspended(store, name, 0).await;
        let skip = span.to_skip(None, at(1)).expect("it is suspended");
        skipped.push(store.must_make(&span, skip).await);
    }
    let list = async |conditions: &[(&str, &str)]| -> Vec<Span> {
        let query = SpanQuery {
            excluded: true,
            ..span_query(conditions)
        };
        let mut spans = store.spans(&query).await.unwrap().spans;
        spans.sort_by_key(|span| span.id.clone());
        spans
    };
    assert_eq!(list(&[]).await, skipped);
    assert_eq!(list(&[("resource_instance_id", "a")]).await, skipped[..1]);
    assert_eq!(list(&[("resource_instance_id", "other")]).await, []);
    // All of it is sent again.
    let resend = skipped[0].to_resend(None, None, at(2));
    let resend = resend.expect("something is excluded");
    store.must_make(&skipped[0], resend).await;
    assert_eq!(list(&[]).await, skipped[1..]);
}
