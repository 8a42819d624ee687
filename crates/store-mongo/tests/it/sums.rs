//! Sums of usages of the ledger.

use sampler_domain::{
    Entry, EntryState, Id, Interval, Measure, Measures, Quantity, SpanId, WindowLength,
};
use sampler_store::{Reading, SumPosition, SumQuery, SumRow, TargetFilter};
use serde_json::{Value, json};

use sampler_store_testing::support::{
    Changing, Store, at, done, failure, id, plan_to, refusal, started, target, unique,
};

use crate::support::store_and_spans;

const MINUTE: i64 = 60_000;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;

/// A usage of an hour or so that Abacus has accepted: of this organization, resource and instance,
/// from and to so many ms after [`at`].
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
        version: 2,
        planned_at: end,
        attempts: 1,
        refused_at: None,
        accepted_at: Some(end.plus(5)),
        counted_at: None,
        set_aside_at: None,
        resent_at: None,
        earlier_rounds: Vec::new(),
        skipped_at: None,
        state: EntryState::Accepted,
        status: Some(202),
        location: None,
        error: None,
        unanswered: false,
        withheld: false,
        resend: None,
        question: None,
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

async fn keep(store: &dyn Store, entries: impl IntoIterator<Item = Entry>) {
    for entry in entries {
        store.write_entry(entry, 4_000 * DAY).await.unwrap();
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
        states: SumQuery::BILLED.to_vec(),
        target,
        resources: None,
        length,
        windows: length.windows(at(from), at(to), 366).expect("few"),
        group_by: group_by.to_vec(),
        after: None,
        limit: 1_000,
    }
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

/// The rows of all pages; and where the pages after the first began.
async fn pages(store: &dyn Store, query: &SumQuery) -> (Vec<Value>, Vec<SumPosition>) {
    let (mut query, mut rows, mut starts) = (query.clone(), Vec::new(), Vec::new());
    loop {
        let page = store.sums(&query).await.unwrap();
        assert!(page.rows.len() <= query.limit);
        rows.extend(page.rows.iter().map(shown));
        query.after = page.next;
        match &query.after {
            Some(next) => starts.push(next.clone()),
            None => return (rows, starts),
        }
    }
}

/// The rows, however long the pages are.
async fn sums(store: &dyn Store, query: &SumQuery) -> Vec<Value> {
    let (all, _) = pages(store, query).await;
    for limit in 1..=3 {
        let query = SumQuery {
            limit,
            ..query.clone()
        };
        assert_eq!(pages(store, &query).await.0, all, "{limit}: {query:?}");
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
            // Taken back in part, and of another size.
            usage(["o", "r", "one"], 2 * HOUR, HOUR + MINUTE, &memory(2)),
            usage(["o", "r", "two"], 0, HOUR, &memory(3)),
            usage(["o", "s", "one"], 0, HOUR, &json!({ "cpu": 0.5 })),
            usage(["o", "s", "one"], HOUR, 2 * HOUR, &json!({})),
            usage(["p", "r", "one"], 13 * HOUR, 14 * HOUR, &memory(7)),
        ],
    )
    .await;
    let o = ("organization_id", "o");
    let whole = (0, 24 * HOUR);
    let by_hour = |group_by| query(&[o], WindowLength::Hour, whole, group_by);
    let expected = json!([
        [0.0, ["r"], 2, 2 * HOUR, { "memory": 5 * HOUR }],
        [0.0, ["s"], 1, HOUR, { "cpu": HOUR as f64 / 2.0 }],
        [1.0, ["r"], 2, MINUTE, { "memory": 2 * MINUTE }],
        [1.0, ["s"], 1, HOUR, {}],
    ]);
    assert_eq!(
        json!(sums(store, &by_hour(&["resource_id"])).await),
        expected
    );
    let expected = json!([
        [0.0, ["one", "r"], 1, HOUR, { "memory": 2 * HOUR }],
        [0.0, ["one", "s"], 1, HOUR, { "cpu": HOUR as f64 / 2.0 }],
        [0.0, ["two", "r"], 1, HOUR, { "memory": 3 * HOUR }],
        [1.0, ["one", "r"], 2, MINUTE, { "memory": 2 * MINUTE }],
        [1.0, ["one", "s"], 1, HOUR, {}],
    ]);
    let groups = by_hour(&["resource_instance_id", "resource_id"]);
    assert_eq!(json!(sums(store, &groups).await), expected);
    let cpu = HOUR as f64 / 2.0;
    let both =
        json!([0.0, [], 6, 4 * HOUR + MINUTE, { "cpu": cpu, "memory": 5 * HOUR + 2 * MINUTE }]);
    let all = query(&[o], WindowLength::All, whole, &[]);
    assert_eq!(sums(store, &all).await, [both]);
    // A day ends twelve hours after noon; a month later.
    let r = ("resource_id", "r");
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
    conditions_apply(store).await;
}

