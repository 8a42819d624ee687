//! Lists of spans, and single ones.

use sampler_domain::{Id, Span, SpanState, Timestamp};
use sampler_store::{
    Reading, SpanPosition, SpanQuery, StartOutcome, StopOutcome, TargetFilter, Work,
};

use sampler_store_testing::support::{
    Changing, Store, at, failed, finished, id, kept, must_stop, new_span, new_stop, next, recorded,
    refusal, start_event, started,
};

use crate::support::store_and_spans;

const HOUR: i64 = 3_600_000;

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

fn query(conditions: &[(&str, &str)]) -> SpanQuery {
    let mut target = TargetFilter::default();
    for (name, value) in conditions {
        assert!(target.set(name, id(value)), "{name}");
    }
    SpanQuery {
        target,
        limit: 100,
        ..SpanQuery::default()
    }
}

async fn suspended(store: &dyn Store, span: &Span) {
    let planned = store.must_make(span, next(span, HOUR)).await;
    let refused = failed(&planned, refusal("no mapping", HOUR));
    store.must_make(&planned, refused).await;
}

/// Samples a span that was stopped to its end.
async fn complete(store: &dyn Store, name: &str) -> Span {
    let mut span = kept(store, name).await;
    while !span.processing.complete {
        let change = match span.processing.planned {
            Some(_) => recorded(&span, HOUR),
            None => next(&span, HOUR),
        };
        span = store.must_make(&span, change).await;
    }
    span
}

fn in_state(conditions: &[(&str, &str)], state: SpanState) -> SpanQuery {
    let mut query = query(conditions);
    query.state = Some(state);
    query
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

#[tokio::test(flavor = "multi_thread")]
async fn a_list_holds_what_its_query_asks_for() {
    let (store, _) = store_and_spans("queries").await;
    let store = &store;
    // Out of the order of their starts.
    start_of(store, "b", ["o", "r", "two"], 20).await;
    start_of(store, "a", ["o", "r", "one"], 10).await;
    stop_of(store, ["o", "r", "one"], 30).await;
    start_of(store, "d", ["o", "s", "one"], 40).await;
    start_of(store, "c", ["p", "r", "one"], 30).await;
    stop_of(store, ["p", "r", "one"], 50).await;
    complete(store, "c").await;
    start_of(store, "e", ["q", "r", "two"], 50).await;
    suspended(store, &kept(store, "e").await).await;
    let with = |conditions: &[(&str, &str)], change: fn(&mut SpanQuery)| {
        let mut query = query(conditions);
        change(&mut query);
        query
    };
    let o = ("organization_id", "o");
    let one = ("resource_instance_id", "one");
    let whole: Vec<(&str, &str)> = vec![
        o,
        ("space_id", "space"),
        ("consumer_id", "consumer"),
        ("resource_id", "s"),
        ("plan_id", "plan"),
        one,
    ];
    let cases: [(SpanQuery, &[&str]); 22] = [
        (query(&[o]), &["d", "b", "a"]),
        (query(&[("resource_id", "r")]), &["e", "c", "b", "a"]),
        (query(&[one]), &["d", "c", "a"]),
        (query(&[one, o]), &["d", "a"]),
        (query(&[o, ("resource_id", "r")]), &["b", "a"]),
        (query(&[o, ("space_id", "other")]), &[]),
        (
            query(&[o, ("plan_id", "plan"), ("consumer_id", "consumer")]),
            &["d", "b", "a"],
        ),
        (query(&whole), &["d"]),
        (query(&[("organization_id", "nobody")]), &[]),
        (in_state(&[o], SpanState::Open), &["d", "b"]),
        (in_state(&[o], SpanState::Stopped), &["a"]),
        (in_state(&[one], SpanState::Complete), &["c"]),
        (in_state(&[one], SpanState::Suspended), &[]),
        (in_state(&[], SpanState::Suspended), &["e"]),
        (
            in_state(&[("resource_id", "r")], SpanState::Suspended),
            &["e"],
        ),
        (in_state(&[("organization_id", "q")], SpanState::Open), &[]),
        (
            with(&[o], |query| query.resources = Some(vec![id("s"), id("t")])),
            &["d"],
        ),
        (
            with(&[one], |query| query.resources = Some(Vec::new())),
            &[],
        ),
        (with(&[o], |query| query.from = Some(at(30))), &["d", "b"]),
        (with(&[o], |query| query.to = Some(at(40))), &["b", "a"]),
        (
            with(&[one], |query| {
                (query.from, query.to) = (Some(at(29)), Some(at(31)));
            }),
            &["c", "a"],
        ),
        (with(&[o], |query| query.to = Some(Timestamp::MIN)), &[]),
    ];
    for (query, expected) in cases {
        assert_eq!(list(store, &query).await, expected, "{query:?}");
        for limit in 1..=2 {
            let query = SpanQuery {
                limit,
                ..query.clone()
            };
            assert_eq!(list(store, &query).await, expected, "{query:?}");
        }
    }
}

/// Spans that are there all the while are on exactly one page, whatever becomes of the others.
#[tokio::test(flavor = "multi_thread")]
async fn a_list_goes_on_while_spans_come_change_and_go() {
    let (store, _) = store_and_spans("queries").await;
    let store = &store;
    let start = async |name: &str, millis| start_of(store, name, ["o", "r", name], millis).await;
    // Some have the same start.
    for (name, millis) in [
        ("a", 10),
        ("b", 20),
        ("c", 20),
        ("d", 20),
        ("e", 20),
        ("f", 30),
    ] {
        start(name, millis).await;
    }
    let mut query = query(&[("organization_id", "o")]);
    query.limit = 2;
    let (first, next) = page(store, &query).await;
    // The one that the page ended with is completed and removed; a shown and an unshown one are
    // stopped; one comes in front, and one behind.
    let last = first[1].as_str();
    for name in ["a", "f", last] {
        stop_of(store, ["o", "r", name], 40).await;
    }
    let last = complete(store, last).await;
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

#[tokio::test(flavor = "multi_thread")]
async fn a_span_is_found_by_how_its_id_is_written() {
    let (store, _) = store_and_spans("queries").await;
    let store = &store;
    let span = started(store, "a", "i", 10).await;
    let written = span.id.to_string();
    let found = async |id: &str| store.span(id, None).await.unwrap();
    assert_eq!(found(&written).await, Some(span));
    must_stop(store, None, "i", 20).await;
    let listed = found(&written).await.expect("it is kept");
    assert_eq!(listed.end, Some(at(20)));
    let other = if written.ends_with('0') { "1" } else { "0" };
    let other = format!("{}{other}", &written[..23]);
    for unknown in [
        "",
        "a",
        "$a",
        "\u{0}",
        &written[..22],
        &other,
        &written.to_uppercase(),
    ] {
        // Of digits alone there is but one form.
        if unknown != written {
            assert_eq!(found(unknown).await, None, "{unknown:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_spans_that_were_kept_last_come_first() {
    let (store, _) = store_and_spans("queries").await;
    let store = &store;
    for (name, millis) in [("a", 3_000), ("b", 1_000), ("c", 2_000)] {
        start_of(store, name, ["o", "r", name], millis).await;
    }
    let newest = store.newest_spans(2).await.unwrap();
    let all = store.spans(&query(&[("organization_id", "o")])).await;
    let mut all = all.unwrap().spans;
    all.sort_by_key(|span| std::cmp::Reverse(span.id.clone()));
    assert_eq!(newest, all[..2]);
}
