//! Sums: by windows and groups, page by page, exact; their indexes, and what is cut off.

use std::time::Duration;

use bson::{Document, doc};
use mongodb::Collection;
use mongodb::options::Hint;
use sampler_domain::{
    Acceptance, Entry, Granularity, Id, Interval, Measure, Measures, Quantity, SpanId, WindowLength,
};
use sampler_store::{
    CutUsage, Ledger, Reading, StoreError, SumPage, SumPosition, SumQuery, SumRow, TargetFilter,
};
use sampler_store_mongo::{MongoOptions, MongoStore};
use sampler_testkit::{TestDatabase, wait_until};
use serde_json::{Value, json};

use sampler_store_testing::support::{at, id, target, unique};

use crate::support::{database_of, options, store_and_spans, usages_beside};

const MINUTE: i64 = 60_000;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;

/// A usage that Abacus has accepted: of this organization, resource and instance, from and to so many ms
/// after [`at`].
fn usage(names: [&str; 3], from: i64, to: i64, measures: &Value) -> Entry {
    let mut target = target(names[2]);
    target.organization_id = id(names[0]);
    target.resource_id = id(names[1]);
    let (start, end) = (at(from), at(to));
    Entry {
        usage_guid: format!("usage-{}", unique()),
        span: SpanId::new(at(0), unique()),
        target,
        measures: measured(measures),
        interval: Interval { start, end },
        dimension: Granularity::Hour,
        is_again: false,
        acceptance: Acceptance {
            at: end.plus(5),
            status: Some(202),
            location: None,
        },
    }
}

/// Measures, as the store may hold them.
fn measured(measures: &Value) -> Measures {
    let measure = |(name, quantity): (&String, &Value)| Measure {
        measure: id(name),
        quantity: Quantity::from_store(quantity.clone()),
    };
    let object = measures.as_object().expect("an object");
    Measures::from_store(object.iter().map(measure).collect())
}

async fn keep(store: &MongoStore, entries: impl IntoIterator<Item = Entry>) {
    for entry in entries {
        let kept = store.write_entry(&entry, at(4_000 * DAY), None);
        kept.await.unwrap();
    }
}

