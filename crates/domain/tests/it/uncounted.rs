//! What is known not to count is not taken back, whatever is skipped or set aside, and whenever the stop is
//! dated.

use std::collections::BTreeMap;

use proptest::prelude::*;
use sampler_domain::{
    Action, Change, Contract, Correction, Driver, Entry, EntryState, Failure, Granularity,
    Interval, Resend, Resent, Skip, Step, Timestamp, UNCOUNTED_MAX, UncountedReason, next_step,
};
use uuid::Uuid;

use crate::support::{Sampled, granularity, moment, policy, scale, span};

/// The outcome of one forward usage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Counts,
    Skipped,
    SetAside,
}

fn outcome() -> impl Strategy<Value = Outcome> {
    prop_oneof![
        3 => Just(Outcome::Counts),
        1 => Just(Outcome::Skipped),
        1 => Just(Outcome::SetAside),
    ]
}

/// Carries out the planned interval; what is set aside is learnt at once.
fn carry_out(sampled: &mut Sampled, outcome: Outcome) {
    let planned = sampled.span.processing.planned.clone();
    let interval = planned.expect("it is planned").interval;
    match outcome {
        Outcome::Counts => {
            sampled.counted.push(interval);
            sampled.span = sampled.span.executed();
        }
        Outcome::Skipped => sampled.span = sampled.span.skipped(),
        Outcome::SetAside => {
            let set_aside = Change::SetAside { interval };
            sampled.span = sampled.span.executed().after(&set_aside);
        }
    }
}

/// Samples on to `now`, one outcome after the other.
fn sample(sampled: &mut Sampled, now: i64, granularity: Granularity, outcomes: &[Outcome]) {
    let mut outcomes = outcomes
        .iter()
        .copied()
        .chain(std::iter::repeat(Outcome::Counts));
    let policy = policy(granularity, 0);
    loop {
        match next_step(&sampled.span, moment(now), &policy) {
            Step::Execute(planned) if planned.withheld.is_none() => {
                carry_out(sampled, outcomes.next().expect("they go on"));
            }
            _ if !sampled.step(moment(now), &policy) => return,
            _ => {}
        }
    }
}

/// What counts in each window, ms.
fn windows(sampled: &Sampled, granularity: Granularity) -> BTreeMap<i64, i64> {
    let mut windows = BTreeMap::new();
    for interval in &sampled.counted {
        let window = granularity.window_of(interval.midpoint());
        *windows.entry(window.as_millis()).or_default() += interval.duration();
    }
    windows
}

/// How much of a window lies between two moments, ms.
fn overlap(granularity: Granularity, window: i64, from: i64, to: i64) -> i64 {
    let end = granularity.boundary_after(moment(window)).unwrap();
    (end.as_millis().min(to) - window.max(from)).max(0)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn no_window_counts_less_than_nothing_and_what_counts_was_used(
        granularity in granularity(),
        start in 0_i64..4_000_000_000_000,
        outcomes in prop::collection::vec(outcome(), 0..8),
        sampled_on in 0_i64..8_000,
        back in 0_i64..9_000,
    ) {
        let unit = scale(granularity) / 1_000;
        let now = start + sampled_on * unit;
        let mut sampled = Sampled::new(span(moment(start)));
        sample(&mut sampled, now, granularity, &outcomes);
        let end = (sampled.span.sampled_to().as_millis() - back * unit).max(start);
        sampled.span.end = Some(moment(end));
        let before = sampled.counted.len();
        sample(&mut sampled, now, granularity, &[]);
        prop_assert!(sampled.span.processing.complete);
        prop_assert_eq!(sampled.span.difference(), 0);
        for (window, counts) in windows(&sampled, granularity) {
            let used = overlap(granularity, window, start, end);
            prop_assert!(counts >= 0 && counts <= used, "{window}: {counts} of {used}");
        }
        // A window counts less than was used only if its usage did not count.
        let uncounted = outcomes.iter().any(|it| *it != Outcome::Counts);
        prop_assert!(uncounted || sampled.sum() == end - start);
        let of_known = |interval: &Interval| interval.duration() < 0;
        prop_assert!(sampled.counted[before..].iter().all(of_known));
    }
}