async fn conditions_apply(store: &dyn Store) {
    let one = ("resource_instance_id", "one");
    let counts = async |conditions: &[(&str, &str)], range, change: fn(&mut SumQuery)| {
        let mut query = query(conditions, WindowLength::All, range, &[]);
        change(&mut query);
        let rows = sums(store, &query).await;
        rows.first().map_or(0, |row| row[2].as_i64().unwrap_or(0))
    };
    let whole = (0, 24 * HOUR);
    let none: fn(&mut SumQuery) = |_| {};
    assert_eq!(counts(&[one], whole, none).await, 6);
    assert_eq!(
        counts(&[one, ("organization_id", "p")], whole, none).await,
        1
    );
    assert_eq!(counts(&[one, ("plan_id", "other")], whole, none).await, 0);
    assert_eq!(
        counts(&[one], whole, |it| it.resources = Some(vec![id("s")])).await,
        2
    );
    assert_eq!(
        counts(&[one], whole, |it| it.resources = Some(Vec::new())).await,
        0
    );
    // By the timestamp, which is in the middle: the first moment is in, the last one is not.
    let half = HOUR / 2;
    assert_eq!(counts(&[one], (half, half + 1), none).await, 2);
    assert_eq!(counts(&[one], (half + 1, 3 * half), none).await, 0);
    assert_eq!(counts(&[one], (half + 1, 3 * half + 1), none).await, 2);
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
    let query = query(
        &[o],
        WindowLength::Hour,
        (0, 10 * HOUR),
        &["resource_instance_id"],
    );
    let rows = sums(store, &query).await;
    let groups: Vec<&str> = rows.iter().filter_map(|row| row[1][0].as_str()).collect();
    assert_eq!(groups, [names, names, names].concat());
    // One that comes behind the cursor is shown, one before it is not; the others are shown once.
    let mut query = SumQuery { limit: 4, ..query };
    let first = store.sums(&query).await.unwrap();
    query.after = first.next;
    keep(
        store,
        [
            usage(["o", "r", "0"], 0, HOUR, &json!({})),
            usage(["o", "r", "b"], 0, HOUR, &json!({})),
        ],
    )
    .await;
    let (rest, _) = pages(store, &query).await;
    assert_eq!(rest.len(), 3 * names.len() - 4 + 1);
    // A window with no row of its own.
    query.after = Some(SumPosition {
        window: at(2 * HOUR),
        group: None,
    });
    assert_eq!(pages(store, &query).await.0.len(), names.len());
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
        (vec![(json!(-two_to_53), 1_024)], json!(i64::MIN)),
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
        (
            vec![(json!(9_007_199_254_740_994.0), 3)],
            json!(27_021_597_764_222_982_i64),
        ),
        // 2 and 2.0 are one number.
        (
            vec![(json!(2), 3), (json!(2.0), 5), (json!(2), -1)],
            json!(14),
        ),
        (vec![(json!(0.5), 3), (json!(1), 4)], json!(5.5)),
        (vec![(json!(0.1), 10), (json!(0.1), 20)], json!(3.0)),
        (vec![(json!(1e300), 10)], json!(1e300 * 10.0)),
        (vec![(json!(1), 10), (json!("8 GB"), 10)], Value::Null),
        (vec![(json!({ "a": 1 }), 1)], Value::Null),
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
        let count = parts.len();
        assert_eq!(
            rows,
            [json!([0.0, [], count, total, { "m": expected }])],
            "{parts:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sums_are_of_the_states_that_are_asked_for() {
    let (store, _) = store_and_spans("sums_states").await;
    let states = [
        EntryState::Accepted,
        EntryState::Counted,
        EntryState::SetAside,
        EntryState::Skipped,
    ];
    let of = |state| Entry {
        state,
        ..usage(["o", "r", "i"], 0, HOUR, &json!({}))
    };
    keep(&store, states.map(of)).await;
    let organization = [("organization_id", "o")];
    let mut query = query(&organization, WindowLength::All, (0, DAY), &[]);
    let billed = sums(&store, &query).await;
    assert_eq!(billed[0][2], json!(2));
    for state in states {
        query.states = vec![state];
        assert_eq!(sums(&store, &query).await[0][2], json!(1), "{state:?}");
    }
}

/// A refused usage has no entry: its span has it planned.
#[tokio::test(flavor = "multi_thread")]
async fn sums_of_refused_usages_are_those_that_spans_have_planned() {
    let (store, _) = store_and_spans("sums").await;
    let store = &store;
    let refused = started(store, "refused", "a", 0).await;
    let planned = plan_to(&refused, HOUR);
    let refused = done(store.plan(&refused, planned, at(HOUR), at(HOUR)).await);
    done(
        store
            .failed(&refused, refusal("full", HOUR, at(2 * HOUR)))
            .await,
    );
    // One that only waits is not refused.
    let waits = started(store, "waits", "b", 0).await;
    let planned = plan_to(&waits, HOUR);
    let waits = done(store.plan(&waits, planned, at(HOUR), at(HOUR)).await);
    done(store.failed(&waits, failure("away", at(2 * HOUR))).await);
    let organization = refused.target.organization_id.as_str().to_owned();
    let mut query = query(
        &[("organization_id", &organization)],
        WindowLength::Hour,
        (0, 2 * HOUR),
        &["resource_instance_id"],
    );
    assert_eq!(sums(store, &query).await, Vec::<Value>::new());
    query.states = vec![EntryState::Refused, EntryState::Skipped];
    let rows = sums(store, &query).await;
    assert_eq!(rows.len(), 1, "{rows:?}");
    assert_eq!(rows[0][1], json!(["a"]));
    assert_eq!((&rows[0][2], &rows[0][3]), (&json!(1), &json!(HOUR)));
}
