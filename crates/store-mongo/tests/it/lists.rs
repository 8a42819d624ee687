//! What a page of a list shows, and what it tells of spans that are not for its client.

use bson::oid::ObjectId;
use bson::{Bson, Document, doc};
use sampler_domain::{Id, SpanState};
use sampler_store::{Reading, SpanQuery, TargetFilter};
use sampler_store_mongo::MongoStore;
use sampler_store_testing::support::at;

use crate::profile::{assert_cost, examined};
use crate::support::{beside_original, store_and_spans};

/// Spans that are compared for one page.
const WINDOW: i64 = 10_000;

fn query(name: &str, value: &str, change: impl FnOnce(&mut SpanQuery)) -> SpanQuery {
    let mut target = TargetFilter::default();
    assert!(target.set(name, Id::from_store(value)));
    let mut query = SpanQuery {
        target,
        limit: 100,
        ..SpanQuery::default()
    };
    change(&mut query);
    query
}

/// The ids of all pages of a list, and how many pages there are.
async fn ids(store: &MongoStore, mut query: SpanQuery) -> (Vec<String>, usize) {
    let (mut ids, mut pages) = (Vec::new(), 0);
    loop {
        let page = store.spans(&query).await.unwrap();
        ids.extend(page.spans.iter().map(|record| record.span.id.to_string()));
        pages += 1;
        query.after = page.next;
        if query.after.is_none() {
            return (ids, pages);
        }
    }
}

/// A span as the original keeps it: with doubles, and without a key.
fn of_original(id: impl Into<Bson>, start: f64) -> Document {
    let id: Bson = id.into();
    let last = doc! { "start": start, "end": start };
    doc! {
        "_id": id.clone(),
        "target": {
            "organization_id": "o", "space_id": "s", "consumer_id": "c", "resource_id": "r",
            "plan_id": "p", "resource_instance_id": "i", "correlation_id": id.to_string(),
        },
        "measured_usage": [], "start": start, "end": start + 1.0,
        "processing": { "complete": false, "version": 1, "last_interval": last },
    }
}

const NARROWINGS: [(&str, &str); 3] = [
    ("organization_id", "o"),
    ("resource_id", "r"),
    ("resource_instance_id", "i"),
];

#[tokio::test(flavor = "multi_thread")]
async fn spans_of_an_original_are_listed_whatever_their_ids_are_and_what_is_no_span_is_not() {
    let (store, spans) = beside_original("lists").await;
    let start = at(0).as_millis() as f64;
    let hexadecimal = "00112233445566778899aabb";
    let object_id = ObjectId::parse_str("ffffffffffffffffffffffff").unwrap();
    let mut unreadable = of_original("unreadable", start - 1.0);
    unreadable.remove("measured_usage");
    let somebody_elses = of_original(7, start - 2.0);
    let odd_start = doc! { "start": "soon" };
    let mut odd = of_original("odd", start - 3.0);
    odd.extend(odd_start);
    spans
        .insert_many([
            of_original("text", start),
            of_original(hexadecimal, start),
            of_original(object_id, start),
            of_original("older", start - 4.0),
            unreadable,
            somebody_elses,
            odd,
        ])
        .await
        .unwrap();
    let object_id = object_id.to_hex();
    let expected = [object_id.as_str(), "text", hexadecimal, "older"];
    for (name, value) in NARROWINGS {
        for limit in [1, 2, 3, 100] {
            let query = query(name, value, |query| query.limit = limit);
            let (listed, _) = ids(&store, query).await;
            // Those that have one start are in an order of the store's own.
            assert_eq!(listed, expected, "{name}, {limit}");
        }
    }
    for id in expected {
        let found = store.span(id, None).await.unwrap();
        assert_eq!(
            found.map(|record| record.span.id.to_string()).as_deref(),
            Some(id)
        );
    }
    assert!(store.span("unreadable", None).await.is_err());
    // Where it is not to be seen, it is not there.
    let (own, other) = ([Id::from_store("r")], [Id::from_store("other")]);
    assert!(store.span("unreadable", Some(&own)).await.is_err());
    assert_eq!(store.span("unreadable", Some(&other)).await.unwrap(), None);
    assert_eq!(store.span("text", Some(&other)).await.unwrap(), None);
    assert!(store.span("text", Some(&own)).await.unwrap().is_some());
    assert_eq!(store.span("7", None).await.unwrap(), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_large_spans_is_short() {
    let (store, spans) = store_and_spans("large").await;
    let large = |number: i32| {
        let mut span = of_original(number.to_string(), f64::from(number));
        let text = "x".repeat(500_000);
        span.insert(
            "measured_usage",
            [doc! { "measure": "m", "quantity": text }],
        );
        span.insert(
            "processing",
            doc! {
                "complete": false, "version": 1, "partition": 7,
                "last_interval": { "start": 0, "end": 0 },
            },
        );
        span
    };
    spans.insert_many((0..30).map(large)).await.unwrap();
    for (name, value) in NARROWINGS {
        let (listed, pages) = ids(&store, query(name, value, |query| query.limit = 1_000)).await;
        let expected: Vec<String> = (0..30).rev().map(|number| number.to_string()).collect();
        assert_eq!((listed, pages), (expected, 4), "{name}");
    }
}

/// What a client may read is found by its resources: no position, and no number of pages, tells of the
/// others.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_told_of_spans_of_other_resources() {
    let (store, spans) = beside_original("others").await;
    let start = at(0).as_millis() as f64;
    let of = |number: i64| {
        let mut id = [7; 12];
        id[4..].copy_from_slice(&number.to_be_bytes());
        // Two of each three have the same start, and ids of different types.
        let id = match number % 3 {
            0 => Bson::from(format!("{number:07}")),
            _ => ObjectId::from_bytes(id).into(),
        };
        let mut span = of_original(id, start + (number / 3) as f64);
        let resource = if number % 5_000 == 1 {
            "mine"
        } else {
            "theirs"
        };
        let target = span.get_document_mut("target").unwrap();
        target.insert("resource_id", resource);
        target.insert("resource_instance_id", number.to_string());
        span
    };
    // More than a window, mine in between.
    let last = WINDOW + WINDOW / 4;
    spans.insert_many((1..=last).map(of)).await.unwrap();
    examined(&spans).await;
    for (state, mine) in [(None, 3), (Some(SpanState::Suspended), 0)] {
        let query = query("organization_id", "o", |query| {
            query.resources = Some(vec![Id::from_store("mine")]);
            query.state = state;
        });
        let page = store.spans(&query).await.unwrap();
        assert_eq!((page.spans.len(), page.next), (mine, None));
        // Nothing of the others is even looked at, so time tells nothing either.
        let commands = examined(&spans).await;
        assert!(!commands.is_empty());
        assert_cost(&commands, 4, 3);
    }
    let all = query("organization_id", "o", |query| query.limit = 1_000);
    let (expected, _) = ids(&store, all.clone()).await;
    assert_eq!(expected.len(), usize::try_from(last).unwrap());
    for limit in [7, 1_000] {
        let both = SpanQuery {
            resources: Some(["theirs", "mine"].map(Id::from_store).to_vec()),
            to: Some(at(100)),
            limit,
            ..all.clone()
        };
        let unlimited = SpanQuery {
            resources: None,
            ..both.clone()
        };
        let (listed, _) = ids(&store, both).await;
        assert!(listed.len() > 250);
        assert_eq!(listed, ids(&store, unlimited).await.0);
    }
}
