//! Bills that are right, however they came about.

use proptest::prelude::*;
use sampler_verify::{FindingKind, Granularity, Used, Verdict};

use crate::truth::{DAY, HOUR, Ledger, NOW, bill, ledger, policy, used};

fn kinds(verdict: &Verdict) -> Vec<FindingKind> {
    verdict
        .findings
        .iter()
        .map(|finding| finding.kind)
        .collect()
}

/// A complete span of some days, one usage an hour, that ended `ago` ms before now.
fn complete(ago: i64) -> (Used, Ledger) {
    let end = NOW - ago;
    let used = used(end - 3 * DAY + 1_234, Some(end));
    let ledger = bill(&used, HOUR, true, NOW);
    (used, ledger)
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
        let policy = sampler_verify::Policy { granularity: Some(granularity), ..policy() };
        let verdict = ledger.check_by(&used, &policy);
        prop_assert_eq!(kinds(&verdict), []);
        let until = if is_open { ledger.span.sampled_to } else { end };
        prop_assert_eq!(verdict.amounts.used, i128::from(until - start));
        prop_assert_eq!(verdict.amounts.billed, verdict.amounts.used);
        prop_assert_eq!(verdict.amounts.difference, 0);
        prop_assert_eq!(verdict.amounts.usages, ledger.entries.len() as u64);
    }

    /// Whatever has expired of an old span: only the span stands for it.
    #[test]
    fn what_has_expired_is_told(gone in 1_usize..=74, is_open: bool) {
        let (mut used, mut ledger) = complete(40 * DAY);
        if is_open {
            used = Used { end: None, end_id: None, ..used };
            ledger = bill(&used, HOUR, false, NOW);
        }
        let all = ledger.entries.len();
        let gone = gone.min(all);
        let billed: i128 = ledger.entries.drain(..gone).map(|it| i128::from(it.duration)).sum();
        let verdict = ledger.check(&used);
        prop_assert_eq!(kinds(&verdict), [FindingKind::Expired]);
        prop_assert_eq!(verdict.amounts.difference, 0);
        prop_assert_eq!(verdict.amounts.expired, billed);
        prop_assert_eq!(verdict.amounts.usages, (all - gone) as u64);
        prop_assert_eq!(verdict.amounts.billed, verdict.amounts.used);
    }

    /// The order in which usages were accepted says nothing: some were sent again.
    #[test]
    fn usages_fit_in_any_order(order in Just((0..74_usize).collect::<Vec<_>>()).prop_shuffle()) {
        let (used, mut ledger) = complete(DAY);
        let all = ledger.entries.clone();
        ledger.entries = order.iter().filter_map(|place| all.get(*place).cloned()).collect();
        prop_assert_eq!(ledger.entries.len(), all.len());
        prop_assert_eq!(kinds(&ledger.check(&used)), []);
    }
}

#[test]
fn what_is_given_up_is_neither_billed_nor_missing() {
    let (used, mut ledger) = complete(DAY);
    ledger.skip(5);
    let verdict = ledger.check(&used);
    assert_eq!(kinds(&verdict), [FindingKind::Skipped]);
    assert_eq!(verdict.amounts.skipped, i128::from(HOUR));
    assert_eq!(verdict.amounts.difference, 0);
    assert_eq!(verdict.amounts.usages, ledger.entries.len() as u64);
}

/// What is sent again counts once it is accepted, which may not be noted yet.
#[test]
fn what_is_sent_again_is_not_billed_yet() {
    let (used, mut ledger) = complete(DAY);
    let usage = ledger.entries[5].clone();
    ledger.skip(5);
    ledger.resend();
    let verdict = ledger.check(&used);
    assert_eq!(kinds(&verdict), [FindingKind::Behind]);
    assert_eq!(verdict.amounts.skipped, i128::from(HOUR));
    assert_eq!(verdict.amounts.difference, 0);
    ledger.entries.push(usage);
    let verdict = ledger.check(&used);
    assert_eq!(kinds(&verdict), [FindingKind::Behind]);
    let (skipped, difference) = (verdict.amounts.skipped, verdict.amounts.difference);
    assert_eq!((skipped, difference), (0, 0));
}

/// A worker may die between the entry and the record, and an operator may skip after that.
#[test]
fn a_usage_that_was_accepted_stands_beside_a_range_without_an_answer() {
    let (used, mut ledger) = complete(DAY);
    let usage = ledger.entries[5].clone();
    ledger.skip_unanswered(5);
    ledger.entries.push(usage);
    let verdict = ledger.check(&used);
    assert_eq!(kinds(&verdict), [FindingKind::Unanswered]);
    assert_eq!(verdict.amounts.difference, 0);
}

