//! Bills that are right, however they came about.

use proptest::prelude::*;
use sampler_verify::FindingKind::{Behind, Expired, Overdue, Skipped, Suspended, Unanswered};
use sampler_verify::moment::{DAY, HOUR};
use sampler_verify::{FindingKind, Granularity, Policy, Report, Used};
use serde_json::json;

use crate::truth::{Ledger, NOW, bill, kinds, ledger, measure, policy, used};

/// A complete span of some days, one usage an hour, that ended `ago` ms before now.
fn complete(ago: i64) -> (Used, Ledger) {
    let end = NOW - ago;
    let used = used(end - 3 * DAY + 1_234, Some(end));
    let ledger = bill(&used, HOUR, true, NOW);
    (used, ledger)
}

fn by(granularity: Option<Granularity>) -> Policy {
    Policy {
        granularity,
        ..policy()
    }
}

/// A sum of some of the quantities would look like the sum of all.
#[test]
fn a_measure_that_is_not_whole_somewhere_is_not_added_up() {
    let rows = [json!(512), json!(512.5)].map(|quantity| {
        let mut used = complete(0).0;
        used.measures[0].quantity = quantity;
        used.measures.push(measure("nodes", 1));
        bill(&used, HOUR, false, NOW).check(&used)
    });
    let totals = Report::of(rows.into(), Vec::new(), false).totals;
    assert!(totals.measures.keys().eq(["nodes"]));
    assert!(totals.not_added.iter().eq(["memory"]));
    assert_eq!(totals.measures["nodes"].billed, totals.duration.billed);
}

proptest! {
    #[test]
    fn what_is_cut_by_windows_fits(
        start in NOW - 40 * DAY..NOW,
        length in 0..5 * DAY,
        is_open: bool,
        is_late: bool,
        (window, granularity) in prop_oneof![
            Just((HOUR, Granularity::Hour)),
            Just((DAY, Granularity::Day)),
        ],
    ) {
        let end = (start + length).min(NOW);
        let used = used(start, (!is_open).then_some(end));
        let ledger = bill(&used, window, is_late, NOW);
        let row = ledger.check_by(&used, &by(Some(granularity)));
        prop_assert_eq!(kinds(&row), []);
        let until = if is_open { ledger.span.sampled_to } else { end };
        prop_assert_eq!(row.amounts.used, i128::from(until - start));
        prop_assert_eq!((row.amounts.billed, row.amounts.difference), (row.amounts.used, 0));
        prop_assert_eq!(row.usages, ledger.entries.len() as u64);
    }

    /// Whatever has expired of an old span: only the span stands for it.
    #[test]
    fn what_has_expired_is_told(gone in 1_usize..=74, is_open: bool) {
        let (mut used, mut ledger) = complete(40 * DAY);
        if is_open {
            used = Used { end: None, end_id: None, ..used };
            ledger = bill(&used, HOUR, false, NOW);
        }
        let gone = gone.min(ledger.entries.len());
        let billed: i128 = ledger.entries.drain(..gone).map(|it| i128::from(it.duration)).sum();
        let row = ledger.check(&used);
        prop_assert_eq!(kinds(&row), [Expired]);
        prop_assert_eq!((row.expired, row.amounts.difference), (billed, 0));
        prop_assert_eq!(row.amounts.billed, row.amounts.used);
    }

    /// The order in which usages were accepted says nothing: some were sent again. Nor does the way in which their
    /// numbers are written.
    #[test]
    fn usages_fit_in_any_order(order in Just((0..74_usize).collect::<Vec<_>>()).prop_shuffle()) {
        let (used, mut ledger) = complete(DAY);
        let all = ledger.entries.clone();
        ledger.entries = order.iter().filter_map(|place| all.get(*place).cloned()).collect();
        prop_assert_eq!(ledger.entries.len(), all.len());
        for entry in &mut ledger.entries {
            let text = json!(entry.measured_usage).to_string().replace("512", "5.12e2");
            entry.measured_usage = serde_json::from_str(&text).unwrap();
            entry.measured_usage.reverse();
        }
        prop_assert_eq!(kinds(&ledger.check(&used)), []);
    }
}