/// Three hours, of which the second does not count, and a stop that is dated before all of them.
fn three_hours(outcome: Outcome, end: i64) -> Sampled {
    let mut sampled = Sampled::new(span(moment(0)));
    let outcomes = [Outcome::Counts, outcome];
    sample(&mut sampled, 3 * HOUR, Granularity::Hour, &outcomes);
    sampled.span.end = Some(moment(end));
    sample(&mut sampled, 3 * HOUR, Granularity::Hour, &[]);
    sampled
}

const HOUR: i64 = 3_600_000;

#[test]
fn a_stop_before_a_skipped_usage_takes_back_what_counts_alone() {
    for outcome in [Outcome::Skipped, Outcome::SetAside] {
        let sampled = three_hours(outcome, HOUR / 2);
        let durations: Vec<i64> = sampled.counted.iter().map(|it| it.duration()).collect();
        assert_eq!(durations, [HOUR, HOUR, -HOUR, -HOUR / 2]);
        let totals = &sampled.span.processing.totals;
        assert_eq!((totals.billed, totals.skipped), (HOUR / 2, 0));
    }
}

#[test]
fn a_stop_within_a_skipped_usage_leaves_as_much_skipped_as_was_used() {
    let sampled = three_hours(Outcome::Skipped, HOUR + HOUR / 4);
    let totals = &sampled.span.processing.totals;
    assert_eq!((totals.billed, totals.skipped), (HOUR, HOUR / 4));
    assert_eq!(sampled.sum(), HOUR);
}

#[test]
fn what_counts_after_all_is_taken_back_upstream() {
    let mut sampled = Sampled::new(span(moment(0)));
    let outcomes = [Outcome::Counts, Outcome::Skipped];
    sample(&mut sampled, 3 * HOUR, Granularity::Hour, &outcomes);
    let interval = Interval {
        start: moment(HOUR),
        end: moment(2 * HOUR),
    };
    sampled.counted.push(interval);
    sampled.span = sampled.span.after(&Change::Resent {
        resent: Resent {
            usage_guid: "guid".into(),
            act: Uuid::nil(),
        },
        interval,
        reason: UncountedReason::Skipped { unanswered: false },
    });
    assert!(!sampled.span.knows_uncounted(interval));
    sampled.span.end = Some(moment(HOUR / 2));
    sample(&mut sampled, 3 * HOUR, Granularity::Hour, &[]);
    assert_eq!(sampled.sum(), HOUR / 2);
    assert_eq!(sampled.counted.len(), 6);
}

#[test]
fn what_may_count_is_a_part_of_what_is_skipped_and_leaves_with_it() {
    let mut sampled = Sampled::new(span(moment(0)));
    let policy = policy(Granularity::Hour, 0);
    assert!(sampled.step(moment(HOUR), &policy));
    sampled.span.processing.unanswered = true;
    sampled.span = sampled.span.skipped();
    let totals = &sampled.span.processing.totals;
    assert_eq!((totals.skipped, totals.unanswered), (HOUR, HOUR));
    assert!(!sampled.span.processing.unanswered);
    sampled.span.end = Some(moment(HOUR / 4));
    assert!(sampled.step(moment(HOUR), &policy));
    let withheld = Entry::of_withheld(&sampled.span, moment(HOUR)).unwrap();
    assert!(withheld.unanswered, "as what it takes back");
    sample(&mut sampled, HOUR, Granularity::Hour, &[]);
    let totals = &sampled.span.processing.totals;
    assert_eq!((totals.skipped, totals.unanswered), (HOUR / 4, HOUR / 4));
    assert_eq!(sampled.counted, []);
}

/// By the minute, a fault upstream of half a day is more intervals than a span knows one by one.
#[test]
fn what_does_not_count_for_long_is_not_taken_back_either() {
    for outcome in [Outcome::Skipped, Outcome::SetAside] {
        let mut sampled = for_long(outcome);
        assert_eq!(sampled.span.processing.uncounted.len(), UNCOUNTED_MAX);
        sampled.span.end = Some(moment(MINUTE / 2));
        sample(&mut sampled, LONG * MINUTE, Granularity::Minute, &[]);
        assert!(sampled.span.processing.complete);
        let durations: Vec<i64> = sampled.counted.iter().map(|it| it.duration()).collect();
        assert_eq!(durations, [MINUTE, -MINUTE / 2]);
        assert_eq!(sampled.span.difference(), 0);
    }
}

