//! Sums of the ledger: what they count, and that they cut no usage.

use sampler_domain::{Entry, Granularity, SpanId, Timestamp, WindowLength};
use sampler_store::{CutUsage, SumPage, SumQuery, SumRow, TargetFilter};

use crate::support::{Shared, Store, at, entry, id, new_span, start_event};

const HOUR: i64 = 3_600_000;
/// Of the day of the present, after it.
const MIDNIGHT: i64 = 12 * HOUR;

/// Keeps the entry of an interval, which was cut so, and accepted at its end.
async fn keep(store: &dyn Store, start: i64, end: i64, dimension: Granularity) {
    let mut event = start_event(Some("a"), "a", 0);
    event.measures = sampler_domain::Measures::default();
    let mut span = new_span(event).span;
    span.id = SpanId::Text("a".to_owned());
    let entry = Entry {
        dimension,
        ..entry(&span, start, end)
    };
    let expires_at = at(100_000 * HOUR);
    store.write_entry(&entry, expires_at, None).await.unwrap();
}

fn query(length: WindowLength, from: i64, to: i64) -> SumQuery {
    let mut target = TargetFilter::default();
    target.set("organization_id", id("organization"));
    SumQuery {
        target,
        accepted_to: None,
        resources: None,
        length,
        windows: length.windows(at(from), at(to), 100).expect("few windows"),
        group_by: Vec::new(),
        after: None,
        limit: 100,
    }
}

/// The usages and their durations, of each window.
fn rows(page: SumPage) -> Vec<(u64, String)> {
    let rows = page.rows.into_iter();
    let duration = |row: &SumRow| row.duration.number().expect("a number").to_string();
    rows.map(|row| (row.usages, duration(&row))).collect()
}

async fn sums(store: &dyn Store, query: &SumQuery) -> Vec<(u64, String)> {
    rows(store.sums(query).await.unwrap().expect("no usage is cut"))
}

async fn cut(store: &dyn Store, query: &SumQuery) -> CutUsage {
    let cut = store.sums(query).await.unwrap();
    cut.expect_err("a usage is cut")
}

pub async fn usages_add_up_by_windows_with_their_signs(store: &Shared) {
    let store = &**store;
    for (start, end) in [(0, HOUR), (HOUR, 2 * HOUR), (2 * HOUR, HOUR + 1)] {
        keep(store, start, end, Granularity::Hour).await;
    }
    let hours = sums(store, &query(WindowLength::Hour, 0, 3 * HOUR)).await;
    assert_eq!(hours, [(1, HOUR.to_string()), (2, "1".to_owned())]);
    let all = sums(store, &query(WindowLength::All, 0, 3 * HOUR)).await;
    assert_eq!(all, [(3, (HOUR + 1).to_string())]);
}

/// So the figures of an invoice can be had again.
pub async fn usages_that_were_accepted_later_do_not_count(store: &Shared) {
    let store = &**store;
    keep(store, 0, HOUR, Granularity::Hour).await;
    keep(store, HOUR, 2 * HOUR, Granularity::Hour).await;
    let by = async |accepted_to: Option<Timestamp>| {
        let query = SumQuery {
            accepted_to,
            ..query(WindowLength::All, 0, 3 * HOUR)
        };
        sums(store, &query).await.first().map_or(0, |row| row.0)
    };
    assert_eq!(by(None).await, 2);
    assert_eq!(by(Some(at(2 * HOUR))).await, 2);
    assert_eq!(by(Some(at(2 * HOUR - 1))).await, 1);
    assert_eq!(by(Some(at(HOUR - 1))).await, 0);
}

pub async fn a_bound_that_cuts_a_usage_is_told_with_the_times_that_fit(store: &Shared) {
    let store = &**store;
    keep(store, -HOUR, MIDNIGHT, Granularity::Day).await;
    let day = (at(MIDNIGHT - 24 * HOUR), at(MIDNIGHT));
    let expected = CutUsage {
        dimension: Granularity::Day,
        fits: Some(day),
    };
    for (from, to) in [(0, 3 * MIDNIGHT), (-3 * MIDNIGHT, 0)] {
        let all = query(WindowLength::All, from, to);
        assert_eq!(cut(store, &all).await, expected, "{from} {to}");
    }
    let fits = query(WindowLength::All, -HOUR, MIDNIGHT);
    assert_eq!(sums(store, &fits).await, [(1, (13 * HOUR).to_string())]);
}

pub async fn a_bound_that_cuts_a_correction_is_told_too(store: &Shared) {
    let store = &**store;
    keep(store, HOUR, 0, Granularity::Hour).await;
    let expected = CutUsage {
        dimension: Granularity::Hour,
        fits: Some((at(0), at(HOUR))),
    };
    let all = query(WindowLength::All, 1, MIDNIGHT);
    assert_eq!(cut(store, &all).await, expected);
}

pub async fn windows_that_are_finer_than_a_usage_are_told(store: &Shared) {
    let store = &**store;
    keep(store, 0, MIDNIGHT, Granularity::Day).await;
    let finer = query(WindowLength::Hour, 0, MIDNIGHT);
    let expected = CutUsage {
        dimension: Granularity::Day,
        fits: None,
    };
    assert_eq!(cut(store, &finer).await, expected);
}

pub async fn what_is_not_asked_for_is_not_cut(store: &Shared) {
    let store = &**store;
    keep(store, 0, MIDNIGHT, Granularity::Day).await;
    let mut of_other = query(WindowLength::Hour, 0, HOUR);
    of_other.target.set("plan_id", id("other"));
    let earlier = SumQuery {
        accepted_to: Some(at(0)),
        ..query(WindowLength::Hour, 0, HOUR)
    };
    let before = query(WindowLength::Hour, -HOUR, 0);
    for query in [of_other, earlier, before] {
        assert_eq!(sums(store, &query).await, []);
    }
}
