//! Sums of the ledger: by windows and groups, page by page, exact; and that they cut no usage.

use sampler_domain::{
    Acceptance, Entry, Granularity, Id, Interval, Measure, Measures, Quantity, SpanId, WindowLength,
};
use sampler_store::{CutUsage, SumPage, SumPosition, SumQuery, SumRow};
use serde_json::{Value, json};

use crate::support::{Shared, Store, at, id, sum_query, target, unique};

const MINUTE: i64 = 60_000;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;
/// Of the day of the present, after it.
const MIDNIGHT: i64 = 12 * HOUR;

const O: (&str, &str) = ("organization_id", "o");
const R: (&str, &str) = ("resource_id", "r");

/// A usage of this organization, resource and instance, from and to so many ms after the present, that was accepted
/// at its end.
fn usage(names: [&str; 3], from: i64, to: i64, measures: &Value) -> Entry {
    let mut target = target(names[2]);
    target.organization_id = id(names[0]);
    target.resource_id = id(names[1]);
    let (start, end) = (at(from), at(to));
    let measure = |(name, quantity): (&String, &Value)| Measure {
        measure: id(name),
        quantity: Quantity::from_store(quantity.clone()),
    };
    let measures = measures.as_object().expect("an object");
    Entry {
        usage_guid: format!("usage-{}", unique()),
        span: SpanId::new(at(0), unique()),
        target,
        measures: Measures::from_store(measures.iter().map(measure).collect()),
        interval: Interval { start, end },
        dimension: Granularity::Hour,
        is_again: false,
        acceptance: Acceptance {
            at: end,
            status: Some(202),
            location: None,
        },
    }
}

/// A usage without measures of `o`, `r` and this instance.
fn plain(instance: &str, from: i64, to: i64) -> Entry {
    usage(["o", "r", instance], from, to, &json!({}))
}

/// The same, that was cut by the day.
fn of_day(from: i64, to: i64) -> Entry {
    Entry {
        dimension: Granularity::Day,
        ..plain("i", from, to)
    }
}

async fn keep(store: &dyn Store, entries: impl IntoIterator<Item = Entry>) {
    for entry in entries {
        let kept = store.write_entry(&entry, at(4_000 * DAY), None);
        kept.await.unwrap();
    }
}

fn grouped(query: SumQuery, by: &[&'static str]) -> SumQuery {
    let group_by = by.to_vec();
    SumQuery { group_by, ..query }
}

async fn page(store: &dyn Store, query: &SumQuery) -> SumPage {
    store.sums(query).await.unwrap().expect("nothing is cut")
}

async fn cut(store: &dyn Store, query: &SumQuery) -> CutUsage {
    let cut = store.sums(query).await.unwrap();
    cut.expect_err("a usage is cut")
}

/// A row as it is shown: the start of its window in hours after the present, the group, the number of
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
async fn pages(store: &dyn Store, query: &SumQuery) -> Vec<Value> {
    let (mut query, mut rows) = (query.clone(), Vec::new());
    loop {
        let page = page(store, &query).await;
        assert!(page.rows.len() <= query.limit);
        rows.extend(page.rows.iter().map(shown));
        query.after = page.next;
        if query.after.is_none() {
            return rows;
        }
    }
}

/// The rows, however long the pages are.
async fn sums(store: &dyn Store, query: &SumQuery) -> Vec<Value> {
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

/// How many usages are counted.
async fn counted(store: &dyn Store, query: &SumQuery) -> u64 {
    let rows = page(store, query).await.rows;
    rows.iter().map(|row| row.usages).sum()
}

pub async fn sums_are_by_windows_and_groups(store: &Shared) {
    let store = &**store;
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
    let whole = (0, DAY);
    let cpu = HOUR as f64 / 2.0;
    let hours = sum_query(&[O], WindowLength::Hour, whole);
    let groups = grouped(hours, &["resource_instance_id", "resource_id"]);
    let expected = json!([
        [0.0, ["one", "r"], 1, HOUR, { "memory": 2 * HOUR }],
        [0.0, ["one", "s"], 1, HOUR, { "cpu": cpu }],
        [0.0, ["two", "r"], 1, HOUR, { "memory": 3 * HOUR }],
        [1.0, ["one", "r"], 2, MINUTE, { "memory": 2 * MINUTE }],
        [1.0, ["one", "s"], 1, HOUR, {}],
    ]);
    assert_eq!(json!(sums(store, &groups).await), expected);
    let both =
        json!([0.0, [], 6, 4 * HOUR + MINUTE, { "cpu": cpu, "memory": 5 * HOUR + 2 * MINUTE }]);
    let all = sum_query(&[O], WindowLength::All, whole);
    assert_eq!(sums(store, &all).await, [both]);
    // A day ends twelve hours after noon; a month later.
    let days = sum_query(&[R], WindowLength::Day, (-DAY, 10 * DAY));
    let days = grouped(days, &["organization_id"]);
    let expected = json!([
        [-12.0, ["o"], 4, 2 * HOUR + MINUTE, { "memory": 5 * HOUR + 2 * MINUTE }],
        [12.0, ["p"], 1, HOUR, { "memory": 7 * HOUR }],
    ]);
    assert_eq!(json!(sums(store, &days).await), expected);
    let months = sum_query(&[R], WindowLength::Month, (-365 * DAY, 365 * DAY));
    let expected =
        json!([[-228.0, [], 5, 3 * HOUR + MINUTE, { "memory": 12 * HOUR + 2 * MINUTE }]]);
    assert_eq!(json!(sums(store, &months).await), expected);
    let one = ("resource_instance_id", "one");
    for (resources, count) in [(vec![id("s")], 2), (Vec::new(), 0)] {
        let mut query = sum_query(&[one], WindowLength::All, whole);
        query.resources = Some(resources);
        assert_eq!(counted(store, &query).await, count);
    }
}

pub async fn sums_go_on_behind_any_row(store: &Shared) {
    let store = &**store;
    // In the order of their bytes, which is neither that of letters nor of numbers.
    let names = ["$a", "10", "9", "A", "a", "a ", "a.b", "ä", "\u{10000}"];
    for hour in [0, 1, 5] {
        let of = |name: &&str| plain(name, hour * HOUR, (hour + 1) * HOUR);
        keep(store, names.iter().map(of)).await;
    }
    let query = sum_query(&[O], WindowLength::Hour, (0, 10 * HOUR));
    let query = grouped(query, &["resource_instance_id"]);
    let rows = sums(store, &query).await;
    let groups: Vec<&str> = rows.iter().filter_map(|row| row[1][0].as_str()).collect();
    assert_eq!(groups, [names, names, names].concat());
    // One that comes behind the cursor is shown, one before it is not; the others are shown once.
    let mut query = SumQuery { limit: 4, ..query };
    query.after = page(store, &query).await.next;
    keep(store, ["0", "b"].map(|name| plain(name, 0, HOUR))).await;
    assert_eq!(pages(store, &query).await.len(), 3 * names.len() - 4 + 1);
    // A window with no row of its own.
    query.after = Some(SumPosition {
        window: at(2 * HOUR),
        group: None,
    });
    assert_eq!(pages(store, &query).await.len(), names.len());
}

pub async fn sums_are_exact(store: &Shared) {
    let store = &**store;
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
            let (from, to) = (0.max(-duration), 0.max(*duration));
            let measures = json!({ "m": quantity });
            keep(store, [usage([&name, "r", "i"], from, to, &measures)]).await;
        }
        let of = ("organization_id", name.as_str());
        let query = sum_query(&[of], WindowLength::All, (0, 400 * DAY));
        let total: i64 = parts.iter().map(|(_, duration)| duration).sum();
        let row = json!([0.0, [], parts.len(), total, { "m": expected }]);
        assert_eq!(sums(store, &query).await, [row], "{parts:?}");
    }
}