/// One of many that are known as one counts after all.
#[test]
fn what_counts_after_all_among_many_is_taken_back_upstream() {
    let mut sampled = for_long(Outcome::Skipped);
    let minute = |number: i64| Interval {
        start: moment(number * MINUTE),
        end: moment((number + 1) * MINUTE),
    };
    let resent = Change::Resent {
        resent: Resent {
            usage_guid: "guid".into(),
            act: Uuid::nil(),
        },
        interval: minute(20),
        reason: UncountedReason::Skipped { unanswered: false },
    };
    sampled.counted.push(minute(20));
    sampled.span = sampled.span.after(&resent);
    let knows = |number| sampled.span.knows_uncounted(minute(number));
    assert_eq!([19, 20, 21].map(knows), [true, false, true]);
    assert!(sampled.span.processing.uncounted.len() <= UNCOUNTED_MAX);
    sampled.span.end = Some(moment(MINUTE / 2));
    sample(&mut sampled, LONG * MINUTE, Granularity::Minute, &[]);
    let durations: Vec<i64> = sampled.counted.iter().map(|it| it.duration()).collect();
    assert_eq!(durations, [MINUTE, MINUTE, -MINUTE, -MINUTE / 2]);
}

const MINUTE: i64 = 60_000;
const LONG: i64 = 700;

/// A minute that counts, and many more that do not.
fn for_long(outcome: Outcome) -> Sampled {
    let mut sampled = Sampled::new(span(moment(0)));
    let others = usize::try_from(LONG - 1).unwrap();
    let outcomes = [vec![Outcome::Counts], vec![outcome; others]].concat();
    sample(&mut sampled, LONG * MINUTE, Granularity::Minute, &outcomes);
    sampled
}

/// Only where every other one counts.
#[test]
fn the_oldest_is_forgotten_where_there_are_too_many_apart_from_each_other() {
    let mut span = span(moment(0));
    let most = i64::try_from(UNCOUNTED_MAX).unwrap();
    for number in 0..=most {
        let interval = Interval {
            start: moment(2 * number * HOUR),
            end: moment((2 * number + 1) * HOUR),
        };
        span = span.after(&Change::SetAside { interval });
        assert!(span.knows_uncounted(interval));
    }
    assert_eq!(span.processing.uncounted.len(), UNCOUNTED_MAX);
    let first = span.processing.uncounted[0].interval;
    assert_eq!(first.start, moment(2 * HOUR));
}

/// Settings change: what was sampled by the hour is taken back by the day, and the other way round.
#[test]
fn pieces_end_at_the_edges_of_what_does_not_count_whatever_the_granularity() {
    let day = 24 * HOUR;
    for (forwards, backwards, expected) in [
        (
            Granularity::Hour,
            Granularity::Day,
            vec![HOUR, HOUR, -HOUR, -HOUR / 2],
        ),
        (Granularity::Day, Granularity::Hour, vec![]),
    ] {
        let mut sampled = Sampled::new(span(moment(0)));
        let outcomes = match forwards {
            Granularity::Hour => vec![Outcome::Counts, Outcome::Skipped],
            _ => vec![Outcome::Skipped],
        };
        let now = if forwards == Granularity::Hour {
            3 * HOUR
        } else {
            day
        };
        sample(&mut sampled, now, forwards, &outcomes);
        sampled.span.end = Some(moment(HOUR / 2));
        sample(&mut sampled, now, backwards, &[]);
        assert!(sampled.span.processing.complete);
        let durations: Vec<i64> = sampled.counted.iter().map(|it| it.duration()).collect();
        assert_eq!(durations, expected);
        let skipped = sampled.span.processing.totals.skipped;
        assert_eq!(skipped, HOUR / 2 * i64::from(forwards == Granularity::Day));
    }
}

