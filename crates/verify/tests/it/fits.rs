//! Bills that are right, however they came about.

use proptest::prelude::*;
use sampler_verify::{Granularity, Kind, Used, Verdict};

use crate::truth::{DAY, HOUR, Ledger, NOW, bill, entry, ledger, policy, used};

fn kinds(verdict: &Verdict) -> Vec<Kind> {
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

    /// Whatever has expired of an old span: the proof stands for it.
    #[test]
    fn what_has_expired_is_told(gone in 1_usize..=74) {
        let (used, mut ledger) = complete(40 * DAY);
        let all = ledger.entries.len();
        let gone = gone.min(all);
        ledger.entries.drain(..gone);
        let verdict = ledger.check(&used);
        prop_assert_eq!(kinds(&verdict), [Kind::Expired]);
        prop_assert_eq!(verdict.amounts.difference, 0);
        prop_assert_eq!(verdict.amounts.expired, gone as u64);
        prop_assert_eq!(verdict.amounts.usages, (all - gone) as u64);
        prop_assert_eq!(verdict.amounts.billed, i128::from(3 * DAY - 1_234));
    }
}

#[test]
fn what_is_given_up_is_neither_billed_nor_missing() {
    let (used, mut ledger) = complete(DAY);
    ledger.entries[5].state = "skipped".into();
    ledger.entries[5].status = Some(400);
    ledger.span.proof.billed -= HOUR;
    ledger.span.proof.skipped += HOUR;
    let verdict = ledger.check(&used);
    assert_eq!(kinds(&verdict), [Kind::Skipped]);
    assert_eq!(verdict.amounts.skipped, i128::from(HOUR));
    assert_eq!(verdict.amounts.difference, 0);
}

#[test]
fn what_an_original_billed_is_told() {
    let (used, mut ledger) = complete(DAY);
    let since = ledger.entries[7].interval.start;
    ledger.entries.drain(..7);
    ledger.span.proof.since = since;
    let rest = ledger.span.sampled_to - since;
    (ledger.span.proof.used, ledger.span.proof.billed) = (rest, rest);
    ledger.span.proof.usages = ledger.entries.len() as u64;
    let verdict = ledger.check(&used);
    assert_eq!(kinds(&verdict), [Kind::TakenOver]);
    assert_eq!(verdict.amounts.used, i128::from(rest));
    assert_eq!(verdict.amounts.difference, 0);
}

/// An original sampled on for a while: what came before it is in the ledger, and not in the proof.
#[test]
fn what_an_original_billed_in_between_is_told() {
    let (used, mut ledger) = complete(DAY);
    let since = ledger.entries[7].interval.start;
    ledger.entries.drain(3..7);
    ledger.span.proof.since = since;
    let rest = ledger.span.sampled_to - since;
    (ledger.span.proof.used, ledger.span.proof.billed) = (rest, rest);
    ledger.span.proof.usages = ledger.entries.len() as u64 - 3;
    let verdict = ledger.check(&used);
    assert_eq!(kinds(&verdict), [Kind::TakenOver]);
    assert_eq!(verdict.amounts.used, i128::from(3 * DAY - 1_234 - 4 * HOUR));
    assert_eq!(verdict.amounts.difference, 0);
}

/// A span of an earlier release has neither entries nor totals.
#[test]
fn a_span_from_before_the_ledger_is_told() {
    let (used, mut ledger) = complete(DAY);
    ledger.entries.clear();
    let proof = &mut ledger.span.proof;
    (proof.since, proof.used, proof.billed, proof.usages) = (ledger.span.sampled_to, 0, 0, 0);
    let verdict = ledger.check(&used);
    assert_eq!(kinds(&verdict), [Kind::TakenOver]);
    assert_eq!((verdict.amounts.used, verdict.amounts.difference), (0, 0));
}

#[test]
fn what_comes_next_bills_nothing_yet() {
    let used = used(NOW - DAY, None);
    let before = bill(&used, HOUR, false, NOW);
    let amounts = before.check(&used).amounts;
    for (state, status, expected) in [
        ("planned", None, vec![]),
        ("refused", Some(400), vec![Kind::Refused]),
    ] {
        let mut ledger = before.clone();
        ledger.plan(HOUR, state);
        ledger.entries.last_mut().unwrap().status = status;
        let verdict = ledger.check(&used);
        assert_eq!(kinds(&verdict), expected, "{state}");
        assert_eq!(verdict.amounts, amounts);
    }
}

/// A usage is recorded before its execution is noted on the span.
#[test]
fn a_usage_may_be_one_ahead_of_its_span() {
    let used = used(NOW - DAY, None);
    let mut ledger = bill(&used, HOUR, false, NOW - 2 * HOUR);
    ledger.plan(HOUR, "accepted");
    let verdict = ledger.check(&used);
    assert_eq!(kinds(&verdict), [Kind::NotNotedYet, Kind::Behind]);
    assert!(verdict.may_settle());
    assert_eq!(verdict.amounts.difference, 0);
}

#[test]
fn sampling_that_is_behind_is_told() {
    let open = used(NOW - DAY, None);
    let behind = bill(&open, HOUR, false, NOW - 2 * HOUR);
    assert_eq!(kinds(&behind.check(&open)), [Kind::Behind]);
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
    assert_eq!(kinds(&verdict), [Kind::Behind]);
    assert_eq!(verdict.amounts.used, i128::from(HOUR));

    let just_now = used(NOW - DAY, Some(NOW - 1_000));
    let mut fresh = bill(&just_now, HOUR, false, NOW);
    fresh.span.state = "stopped".into();
    assert_eq!(kinds(&fresh.check(&just_now)), []);
}

#[test]
fn usages_of_the_future_are_told() {
    let used = used(NOW - HOUR, None);
    let ledger = ledger(&used, &[(NOW - HOUR, NOW), (NOW, NOW + HOUR)]);
    assert_eq!(kinds(&ledger.check(&used)), [Kind::Ahead]);
}

#[test]
fn a_suspended_span_waits_for_an_operator() {
    let used = used(NOW - DAY, None);
    let mut ledger = bill(&used, HOUR, false, NOW);
    ledger.span.state = "suspended".into();
    assert_eq!(kinds(&ledger.check(&used)), [Kind::Suspended]);
}

#[test]
fn target_and_quantities_of_a_usage_may_be_in_the_ledger() {
    let used = used(NOW - HOUR, Some(NOW));
    let mut ledger = ledger(&used, &[]);
    let mut one = entry(&ledger.span.id, 1, (NOW - HOUR, NOW));
    one.target = Some(used.target.clone());
    one.measured_usage = Some(used.measures.clone());
    ledger.entries.push(one);
    ledger.span.sampled_to = NOW;
    let proof = &mut ledger.span.proof;
    (proof.used, proof.billed, proof.usages) = (HOUR, HOUR, 1);
    assert_eq!(kinds(&ledger.check(&used)), []);
}