/// What an operator and the workers did to a complete span, and what is worth knowing then.
type Story = (fn(&mut Ledger), &'static [FindingKind]);

const STORIES: &[Story] = &[
    // One is given up.
    (|it| it.skip(5), &[Skipped]),
    // One is sent again; accepted, and not noted yet.
    (
        |it| {
            let usage = it.entries[5].clone();
            it.skip(5);
            it.resend();
            it.entries.push(usage);
        },
        &[Behind],
    ),
    // A worker died between entry and record, and an operator skips after that.
    (
        |it| {
            let usage = it.entries[5].clone();
            it.skip_unanswered(5);
            it.entries.push(usage);
        },
        &[Unanswered],
    ),
    // One is sent again, and not yet accepted.
    (
        |it| {
            it.skip(5);
            it.resend();
        },
        &[Behind],
    ),
    (|it| it.span.state = "suspended".into(), &[Suspended]),
];

#[test]
fn what_operators_do_leaves_no_difference() {
    for (number, (act, expected)) in STORIES.iter().enumerate() {
        let (used, mut ledger) = complete(DAY);
        act(&mut ledger);
        let row = ledger.check(&used);
        assert_eq!(kinds(&row), *expected, "{number}");
        assert_eq!(row.amounts.difference, 0, "{number}");
    }
}

/// A late stop trims what is skipped: nothing is billed, and nothing taken back.
#[test]
fn a_late_stop_over_what_was_skipped_needs_no_usage() {
    let used = used(NOW - DAY, Some(NOW - 5 * HOUR - HOUR / 2));
    let mut ledger = bill(&used, HOUR, true, NOW);
    let back = ledger.entries.pop().unwrap();
    assert!(back.duration < 0);
    ledger.skip(ledger.entries.len() - 1);
    let proof = &mut ledger.span.proof;
    proof.skipped += back.duration;
    proof.billed -= back.duration;
    ledger.span.excluded[0].back_to = used.end;
    let row = ledger.check(&used);
    assert_eq!((kinds(&row), row.amounts.difference), (vec![Skipped], 0));
}

/// Whoever bills by hand what was skipped is told what the upstream may count, also once the usage has expired.
#[test]
fn what_the_upstream_may_count_is_a_sum_of_its_own() {
    let (used, mut ledger) = complete(40 * DAY);
    ledger.skip(1);
    ledger.skip_unanswered(2);
    let row = ledger.check(&used);
    assert_eq!(kinds(&row), [Skipped, Unanswered]);
    let amounts = row.amounts;
    let skipped = (i128::from(2 * HOUR), i128::from(HOUR));
    assert_eq!((amounts.skipped, amounts.unanswered), skipped);
    ledger.entries.drain(..5);
    let row = ledger.check(&used);
    assert_eq!(kinds(&row), [Expired, Skipped, Unanswered]);
    assert_eq!(row.amounts, amounts);
}

/// Sampling that is behind is told; by more than its window and an hour, it is a fault.
#[test]
fn sampling_that_has_stopped_is_wrong() {
    let hour = policy();
    let (unknown, month) = (by(None), by(Some(Granularity::Month)));
    let judged =
        |used: &Used, ledger: &Ledger, policy: &Policy| kinds(&ledger.check_by(used, policy));
    let open = used(NOW - 3 * DAY, None);
    let sampled = |ago| bill(&open, HOUR, false, NOW - ago);
    assert_eq!(judged(&open, &sampled(HOUR), &hour), []);
    assert_eq!(judged(&open, &sampled(2 * HOUR), &hour), [Behind]);
    assert_eq!(judged(&open, &sampled(3 * HOUR), &hour), [Behind]);
    assert_eq!(judged(&open, &sampled(4 * HOUR), &hour), [Overdue]);
    // Not due in months.
    assert_eq!(judged(&open, &sampled(2 * DAY), &unknown), []);
    let last_month = used(NOW - 40 * DAY, None);
    let nothing = ledger(&last_month, &[]);
    assert_eq!(judged(&last_month, &nothing, &unknown), [Overdue]);
    assert_eq!(judged(&last_month, &nothing, &month), [Behind]);
    let begun = used(NOW - HOUR, None);
    let ahead = ledger(&begun, &[(NOW - HOUR, NOW), (NOW, NOW + HOUR)]);
    assert_eq!(judged(&begun, &ahead, &hour), [Behind], "in the future");
    // Not to its stop.
    let stopped = used(NOW - 2 * DAY, Some(NOW - 20 * HOUR));
    let mut late = bill(&stopped, HOUR, false, NOW);
    late.span.state = "stopped".into();
    late.cut_off(late.entries.len() - 1);
    assert_eq!(judged(&stopped, &late, &hour), [Overdue]);
    assert_eq!(late.check(&stopped).amounts.difference, i128::from(HOUR));
    let patient = Policy {
        allowance: DAY,
        ..hour
    };
    assert_eq!(judged(&stopped, &late, &patient), []);
    late.span.state = "suspended".into();
    assert_eq!(judged(&stopped, &late, &hour), [Behind, Suspended]);
    let just_now = used(NOW - DAY, Some(NOW - 1_000));
    let mut fresh = bill(&just_now, HOUR, false, NOW);
    fresh.span.state = "stopped".into();
    assert_eq!(judged(&just_now, &fresh, &hour), []);
}

/// A stop that takes no effect: usages are billed on.
#[test]
fn a_stop_that_takes_no_effect_is_wrong() {
    let stopped = used(NOW - 12 * DAY, Some(NOW - 10 * DAY));
    let open = Used {
        end: None,
        ..stopped.clone()
    };
    let mut ledger = bill(&open, HOUR, false, NOW);
    ledger.span.end = stopped.end;
    ledger.span.state = "stopped".into();
    for granularity in [Some(Granularity::Hour), Some(Granularity::Day), None] {
        let row = ledger.check_by(&stopped, &by(granularity));
        assert_eq!(kinds(&row), [Overdue], "{granularity:?}");
        let amounts = (row.amounts.used, row.amounts.difference);
        assert_eq!(amounts, (i128::from(2 * DAY), -i128::from(10 * DAY)));
    }
    // Suspended or not: too much is billed.
    ledger.span.state = "suspended".into();
    assert_eq!(kinds(&ledger.check(&stopped)), [Overdue, Suspended]);
    // A stop of this minute has time: it is taken back.
    let just_now = Used {
        end: Some(NOW - HOUR - HOUR / 2),
        ..stopped
    };
    ledger.span.end = just_now.end;
    ledger.span.state = "stopped".into();
    assert_eq!(kinds(&ledger.check(&just_now)), [Behind]);
}

/// A million usages need little time and memory: only their ids are kept.
#[test]
fn a_long_ledger_is_one_stretch() {
    let used = used(NOW - 20_000 * HOUR, None);
    let ledger = bill(&used, HOUR, false, NOW);
    let row = ledger.check(&used);
    assert_eq!((kinds(&row), row.usages), (vec![], 20_000));
}
