//! Sums make the index that they need, and what has no end is cut off.

use std::time::Duration;

use bson::{Bson, Document, doc};
use mongodb::Collection;
use mongodb::options::Hint;
use sampler_domain::{Id, WindowLength};
use sampler_store::{Reading, StoreError, SumQuery, TargetFilter};
use sampler_store_mongo::MongoStore;
use sampler_store_testing::support::at;
use sampler_testkit::{TestDatabase, wait_until};

use crate::support::{database_of, options, store_and_spans, usages_beside};

const HOUR: i64 = 3_600_000;

/// Instances; organizations and resources are fewer.
const INSTANCES: i32 = 500;

/// Makes accepted usages within the server, `each` in each of some hours: usage `n` of an hour is of
/// instance `n` mod [`INSTANCES`], organization `n` mod 10 and resource `n` mod 2.
async fn fill(spans: &Collection<Document>, hours: std::ops::Range<i32>, each: i32) {
    let of = |prefix: &str, count: i32| {
        let number = doc! { "$toString": { "$mod": ["$n", count] } };
        doc! { "$concat": [prefix, number] }
    };
    let hour_start = doc! { "$add": [at(0).as_millis(), { "$multiply": ["$hour", HOUR] }] };
    let pipeline = vec![
        doc! { "$documents": [{ "_": 0 }] },
        doc! { "$project": { "hour": { "$range": [hours.start, hours.end] }, "n": { "$range": [0, each] } } },
        doc! { "$unwind": "$hour" },
        doc! { "$unwind": "$n" },
        doc! { "$project": {
            "_id": { "$concat": [{ "$toString": "$hour" }, " ", { "$toString": "$n" }] },
            "span": { "$toString": "$n" },
            "partition": { "$mod": ["$n", 64] },
            "version": { "$toLong": "$hour" },
            "target": {
                "organization_id": of("o-", 10), "space_id": "s", "consumer_id": "c",
                "resource_id": of("r-", 2), "plan_id": "p", "resource_instance_id": of("i-", INSTANCES),
            },
            "measured_usage": { "$literal": [{ "measure": "memory", "quantity": 512_i64 }] },
            "timestamp": { "$add": [hour_start, HOUR / 2] },
            "duration": { "$literal": HOUR },
            "state": "accepted",
        } },
        // There are none yet, so they are inserted many at a time.
        doc! { "$merge": { "into": "spans_usages", "whenMatched": "fail" } },
    ];
    let database = database_of(spans);
    database.aggregate(pipeline).await.unwrap();
}

fn query(field: &str, value: &str, length: WindowLength, hours: i64) -> SumQuery {
    let mut target = TargetFilter::default();
    assert!(target.set(field, Id::from_store(value)));
    SumQuery {
        states: SumQuery::BILLED.to_vec(),
        target,
        resources: None,
        length,
        windows: length.windows(at(0), at(hours * HOUR), 366).unwrap(),
        group_by: Vec::new(),
        after: None,
        limit: 1_000,
    }
}

/// All usages that are counted on all pages.
async fn counted(store: &MongoStore, query: &SumQuery) -> u64 {
    let (mut query, mut usages) = (query.clone(), 0);
    loop {
        let page = store.sums(&query).await.unwrap();
        usages += page.rows.iter().map(|row| row.usages).sum::<u64>();
        query.after = page.next;
        if query.after.is_none() {
            return usages;
        }
    }
}

/// A store whose indexes for sums by these fields are there before its usages: to make them of many takes
/// longer than a request waits.
async fn store_with_sum_indexes(name: &str, fields: &[&str]) -> (MongoStore, Collection<Document>) {
    let (store, spans) = store_and_spans(name).await;
    for field in fields {
        let nothing = query(field, "nobody's", WindowLength::All, 1);
        assert_eq!(counted(&store, &nothing).await, 0);
    }
    (store, spans)
}

/// The names of the indexes for sums that are there.
async fn sum_indexes(spans: &Collection<Document>) -> Vec<String> {
    let usages = usages_beside(spans);
    let names = usages.list_index_names().await.unwrap();
    names
        .into_iter()
        .filter(|name| name.starts_with("sum_"))
        .collect()
}

/// An index for sums makes each usage dearer. So the first sum makes the one that it needs.
#[tokio::test(flavor = "multi_thread")]
async fn the_first_sum_by_a_field_makes_its_index() {
    let (store, spans) = store_and_spans("sums_index").await;
    let empty = query("organization_id", "o-3", WindowLength::All, 24);
    assert_eq!(counted(&store, &empty).await, 0);
    fill(&spans, 0..2, 100).await;
    let mut made = Vec::new();
    for (field, value, usages, index) in [
        ("organization_id", "o-3", 20, "sum_organization"),
        ("resource_id", "r-1", 100, "sum_resource"),
        ("resource_instance_id", "i-7", 2, "sum_instance"),
    ] {
        let query = query(field, value, WindowLength::All, 24);
        assert_eq!(counted(&store, &query).await, usages, "{field}");
        made.push(index);
        assert_eq!(sum_indexes(&spans).await, made);
    }
    // An operator may remove one: the next sum makes it again.
    let usages = usages_beside(&spans);
    usages.drop_index("sum_organization").await.unwrap();
    let query = query("organization_id", "o-3", WindowLength::All, 24);
    let both = tokio::join!(counted(&store, &query), counted(&store, &query));
    assert_eq!(both, (20, 20));
    assert_eq!(sum_indexes(&spans).await.len(), 3);
}

