//! What a page of a list costs: what it shows, or a window of the index at the most.

use std::time::Instant;

use bson::oid::ObjectId;
use bson::{Bson, Document, doc};
use mongodb::Collection;
use sampler_domain::{Id, SpanState};
use sampler_store::{Reading, SpanPage, SpanPosition, SpanQuery, TargetFilter};
use sampler_store_mongo::MongoStore;
use sampler_store_testing::support::at;

use crate::explain::examined;
use crate::support::{beside_original, store_and_spans};

/// Spans that are compared for one page.
const WINDOW: i64 = 10_000;

/// Documents that are read behind the end of a window, in case the first is no span.
const PASSED_OVER: i64 = 11;

/// What the server's profiler saw of one command.
struct Cost {
    plan: String,
    keys: i64,
    documents: i64,
    sorts: bool,
}

/// The commands on the collection since the last call.
async fn costs(spans: &Collection<Document>) -> Vec<Cost> {
    let database = spans.client().database(&spans.namespace().db);
    database.run_command(doc! { "profile": 0 }).await.unwrap();
    let profile = database.collection::<Document>("system.profile");
    let filter = doc! { "ns": spans.namespace().to_string() };
    let mut cursor = profile.find(filter).sort(doc! { "ts": 1 }).await.unwrap();
    let mut costs = Vec::new();
    while cursor.advance().await.unwrap() {
        let entry = cursor.deserialize_current().unwrap();
        let number = |name: &str| {
            let number = entry.get_i32(name).map(i64::from);
            number.or_else(|_| entry.get_i64(name)).unwrap_or(0)
        };
        costs.push(Cost {
            plan: entry.get_str("planSummary").unwrap_or_default().to_owned(),
            keys: number("keysExamined"),
            documents: number("docsExamined"),
            sorts: entry.get_bool("hasSortStage").unwrap_or(false),
        });
    }
    profile.drop().await.unwrap();
    database.run_command(doc! { "profile": 2 }).await.unwrap();
    costs
}

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

/// Two pages of each kind of list, of a million spans that are all of one organization and resource:
/// none reads more than what it shows, or a window of the index where little matches.
pub(crate) async fn pages_cost_what_they_show(store: &MongoStore, spans: &Collection<Document>) {
    let nobody = |query: &mut SpanQuery| {
        query.target.set("plan_id", Id::from_store("nobody"));
    };
    let lists = [
        (
            "plain",
            query("organization_id", "organization", |_| {}),
            100,
        ),
        ("resource", query("resource_id", "resource", |_| {}), 100),
        (
            "to",
            query("resource_id", "resource", |query| query.to = Some(at(500))),
            100,
        ),
        (
            "open",
            query("organization_id", "organization", |query| {
                query.state = Some(SpanState::Open);
            }),
            100,
        ),
        (
            "from",
            query("resource_id", "resource", |query| {
                query.from = Some(at(-500));
            }),
            100,
        ),
        (
            "nobody",
            query("organization_id", "organization", nobody),
            0,
        ),
        (
            "both",
            query("organization_id", "organization", |query| {
                query.target.set("resource_id", Id::from_store("resource"));
            }),
            100,
        ),
        (
            "instance",
            query("resource_instance_id", "1000007", |_| {}),
            1,
        ),
    ];
    costs(spans).await;
    for (name, mut query, shown) in lists {
        let mut before: Option<SpanPosition> = None;
        for _ in 0..2 {
            let began = Instant::now();
            let SpanPage { spans: page, next } = store.spans(&query).await.unwrap();
            println!("{name}: {:?}", began.elapsed());
            assert_eq!(page.len(), shown, "{name}");
            look_at(name, &costs(spans).await);
            if name == "instance" {
                assert_eq!(next, None);
                break;
            }
            // It goes on for as long as there may be more, though nothing matched.
            assert!(next.is_some(), "{name}");
            assert!(before.is_none() || next < before, "{name}");
            before.clone_from(&next);
            query.after = next;
        }
    }
    let found = store.span("1000077", None).await.unwrap();
    assert_eq!(
        found.map(|record| record.span.id.to_string()),
        Some("1000077".to_owned())
    );
    let [cost] = &costs(spans).await[..] else {
        panic!("one command");
    };
    assert!(cost.keys <= 3 && cost.documents <= 1, "{} keys", cost.keys);
}

fn look_at(name: &str, costs: &[Cost]) {
    assert!(!costs.is_empty() && costs.len() <= 2, "{name}");
    for cost in costs {
        let what = format!(
            "{name}: {}, {} keys, {} documents",
            cost.plan, cost.keys, cost.documents
        );
        assert!(cost.plan.starts_with("IXSCAN"), "{what}");
        // Only what an instance has is sorted.
        let (keys, documents, sorts) = match name {
            "instance" => (4, 2, true),
            "plain" | "resource" | "to" => (102, 101, false),
            "nobody" => (WINDOW + PASSED_OVER, WINDOW + PASSED_OVER, false),
            _ => (WINDOW + PASSED_OVER, 404, false),
        };
        assert!(cost.keys <= keys && cost.documents <= documents, "{what}");
        assert_eq!(cost.sorts, sorts, "{what}");
    }
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

/// A span as an original keeps it: with doubles, and without a key.
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
        for (keys, documents, _) in commands {
            assert!(
                keys <= 4 && documents <= 3,
                "{keys} keys, {documents} documents"
            );
        }
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