/// A late stop trims what is skipped: nothing is billed, and nothing taken back.
#[test]
fn a_late_stop_over_what_was_skipped_needs_no_usage() {
    let used = used(NOW - DAY, Some(NOW - 5 * HOUR - HOUR / 2));
    let mut ledger = bill(&used, HOUR, true, NOW);
    let back = ledger.entries.pop().unwrap();
    assert!(back.duration < 0);
    let last = ledger.entries.len() - 1;
    ledger.skip(last);
    let proof = &mut ledger.span.proof;
    proof.skipped += back.duration;
    proof.billed -= back.duration;
    ledger.span.excluded[0].back_to = used.end;
    let verdict = ledger.check(&used);
    assert_eq!(kinds(&verdict), [FindingKind::Skipped]);
    assert_eq!(verdict.amounts.difference, 0);
}

/// Whoever bills by hand what was skipped is told what the upstream may count, also once the usage has expired.
#[test]
fn what_abacus_may_count_is_a_sum_of_its_own() {
    let (used, mut ledger) = complete(40 * DAY);
    ledger.skip(1);
    ledger.skip_unanswered(2);
    let verdict = ledger.check(&used);
    assert!(verdict.fits(), "{verdict:#?}");
    assert_eq!(
        kinds(&verdict),
        [FindingKind::Skipped, FindingKind::Unanswered]
    );
    let sums = |verdict: &Verdict| (verdict.amounts.skipped, verdict.amounts.unanswered);
    let skipped = (i128::from(2 * HOUR), i128::from(HOUR));
    assert_eq!(sums(&verdict), skipped);
    ledger.entries.drain(..5);
    let verdict = ledger.check(&used);
    assert_eq!(
        kinds(&verdict),
        [
            FindingKind::Skipped,
            FindingKind::Unanswered,
            FindingKind::Expired
        ]
    );
    assert_eq!(sums(&verdict), skipped);
}

#[test]
fn a_span_may_be_skipped_as_a_whole() {
    let end = NOW - 40 * DAY;
    let used = used(end - HOUR / 2, Some(end));
    let mut ledger = bill(&used, HOUR, false, NOW);
    ledger.skip(0);
    let verdict = ledger.check(&used);
    assert_eq!(kinds(&verdict), [FindingKind::Skipped]);
    assert_eq!(verdict.amounts.skipped, i128::from(HOUR / 2));
    assert_eq!(verdict.amounts.difference, 0);
}

#[test]
fn what_comes_next_bills_nothing_yet() {
    let used = used(NOW - DAY, None);
    let mut ledger = bill(&used, HOUR, false, NOW);
    let amounts = ledger.check(&used).amounts;
    ledger.plan(HOUR);
    let verdict = ledger.check(&used);
    assert_eq!(kinds(&verdict), []);
    assert_eq!(verdict.amounts, amounts);
}

/// A usage is recorded before its execution is noted on the span.
#[test]
fn a_usage_may_be_one_ahead_of_its_span() {
    let used = used(NOW - DAY, None);
    let mut ledger = bill(&used, HOUR, false, NOW - 2 * HOUR);
    let next = ledger.plan(HOUR);
    ledger.entries.push(next);
    let verdict = ledger.check(&used);
    assert_eq!(kinds(&verdict), [FindingKind::Behind, FindingKind::Behind]);
    assert!(verdict.may_settle());
    assert_eq!(verdict.amounts.difference, 0);
}

#[test]
fn sampling_that_is_behind_is_told() {
    let open = used(NOW - DAY, None);
    let behind = bill(&open, HOUR, false, NOW - 2 * HOUR);
    assert_eq!(kinds(&behind.check(&open)), [FindingKind::Behind]);
    assert!(!behind.check(&open).may_settle());
    let policy_of_months = sampler_verify::Policy {
        granularity: None,
        ..policy()
    };
    assert_eq!(kinds(&behind.check_by(&open, &policy_of_months)), []);

    let stopped = used(NOW - DAY, Some(NOW - HOUR));
    let intervals = [(NOW - DAY, NOW - DAY + HOUR)];
    let mut half = ledger(&stopped, &intervals);
    half.span.state = "stopped".into();
    let verdict = half.check_by(&stopped, &policy_of_months);
    assert_eq!(kinds(&verdict), [FindingKind::Behind]);
    assert_eq!(verdict.amounts.used, i128::from(HOUR));

    let just_now = used(NOW - DAY, Some(NOW - 1_000));
    let mut fresh = bill(&just_now, HOUR, false, NOW);
    fresh.span.state = "stopped".into();
    assert_eq!(kinds(&fresh.check(&just_now)), []);
}