/// A request waits a second for an index. The index is made all the same, once.
#[tokio::test(flavor = "multi_thread")]
async fn an_index_for_sums_is_made_without_the_request() {
    let (store, spans) = store_and_spans("sums_index_late").await;
    fill(&spans, 0..1, 1_000).await;
    let usages = usages_beside(&spans);
    // No index can be made while a transaction has written to the collection.
    let mut session = spans.client().start_session().await.unwrap();
    session.start_transaction().await.unwrap();
    let held_up = doc! { "_id": "of a transaction" };
    let written = usages.insert_one(held_up).session(&mut session).await;
    written.unwrap();
    let query = query("resource_id", "r-1", WindowLength::All, 24);
    let both = tokio::join!(store.sums(&query), store.sums(&query));
    for error in [both.0.unwrap_err(), both.1.unwrap_err()] {
        assert!(matches!(error, StoreError::Preparing), "{error}");
    }
    session.commit_transaction().await.unwrap();
    let by_index = || {
        let hint = Hint::Name("sum_resource".to_owned());
        let found = usages.find_one(doc! {}).hint(hint);
        async { found.await.is_ok() }
    };
    wait_until("the index is there", Duration::from_mins(1), by_index).await;
}

/// What takes too long is cut off by the server: of a list, the windows before are shown.
#[tokio::test(flavor = "multi_thread")]
async fn a_window_that_takes_too_long_is_refused_and_those_before_it_are_shown() {
    let (store, spans) = store_with_sum_indexes("sums_late", &["resource_id"]).await;
    fill(&spans, 0..5, 10).await;
    fill(&spans, 5..6, 300_000).await;
    let server = TestDatabase::new("sums_late_reader").await;
    let impatient = |millis| sampler_store_mongo::MongoOptions {
        database: spans.namespace().db,
        operation_timeout: Duration::from_millis(millis),
        ..options(&server)
    };
    let reader = store.reader(impatient(200)).await.unwrap();
    let mut hours = query("resource_id", "r-1", WindowLength::Hour, 24);
    hours.group_by = vec!["resource_instance_id"];
    let (mut rows, mut pages) = (0, 0);
    let error = loop {
        match reader.sums(&hours).await {
            Ok(page) => {
                (rows, pages) = (rows + page.rows.len(), pages + 1);
                hours.after = page.next;
                assert!(hours.after.is_some(), "the long window is still to come");
            }
            Err(error) => break error,
        }
    };
    assert!(matches!(error, StoreError::Overloaded), "{error}");
    assert_eq!((rows, pages > 0), (5 * 5, true));
    let next = hours.after.unwrap();
    assert_eq!((next.window, next.group), (at(5 * HOUR), None));
    let all = query("resource_id", "r-1", WindowLength::All, 24);
    assert!(matches!(
        reader.sums(&all).await,
        Err(StoreError::Overloaded)
    ));
    // One that has the time adds it up.
    assert_eq!(counted(&store, &all).await, 150_000 + 25);
}

/// More groups than the server may keep in memory: it neither writes to its disk nor continues.
#[tokio::test(flavor = "multi_thread")]
async fn groups_without_end_are_refused() {
    let (store, spans) = store_with_sum_indexes("sums_groups", &["resource_id"]).await;
    fill(&spans, 0..1, 40_000).await;
    let usages = usages_beside(&spans);
    let long = doc! { "$concat": ["$_id", "x".repeat(7_000)] };
    let change = vec![doc! { "$set": { "target.space_id": long } }];
    usages.update_many(doc! {}, change).await.unwrap();
    let mut query = query("resource_id", "r-1", WindowLength::All, 24);
    query.group_by = vec!["space_id"];
    assert!(matches!(
        store.sums(&query).await,
        Err(StoreError::Overloaded)
    ));
    query.group_by = vec!["plan_id"];
    assert_eq!(counted(&store, &query).await, 20_000);
}

/// What somebody put in by hand stands in nobody's way.
#[tokio::test(flavor = "multi_thread")]
async fn odd_documents_do_not_spoil_sums() {
    let (store, spans) = store_and_spans("sums_odd").await;
    fill(&spans, 0..1, 1_000).await;
    let usages = usages_beside(&spans);
    let good = usages
        .find_one(doc! { "target.resource_id": "r-1" })
        .await
        .unwrap()
        .unwrap();
    let odd = [
        doc! { "measured_usage": "much" },
        doc! { "measured_usage": ["much", { "quantity": 1 }, { "measure": 7, "quantity": 1 }] },
        doc! { "measured_usage": [{ "measure": "memory", "quantity": Bson::Double(f64::NAN) }] },
        doc! { "duration": "long", "measured_usage": [] },
        doc! { "timestamp": "yesterday" },
        doc! { "target": { "resource_id": "r-1" } },
        doc! { "state": 7 },
    ];
    for (number, change) in (0..).zip(odd) {
        let mut document = good.clone();
        document.insert("_id", format!("odd {number}"));
        document.extend(change);
        usages.insert_one(document).await.unwrap();
    }
    let mut sums = query("resource_id", "r-1", WindowLength::All, 24);
    sums.group_by = vec!["resource_id", "plan_id"];
    let page = store.sums(&sums).await.unwrap();
    assert_eq!(page.rows.len(), 1);
    assert_eq!(page.rows[0].usages, 500 + 4);
}
