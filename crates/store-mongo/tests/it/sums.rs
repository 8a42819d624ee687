//! Sums of many usages: their indexes, and what is cut off.

use std::time::Duration;

use bson::{Document, doc};
use mongodb::Collection;
use mongodb::options::Hint;
use sampler_domain::WindowLength;
use sampler_store::{Reading, StoreError, SumPage, SumQuery};
use sampler_store_mongo::{MongoOptions, MongoStore};
use sampler_store_testing::support::{at, sum_query};
use sampler_testkit::{TestDatabase, wait_until};

use crate::support::{database_of, options, store_and_spans, usages_beside};

const HOUR: i64 = 3_600_000;

/// Makes accepted usages within the server, `each` in each of some hours: usage `n` of an hour is of
/// instance `n` mod 500, organization `n` mod 10 and resource `n` mod 2.
async fn fill(spans: &Collection<Document>, hours: std::ops::Range<i32>, each: i32) {
    let of = |prefix: &str, count: i32| {
        let number = doc! { "$toString": { "$mod": ["$n", count] } };
        doc! { "$concat": [prefix, number] }
    };
    let hour_start = doc! { "$add": [at(0).as_millis(), { "$multiply": ["$hour", HOUR] }] };
    let hour_end = doc! { "$add": [&hour_start, HOUR] };
    let pipeline = vec![
        doc! { "$documents": [{ "_": 0 }] },
        doc! { "$project": { "hour": { "$range": [hours.start, hours.end] }, "n": { "$range": [0, each] } } },
        doc! { "$unwind": "$hour" },
        doc! { "$unwind": "$n" },
        doc! { "$project": {
            "_id": { "$concat": [{ "$toString": "$hour" }, " ", { "$toString": "$n" }] },
            "span": { "$toString": "$n" },
            "target": {
                "organization_id": of("o-", 10), "space_id": "s", "consumer_id": "c",
                "resource_id": of("r-", 2), "plan_id": "p", "resource_instance_id": of("i-", 500),
            },
            "measured_usage": { "$literal": [{ "measure": "memory", "quantity": 512_i64 }] },
            "interval": { "start": &hour_start, "end": &hour_end },
            "timestamp": { "$add": [hour_start, HOUR / 2] },
            "duration": { "$literal": HOUR },
            "dimension": "hour",
            "accepted_at": hour_end,
        } },
        // There are none yet, so they are inserted many at a time.
        doc! { "$merge": { "into": "spans_usages", "whenMatched": "fail" } },
    ];
    database_of(spans).aggregate(pipeline).await.unwrap();
}

fn of_all_hours(field: &str, value: &str, length: WindowLength) -> SumQuery {
    sum_query(&[(field, value)], length, (0, 24 * HOUR))
}

async fn summed(store: &MongoStore, query: &SumQuery) -> Result<SumPage, StoreError> {
    let page = store.sums(query).await?;
    Ok(page.expect("nothing is cut"))
}

/// How many usages are counted in one window.
async fn counted(store: &MongoStore, query: &SumQuery) -> u64 {
    let rows = summed(store, query).await.unwrap().rows;
    rows.first().map_or(0, |row| row.usages)
}

/// A store whose index for sums is there before its usages: to make one of many takes longer than a request
/// waits.
async fn store_with_sum_index(name: &str) -> (MongoStore, Collection<Document>) {
    let (store, spans) = store_and_spans(name).await;
    let nothing = of_all_hours("resource_id", "nobody's", WindowLength::All);
    assert_eq!(counted(&store, &nothing).await, 0);
    (store, spans)
}

/// The names of the indexes for sums that are there.
async fn sum_indexes(spans: &Collection<Document>) -> Vec<String> {
    let names = usages_beside(spans).list_index_names().await.unwrap();
    let names = names.into_iter();
    names.filter(|name| name.starts_with("sum_")).collect()
}

/// An index for sums makes each usage dearer. So the first sum makes the one that it needs.
#[tokio::test(flavor = "multi_thread")]
async fn the_first_sum_by_a_field_makes_its_index() {
    let (store, spans) = store_and_spans("sums_index").await;
    let first = of_all_hours("organization_id", "o-3", WindowLength::All);
    assert_eq!(counted(&store, &first).await, 0);
    fill(&spans, 0..2, 100).await;
    let mut made = Vec::new();
    for (field, value, usages, index) in [
        ("organization_id", "o-3", 20, "sum_organization"),
        ("resource_id", "r-1", 100, "sum_resource"),
        ("resource_instance_id", "i-7", 2, "sum_instance"),
    ] {
        let query = of_all_hours(field, value, WindowLength::All);
        assert_eq!(counted(&store, &query).await, usages, "{field}");
        made.push(index);
        assert_eq!(sum_indexes(&spans).await, made);
    }
    // An operator may remove one: the next sum makes it again.
    let usages = usages_beside(&spans);
    usages.drop_index("sum_organization").await.unwrap();
    let both = tokio::join!(counted(&store, &first), counted(&store, &first));
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
    let query = of_all_hours("resource_id", "r-1", WindowLength::All);
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
    let (store, spans) = store_with_sum_index("sums_late").await;
    fill(&spans, 0..5, 10).await;
    fill(&spans, 5..6, 300_000).await;
    let server = TestDatabase::new("sums_late_reader").await;
    let impatient = MongoOptions {
        database: spans.namespace().db,
        operation_timeout: Duration::from_millis(200),
        ..options(&server)
    };
    let reader = store.reader(impatient).await.unwrap();
    let mut hours = of_all_hours("resource_id", "r-1", WindowLength::Hour);
    hours.group_by = vec!["resource_instance_id"];
    let (mut rows, mut pages) = (0, 0);
    let error = loop {
        match summed(&reader, &hours).await {
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
    // One that has the time adds it up.
    let all = of_all_hours("resource_id", "r-1", WindowLength::All);
    assert_eq!(counted(&store, &all).await, 150_000 + 25);
}

/// More groups than the server may keep in memory: it neither writes to its disk nor continues.
#[tokio::test(flavor = "multi_thread")]
async fn groups_without_end_are_refused() {
    let (store, spans) = store_with_sum_index("sums_groups").await;
    fill(&spans, 0..1, 40_000).await;
    let usages = usages_beside(&spans);
    let long = doc! { "$concat": ["$_id", "x".repeat(7_000)] };
    let change = vec![doc! { "$set": { "target.space_id": long } }];
    usages.update_many(doc! {}, change).await.unwrap();
    let mut query = of_all_hours("resource_id", "r-1", WindowLength::All);
    query.group_by = vec!["space_id"];
    let refused = store.sums(&query).await;
    assert!(matches!(refused, Err(StoreError::Overloaded)));
    query.group_by = vec!["plan_id"];
    assert_eq!(counted(&store, &query).await, 20_000);
}