/// So the figures of an invoice can be had again.
pub async fn usages_that_were_accepted_later_do_not_count(store: &Shared) {
    let store = &**store;
    let hours = [plain("i", 0, HOUR), plain("i", HOUR, 2 * HOUR)];
    keep(store, hours).await;
    for (accepted_to, count) in [(2 * HOUR, 2), (2 * HOUR - 1, 1), (HOUR - 1, 0)] {
        let mut query = sum_query(&[O], WindowLength::All, (0, 3 * HOUR));
        query.accepted_to = Some(at(accepted_to));
        assert_eq!(counted(store, &query).await, count);
    }
}

pub async fn a_bound_that_cuts_a_usage_is_told_with_the_times_that_fit(store: &Shared) {
    let store = &**store;
    keep(store, [of_day(-HOUR, MIDNIGHT)]).await;
    // A correction.
    keep(store, [usage(["p", "r", "i"], HOUR, 0, &json!({}))]).await;
    let p = ("organization_id", "p");
    let (day, hour) = (Granularity::Day, Granularity::Hour);
    for (of, bounds, dimension, fits) in [
        (O, (0, 3 * MIDNIGHT), day, (MIDNIGHT - DAY, MIDNIGHT)),
        (O, (-3 * MIDNIGHT, 0), day, (MIDNIGHT - DAY, MIDNIGHT)),
        (p, (1, MIDNIGHT), hour, (0, HOUR)),
    ] {
        let fits = Some((at(fits.0), at(fits.1)));
        let expected = CutUsage { dimension, fits };
        let all = sum_query(&[of], WindowLength::All, bounds);
        assert_eq!(cut(store, &all).await, expected, "{bounds:?}");
    }
    let fits = sum_query(&[O], WindowLength::All, (-HOUR, MIDNIGHT));
    assert_eq!(counted(store, &fits).await, 1);
}

pub async fn windows_that_are_finer_than_a_usage_are_told(store: &Shared) {
    let store = &**store;
    keep(store, [of_day(0, MIDNIGHT)]).await;
    let finer = sum_query(&[O], WindowLength::Hour, (0, MIDNIGHT));
    let expected = CutUsage {
        dimension: Granularity::Day,
        fits: None,
    };
    assert_eq!(cut(store, &finer).await, expected);
}

pub async fn what_is_not_asked_for_is_not_cut(store: &Shared) {
    let store = &**store;
    keep(store, [of_day(0, MIDNIGHT)]).await;
    let of_other = sum_query(&[O, ("plan_id", "other")], WindowLength::Hour, (0, HOUR));
    let earlier = SumQuery {
        accepted_to: Some(at(0)),
        ..sum_query(&[O], WindowLength::Hour, (0, HOUR))
    };
    let before = sum_query(&[O], WindowLength::Hour, (-HOUR, 0));
    for query in [of_other, earlier, before] {
        assert_eq!(counted(store, &query).await, 0);
    }
}
