//! What a page of a list shows, and what it tells of spans that are not for its client.

use bson::oid::ObjectId;
use bson::spec::BinarySubtype;
use bson::{Binary, Bson, Document, doc};
use sampler_domain::{Id, SpanState};
use sampler_store::{Reading, SpanQuery};
use sampler_store_mongo::MongoStore;
use sampler_store_testing::support::{at, id, span_query};

use crate::support::{assert_cost, examined, store_and_spans};

/// Spans that are compared for one page.
const WINDOW: i64 = 10_000;

const NARROWINGS: [(&str, &str); 3] = [
    ("organization_id", "o"),
    ("resource_id", "r"),
    ("resource_instance_id", "i"),
];

/// A list that is found by this condition, so many on a page.
fn query(condition: (&str, &str), limit: usize) -> SpanQuery {
    SpanQuery {
        limit,
        ..span_query(&[condition])
    }
}

/// The ids of all pages of a list, and how many pages there are.
async fn ids(store: &MongoStore, mut query: SpanQuery) -> (Vec<String>, usize) {
    let (mut ids, mut pages) = (Vec::new(), 0);
    loop {
        let page = store.spans(&query).await.unwrap();
        ids.extend(page.spans.iter().map(|span| span.id.to_string()));
        pages += 1;
        query.after = page.next;
        if query.after.is_none() {
            return (ids, pages);
        }
    }
}

/// A span of this id, in a document of ours.
fn span(id: impl Into<Bson>, start: i64) -> Document {
    let id: Bson = id.into();
    let start = at(start).as_millis();
    doc! {
        "_id": id.clone(),
        "target": {
            "organization_id": "o", "space_id": "s", "consumer_id": "c", "resource_id": "r",
            "plan_id": "p", "resource_instance_id": "i", "correlation_id": id.to_string(),
        },
        "measured_usage": [], "start": start, "end": start + 1,
        "processing": {
            "complete": false, "version": 1_i64, "partition": 7, "due_at": start,
            "last_interval": { "start": start, "end": start }, "planned_interval": Bson::Null,
            "last_change_at": start,
            "key": Binary { subtype: BinarySubtype::Generic, bytes: vec![7; 16] },
        },
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn spans_are_listed_whatever_their_ids_are() {
    let (store, spans) = store_and_spans("lists").await;
    let hexadecimal = "00112233445566778899aabb";
    let object_id = ObjectId::parse_str("ffffffffffffffffffffffff").unwrap();
    let mut odd = span("odd", -3);
    odd.insert("start", "soon");
    spans
        .insert_many([
            span("text", 0),
            span(hexadecimal, 0),
            span(object_id, 0),
            span("older", -4),
            span(7, -2),
            odd,
        ])
        .await
        .unwrap();
    let object_id = object_id.to_hex();
    let expected = [object_id.as_str(), "text", hexadecimal, "older"];
    for condition in NARROWINGS {
        for limit in [1, 2, 3, 100] {
            let (listed, _) = ids(&store, query(condition, limit)).await;
            // Those that have one start are in an order of the store's own.
            assert_eq!(listed, expected, "{condition:?}, {limit}");
        }
    }
    for id in expected {
        let found = store.span(id, None).await.unwrap();
        assert_eq!(found.map(|span| span.id.to_string()).as_deref(), Some(id));
    }
    // Where it is not to be seen, it is not there.
    let (own, other) = ([id("r")], [id("other")]);
    assert!(store.span("odd", Some(&own)).await.is_err());
    assert_eq!(store.span("odd", Some(&other)).await.unwrap(), None);
    assert_eq!(store.span("text", Some(&other)).await.unwrap(), None);
    assert!(store.span("text", Some(&own)).await.unwrap().is_some());
    assert_eq!(store.span("7", None).await.unwrap(), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_large_spans_is_short() {
    let (store, spans) = store_and_spans("large").await;
    let large = |number: i32| {
        let mut span = span(number.to_string(), number.into());
        let measure = doc! { "measure": "m", "quantity": "x".repeat(500_000) };
        span.insert("measured_usage", [measure]);
        span
    };
    spans.insert_many((0..30).map(large)).await.unwrap();
    let expected: Vec<String> = (0..30).rev().map(|number| number.to_string()).collect();
    for condition in NARROWINGS {
        let (listed, pages) = ids(&store, query(condition, 1_000)).await;
        assert_eq!((&listed, pages), (&expected, 4), "{condition:?}");
    }
}

/// What a client may read is found by its resources: no position, and no number of pages, tells of the
/// others.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_told_of_spans_of_other_resources() {
    let (store, spans) = store_and_spans("others").await;
    let of = |number: i64| {
        let mut id = [7; 12];
        id[4..].copy_from_slice(&number.to_be_bytes());
        // Two of each three have the same start, and ids of different types.
        let id = match number % 3 {
            0 => Bson::from(format!("{number:07}")),
            _ => ObjectId::from_bytes(id).into(),
        };
        let mut span = span(id, number / 3);
        let is_mine = number % 5_000 == 1;
        let target = span.get_document_mut("target").unwrap();
        target.insert("resource_id", if is_mine { "mine" } else { "theirs" });
        target.insert("resource_instance_id", number.to_string());
        span
    };
    // More than a window, mine in between.
    let last = WINDOW + WINDOW / 4;
    spans.insert_many((1..=last).map(of)).await.unwrap();
    examined(&spans).await;
    for (state, mine) in [(None, 3), (Some(SpanState::Suspended), 0)] {
        let query = SpanQuery {
            resources: Some(vec![id("mine")]),
            state,
            ..query(NARROWINGS[0], 100)
        };
        let page = store.spans(&query).await.unwrap();
        assert_eq!((page.spans.len(), page.next), (mine, None));
        // Nothing of the others is even looked at, so time tells nothing either.
        let commands = examined(&spans).await;
        assert!(!commands.is_empty());
        assert_cost(&commands, 4, 3);
    }
    let all = query(NARROWINGS[0], 1_000);
    let (expected, _) = ids(&store, all.clone()).await;
    assert_eq!(expected.len(), usize::try_from(last).unwrap());
    for limit in [7, 1_000] {
        let unlimited = SpanQuery {
            to: Some(at(100)),
            limit,
            ..all.clone()
        };
        let both = SpanQuery {
            resources: Some(["theirs", "mine"].map(Id::from_store).to_vec()),
            ..unlimited.clone()
        };
        let (listed, _) = ids(&store, both).await;
        assert!(listed.len() > 250);
        assert_eq!(listed, ids(&store, unlimited).await.0);
    }
}