/// Sampling that is behind by more than its window and an hour is a fault.
#[test]
fn sampling_that_has_stopped_is_wrong() {
    let open = used(NOW - 3 * DAY, None);
    // The next usage was due an hour after the last one ended.
    for (ago, expected) in [
        (3 * HOUR, FindingKind::Behind),
        (4 * HOUR, FindingKind::Overdue),
    ] {
        let ledger = bill(&open, HOUR, false, NOW - ago);
        assert_eq!(kinds(&ledger.check(&open)), [expected], "{ago}");
    }
    // In months it is not due yet.
    let of_months = sampler_verify::Policy {
        granularity: None,
        ..policy()
    };
    let behind = bill(&open, HOUR, false, NOW - 2 * DAY);
    assert_eq!(kinds(&behind.check_by(&open, &of_months)), []);
    // Nobody has billed the last month, although this one is three weeks old.
    let open = used(NOW - 40 * DAY, None);
    let nothing = ledger(&open, &[]);
    assert_eq!(
        kinds(&nothing.check_by(&open, &of_months)),
        [FindingKind::Overdue]
    );
    let of_months = sampler_verify::Policy {
        granularity: Some(Granularity::Month),
        ..policy()
    };
    assert_eq!(
        kinds(&nothing.check_by(&open, &of_months)),
        [FindingKind::Behind]
    );
    // An operator who gives sampling more time has it.
    let patient = sampler_verify::Policy {
        allowance: DAY,
        ..policy()
    };
    let used = used(NOW - 2 * DAY, Some(NOW - 20 * HOUR));
    let mut late = bill(&used, HOUR, false, NOW);
    late.span.state = "stopped".into();
    late.cut_off(late.entries.len() - 1);
    assert_eq!(kinds(&late.check_by(&used, &patient)), []);
    let verdict = late.check(&used);
    assert_eq!(kinds(&verdict), [FindingKind::Overdue, FindingKind::Gap]);
    assert_eq!(verdict.amounts.difference, i128::from(HOUR));
}

/// A stop that takes no effect: usages are billed on.
#[test]
fn a_stop_that_takes_no_effect_is_wrong() {
    let stopped = used(NOW - 12 * DAY, Some(NOW - 10 * DAY));
    let open = sampler_verify::Used {
        end: None,
        end_id: None,
        ..stopped.clone()
    };
    let mut ledger = bill(&open, HOUR, false, NOW);
    ledger.span.end = stopped.end;
    ledger.span.state = "stopped".into();
    for granularity in [Some(Granularity::Hour), Some(Granularity::Day), None] {
        let policy = sampler_verify::Policy {
            granularity,
            ..policy()
        };
        let verdict = ledger.check_by(&stopped, &policy);
        assert_eq!(
            kinds(&verdict),
            [FindingKind::Overdue, FindingKind::Overlap],
            "{granularity:?}"
        );
        assert!(
            verdict.may_settle(),
            "a worker may be about to take it back"
        );
        let amounts = verdict.amounts;
        assert_eq!(
            (amounts.used, amounts.difference),
            (i128::from(2 * DAY), -i128::from(10 * DAY))
        );
    }
    // Suspended or not: too much is billed.
    ledger.span.state = "suspended".into();
    let verdict = ledger.check(&stopped);
    assert_eq!(
        kinds(&verdict),
        [
            FindingKind::Suspended,
            FindingKind::Overdue,
            FindingKind::Overlap
        ]
    );
    // A stop of this minute has time: it is taken back.
    let just_now = sampler_verify::Used {
        end: Some(NOW - HOUR - HOUR / 2),
        ..stopped
    };
    ledger.span.end = just_now.end;
    ledger.span.state = "stopped".into();
    assert_eq!(kinds(&ledger.check(&just_now)), [FindingKind::Behind]);
}

/// What a suspended span lacks is known, and its operator was told.
#[test]
fn a_suspended_span_may_be_behind_for_as_long_as_it_is() {
    let used = used(NOW - 5 * DAY, Some(NOW - 3 * DAY));
    let mut ledger = bill(&used, HOUR, false, NOW);
    ledger.span.state = "suspended".into();
    ledger.cut_off(10);
    let verdict = ledger.check(&used);
    assert_eq!(
        kinds(&verdict),
        [FindingKind::Suspended, FindingKind::Behind]
    );
    let detail = &verdict.findings[1].detail;
    assert!(detail.contains("its stop"), "{detail}");
}

#[test]
fn usages_of_the_future_are_told() {
    let used = used(NOW - HOUR, None);
    let ledger = ledger(&used, &[(NOW - HOUR, NOW), (NOW, NOW + HOUR)]);
    assert_eq!(kinds(&ledger.check(&used)), [FindingKind::Behind]);
}

#[test]
fn a_suspended_span_waits_for_an_operator() {
    let used = used(NOW - DAY, None);
    let mut ledger = bill(&used, HOUR, false, NOW);
    ledger.span.state = "suspended".into();
    assert_eq!(kinds(&ledger.check(&used)), [FindingKind::Suspended]);
}

/// Quantities are compared by value, in any order.
#[test]
fn the_measures_of_a_usage_may_be_written_in_any_way() {
    let (used, mut ledger) = complete(DAY);
    for entry in &mut ledger.entries {
        entry.measured_usage.reverse();
        entry.measured_usage[1].quantity = sampler_verify::quantity::Quantity::Double(512.0);
    }
    assert_eq!(kinds(&ledger.check(&used)), []);
}