/// A stop comes between a lost answer and its note.
#[test]
fn a_lost_answer_is_noted_although_the_span_has_changed() {
    let mut sampled = Sampled::new(span(moment(0)));
    let policy = policy(Granularity::Hour, 0);
    assert!(sampled.step(moment(HOUR), &policy));
    let mut driver = Driver::new(sampled.span.clone(), Contract::Forever, Timestamp::MIN);
    let failure = |unanswered| Failure {
        at: moment(HOUR),
        retry_at: moment(HOUR),
        error: "operation timed out".into(),
        status: None,
        blames_usage: false,
        is_post: true,
        unanswered,
        suspends: false,
    };
    driver.on_failed(failure(true));
    driver.on_change_rejected();
    assert_eq!(driver.action(moment(HOUR), &policy), Action::Reread);
    // Once another worker has recorded the usage, the span cannot say it any more.
    let recorded = sampled.span.executed();
    assert!(driver.loses_answer(Some(&recorded)) && driver.loses_answer(None));
    sampled.span.end = Some(moment(HOUR / 2));
    assert!(!driver.loses_answer(Some(&sampled.span)));
    driver.on_reread(Some(sampled.span.clone()));
    let Action::Change(change) = driver.action(moment(HOUR), &policy) else {
        panic!("it is to be noted");
    };
    assert!(sampled.span.after(&change).processing.unanswered);
    assert!(!driver.loses_answer(None));
    // Any other failure need not be noted.
    let mut driver = Driver::new(sampled.span, Contract::Forever, Timestamp::MIN);
    driver.on_failed(failure(false));
    driver.on_change_rejected();
    assert_eq!(driver.action(moment(HOUR), &policy), Action::Done);
}

/// Another worker notes a lost answer after the entry of the skip was written, and before the span records it.
#[test]
fn a_skip_is_recorded_with_an_answer_that_was_lost_since_it_was_read() {
    let mut sampled = Sampled::new(span(moment(0)));
    let policy = policy(Granularity::Hour, 0);
    assert!(sampled.step(moment(HOUR), &policy));
    let mut span = sampled.span;
    let planned = span.processing.planned.as_ref().expect("it is planned");
    span.processing.skip = Some(Skip {
        usage_guid: planned.usage_guid.clone(),
        at: moment(HOUR),
        not_before: moment(HOUR),
        act: Uuid::nil(),
    });
    let mut driver = Driver::new(span.clone(), Contract::Forever, Timestamp::MIN);
    for unanswered in [false, true] {
        let Action::WriteEntry(entry) = driver.action(moment(HOUR), &policy) else {
            panic!("it is skipped");
        };
        assert_eq!(
            (entry.state, entry.unanswered),
            (EntryState::Skipped, unanswered)
        );
        driver.on_entry_written(EntryState::Skipped);
        let Action::Change(change) = driver.action(moment(HOUR), &policy) else {
            panic!("it is to be recorded");
        };
        span.processing.unanswered = true;
        assert_eq!(change.is_allowed(driver.span(), &span), unanswered);
        driver.on_change_rejected();
        driver.on_reread(Some(span.clone()));
    }
}

/// Both of two hours in a row were set aside, and the second one counts by now.
#[test]
fn a_resend_of_what_takes_back_leaves_its_neighbour_in_the_list() {
    let hour = |from: i64, to: i64| Interval {
        start: moment(from * HOUR),
        end: moment(to * HOUR),
    };
    let mut sampled = Sampled::new(span(moment(0)));
    assert!(sampled.step(moment(HOUR), &policy(Granularity::Hour, 0)));
    let neighbour = Change::SetAside {
        interval: hour(0, 1),
    };
    let span = sampled.span.executed().after(&neighbour);
    let withheld = |interval| Entry {
        interval,
        state: EntryState::SetAside,
        resend: Some(Resend {
            act: Uuid::nil(),
            from: EntryState::SetAside,
            at: moment(0),
            due_at: moment(0),
            acceptance: None,
        }),
        ..Entry::of_planned(&sampled.span).expect("it is planned")
    };
    let takes_back = withheld(hour(2, 1));
    assert_eq!(takes_back.correction(Some(&span)), Correction::Nothing);
    let skipped = Change::Resent {
        resent: Resent {
            usage_guid: "guid".into(),
            act: Uuid::nil(),
        },
        interval: hour(2, 1),
        reason: UncountedReason::Skipped { unanswered: false },
    };
    assert_eq!(
        span.after(&skipped).processing.uncounted,
        span.processing.uncounted
    );
    let itself = withheld(hour(0, 1));
    assert!(matches!(
        itself.correction(Some(&span)),
        Correction::Make { .. }
    ));
}