/// Sums of these targets between two moments, by these windows and groups.
fn query(
    conditions: &[(&str, &str)],
    length: WindowLength,
    (from, to): (i64, i64),
    group_by: &[&'static str],
) -> SumQuery {
    let mut target = TargetFilter::default();
    for (name, value) in conditions {
        assert!(target.set(name, id(value)), "{name}");
    }
    SumQuery {
        target,
        accepted_to: None,
        resources: None,
        length,
        windows: length.windows(at(from), at(to), 366).expect("few"),
        group_by: group_by.to_vec(),
        after: None,
        limit: 1_000,
    }
}

async fn summed(store: &MongoStore, query: &SumQuery) -> Result<SumPage, StoreError> {
    let page = store.sums(query).await?;
    Ok(page.expect("nothing is cut"))
}

/// A row as it is shown: the start of its window in hours after [`at`], the group, the number of
/// usages, and the sums.
fn shown(row: &SumRow) -> Value {
    let start = row.window.start.since(at(0)) as f64 / HOUR as f64;
    let group: Vec<&str> = row.group.iter().map(Id::as_str).collect();
    let amounts = row.amounts.iter();
    let amounts: serde_json::Map<String, Value> = amounts
        .map(|(name, amount)| (name.as_str().to_owned(), json!(amount.number())))
        .collect();
    json!([start, group, row.usages, row.duration.number(), amounts])
}

/// The rows of all pages.
async fn pages(store: &MongoStore, query: &SumQuery) -> Vec<Value> {
    let (mut query, mut rows) = (query.clone(), Vec::new());
    loop {
        let page = summed(store, &query).await.unwrap();
        assert!(page.rows.len() <= query.limit);
        rows.extend(page.rows.iter().map(shown));
        query.after = page.next;
        if query.after.is_none() {
            return rows;
        }
    }
}

/// The rows, however long the pages are.
async fn sums(store: &MongoStore, query: &SumQuery) -> Vec<Value> {
    let all = pages(store, query).await;
    for limit in 1..=3 {
        let query = SumQuery {
            limit,
            ..query.clone()
        };
        assert_eq!(pages(store, &query).await, all, "{limit}: {query:?}");
    }
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn sums_are_by_windows_and_groups() {
    let (store, _) = store_and_spans("sums").await;
    let store = &store;
    let memory = |quantity: i64| json!({ "memory": quantity });
    keep(
        store,
        [
            usage(["o", "r", "one"], 0, HOUR, &memory(2)),
            usage(["o", "r", "one"], HOUR, 2 * HOUR, &memory(2)),
            // Taken back in part.
            usage(["o", "r", "one"], 2 * HOUR, HOUR + MINUTE, &memory(2)),
            usage(["o", "r", "two"], 0, HOUR, &memory(3)),
            usage(["o", "s", "one"], 0, HOUR, &json!({ "cpu": 0.5 })),
            usage(["o", "s", "one"], HOUR, 2 * HOUR, &json!({})),
            usage(["p", "r", "one"], 13 * HOUR, 14 * HOUR, &memory(7)),
        ],
    )
    .await;
    let (o, r) = (("organization_id", "o"), ("resource_id", "r"));
    let one = ("resource_instance_id", "one");
    let whole = (0, 24 * HOUR);
    let cpu = HOUR as f64 / 2.0;
    let by_hour = |group_by| query(&[o], WindowLength::Hour, whole, group_by);
    let expected = json!([
        [0.0, ["one", "r"], 1, HOUR, { "memory": 2 * HOUR }],
        [0.0, ["one", "s"], 1, HOUR, { "cpu": cpu }],
        [0.0, ["two", "r"], 1, HOUR, { "memory": 3 * HOUR }],
        [1.0, ["one", "r"], 2, MINUTE, { "memory": 2 * MINUTE }],
        [1.0, ["one", "s"], 1, HOUR, {}],
    ]);
    let groups = by_hour(&["resource_instance_id", "resource_id"]);
    assert_eq!(json!(sums(store, &groups).await), expected);
    let both =
        json!([0.0, [], 6, 4 * HOUR + MINUTE, { "cpu": cpu, "memory": 5 * HOUR + 2 * MINUTE }]);
    let all = query(&[o], WindowLength::All, whole, &[]);
    assert_eq!(sums(store, &all).await, [both]);
    // A day ends twelve hours after noon; a month later.
    let days = query(
        &[r],
        WindowLength::Day,
        (-DAY, 10 * DAY),
        &["organization_id"],
    );
    let expected = json!([
        [-12.0, ["o"], 4, 2 * HOUR + MINUTE, { "memory": 5 * HOUR + 2 * MINUTE }],
        [12.0, ["p"], 1, HOUR, { "memory": 7 * HOUR }],
    ]);
    assert_eq!(json!(sums(store, &days).await), expected);
    let months = query(&[r], WindowLength::Month, (-365 * DAY, 365 * DAY), &[]);
    let expected =
        json!([[-228.0, [], 5, 3 * HOUR + MINUTE, { "memory": 12 * HOUR + 2 * MINUTE }]]);
    assert_eq!(json!(sums(store, &months).await), expected);
    for (resources, count) in [(vec![id("s")], 2), (Vec::new(), 0)] {
        let mut query = query(&[one], WindowLength::All, whole, &[]);
        query.resources = Some(resources);
        let rows = sums(store, &query).await;
        let counted = rows.first().map_or(0, |row| row[2].as_i64().unwrap());
        assert_eq!(counted, count);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sums_go_on_behind_any_row() {
    let (store, _) = store_and_spans("sums").await;
    let store = &store;
    // In the order of their bytes, which is neither that of letters nor of numbers.
    let names = ["$a", "10", "9", "A", "a", "a ", "a.b", "ä", "\u{10000}"];
    for hour in [0, 1, 5] {
        let of = |name: &&str| usage(["o", "r", name], hour * HOUR, (hour + 1) * HOUR, &json!({}));
        keep(store, names.iter().map(of)).await;
    }
    let o = ("organization_id", "o");
    let group_by = ["resource_instance_id"];
    let query = query(&[o], WindowLength::Hour, (0, 10 * HOUR), &group_by);
    let rows = sums(store, &query).await;
    let groups: Vec<&str> = rows.iter().filter_map(|row| row[1][0].as_str()).collect();
    assert_eq!(groups, [names, names, names].concat());
    // One that comes behind the cursor is shown, one before it is not; the others are shown once.
    let mut query = SumQuery { limit: 4, ..query };
    query.after = summed(store, &query).await.unwrap().next;
    let late = ["0", "b"].map(|name| usage(["o", "r", name], 0, HOUR, &json!({})));
    keep(store, late).await;
    assert_eq!(pages(store, &query).await.len(), 3 * names.len() - 4 + 1);
    // A window with no row of its own.
    query.after = Some(SumPosition {
        window: at(2 * HOUR),
        group: None,
    });
    assert_eq!(pages(store, &query).await.len(), names.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn sums_are_exact() {
    let (store, _) = store_and_spans("sums").await;
    let store = &store;
    let (max, two_to_53) = (i64::MAX, 1_i64 << 53);
    let cases = [
        // 2^63 - 1, as 2^53 × 1,023 + (2^53 - 1).
        (
            vec![(json!(two_to_53), 1_023), (json!(two_to_53 - 1), 1)],
            json!(max),
        ),
        (vec![(json!(two_to_53), -1_024)], json!(i64::MIN)),
        (
            vec![(json!(two_to_53), 1_024)],
            json!(9_223_372_036_854_775_808.0),
        ),
        // Beyond 64 bits on the way, back within them at the end.
        (
            vec![
                (json!(two_to_53), 100 * DAY),
                (json!(1), 3),
                (json!(two_to_53), -100 * DAY),
            ],
            json!(3),
        ),
        // 2 and 2.0 are one number.
        (
            vec![(json!(2), 3), (json!(2.0), 5), (json!(2), -1)],
            json!(14),
        ),
        (vec![(json!(0.1), 10), (json!(0.1), 20)], json!(3.0)),
        (vec![(json!(1e300), 10)], json!(1e300 * 10.0)),
        (vec![(json!(1), 10), (json!("8 GB"), 10)], Value::Null),
        (vec![(json!([1, 2]), 1), (json!(1), 1)], Value::Null),
    ];
    for (number, (parts, expected)) in cases.iter().enumerate() {
        let name = format!("organization-{number}");
        for (quantity, duration) in parts {
            let (from, to) = if *duration < 0 {
                (-duration, 0)
            } else {
                (0, *duration)
            };
            let measures = json!({ "m": quantity });
            keep(store, [usage([&name, "r", "i"], from, to, &measures)]).await;
        }
        let of = ("organization_id", name.as_str());
        let rows = sums(store, &query(&[of], WindowLength::All, (0, 400 * DAY), &[])).await;
        let total: i64 = parts.iter().map(|(_, duration)| duration).sum();
        let row = json!([0.0, [], parts.len(), total, { "m": expected }]);
        assert_eq!(rows, [row], "{parts:?}");
    }
}

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
                "resource_id": of("r-", 2), "plan_id": "p", "resource_instance_id": of("i-", INSTANCES),
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
    query(&[(field, value)], length, (0, 24 * HOUR), &[])
}

/// All usages that are counted on all pages.
async fn counted(store: &MongoStore, query: &SumQuery) -> u64 {
    let rows = pages(store, query).await;
    rows.iter().map(|row| row[2].as_u64().unwrap()).sum()
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
    let empty = of_all_hours("organization_id", "o-3", WindowLength::All);
    assert_eq!(counted(&store, &empty).await, 0);
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
    let both = tokio::join!(counted(&store, &empty), counted(&store, &empty));
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

/// The calendar around a bound is searched by the index, dimension by dimension.
#[tokio::test(flavor = "multi_thread")]
async fn a_usage_that_a_bound_cuts_is_found_among_many() {
    let (store, spans) = store_with_sum_index("sums_cut").await;
    fill(&spans, 0..6, 1_000).await;
    let day = Entry {
        dimension: Granularity::Day,
        ..usage(["o", "r-1", "i"], -12 * HOUR, 12 * HOUR, &json!({}))
    };
    keep(&store, [day]).await;
    let cut = async |from, to| {
        let r = ("resource_id", "r-1");
        let query = query(&[r], WindowLength::All, (from, to), &[]);
        store.sums(&query).await.unwrap().err()
    };
    assert_eq!(cut(-12 * HOUR, 12 * HOUR).await, None);
    let cut_by = |dimension, from, to| {
        let fits = Some((at(from), at(to)));
        Some(CutUsage { dimension, fits })
    };
    let half_past = cut_by(Granularity::Hour, 0, HOUR);
    assert_eq!(cut(HOUR / 2, 12 * HOUR).await, half_past);
    let in_the_day = cut_by(Granularity::Day, -12 * HOUR, 12 * HOUR);
    assert_eq!(cut(-12 * HOUR, 8 * HOUR).await, in_the_day);
}
