//! Planted faults: each is found, and is the first that is named.

use proptest::prelude::*;
use sampler_verify::FindingKind::{self, Differs, Gap, Overlap, Proof, WrongUsage};
use sampler_verify::moment::{DAY, HOUR};
use sampler_verify::{Row, SpanCheck, Used};
use serde_json::json;

use crate::truth::{Ledger, NOW, bill, kinds, measure, policy, posted, used};

/// A complete span with a late stop; its usages by hours, the last ones backwards.
fn truth() -> (Used, Ledger) {
    let used = used(NOW - 5 * DAY + 1_234, Some(NOW - 2 * DAY + 777));
    let ledger = bill(&used, HOUR, true, NOW);
    (used, ledger)
}

/// What is planted, and what must be named first.
type Fault = (&'static str, FindingKind, fn(&mut Ledger));

const IN_USAGES: &[Fault] = &[
    ("the first is missing", Gap, |it| drop(it.entries.remove(0))),
    ("one is missing", Gap, |it| drop(it.entries.remove(20))),
    ("what takes back is missing", Overlap, |it| {
        drop(it.entries.pop());
    }),
    ("all are missing", Gap, |it| it.entries.clear()),
    ("one is there twice", Overlap, |it| {
        it.entries.insert(20, it.entries[20].clone());
    }),
    ("an id is there twice", Overlap, |it| {
        it.entries[30].id = it.entries[3].id.clone();
    }),
    ("an hour is billed twice", Overlap, |it| {
        let again = it.entries[20].interval;
        it.entries
            .insert(21, it.usage(999, (again.start, again.end)));
    }),
    ("a gap of 1 ms before", Gap, |it| {
        let interval = it.entries[20].interval;
        it.entries[20] = it.usage(20, (interval.start + 1, interval.end));
    }),
    ("a gap of 1 ms behind", Gap, |it| {
        let interval = it.entries[20].interval;
        it.entries[20] = it.usage(20, (interval.start, interval.end - 1));
    }),
    ("a duration of 1 ms more", WrongUsage, |it| {
        it.entries[20].duration += 1;
    }),
    ("taken back with the wrong sign", WrongUsage, |it| {
        let last = it.entries.last_mut().unwrap();
        last.duration = -last.duration;
    }),
    ("a timestamp before its interval", WrongUsage, |it| {
        it.entries[20].timestamp = it.entries[20].interval.start - 1;
    }),
    ("a timestamp in the next window", WrongUsage, |it| {
        it.entries[20].timestamp = it.entries[20].interval.end;
    }),
    ("no length", WrongUsage, |it| {
        let at = it.entries[20].interval.start;
        it.entries.insert(20, it.usage(999, (at, at)));
    }),
    ("two windows in one", WrongUsage, |it| {
        let (first, second) = (it.entries[20].interval, it.entries.remove(21).interval);
        it.entries[20] = it.usage(999, (first.start, second.end));
    }),
    ("another quantity", WrongUsage, |it| {
        it.entries[20].measured_usage = posted(&[measure("memory", 513)], HOUR);
    }),
    ("a quantity as a text", WrongUsage, |it| {
        it.entries[20].measured_usage[0].quantity = json!("512");
    }),
    ("another measure", WrongUsage, |it| {
        it.entries[20].measured_usage[0].measure = "storage".into();
    }),
    ("a measure too many", WrongUsage, |it| {
        let twice = it.entries[20].measured_usage[0].clone();
        it.entries[20].measured_usage.push(twice);
    }),
    ("no measures", WrongUsage, |it| {
        it.entries[20].measured_usage.clear();
    }),
    ("no duration", WrongUsage, |it| {
        drop(it.entries[20].measured_usage.pop());
    }),
    ("the duration of another usage", WrongUsage, |it| {
        it.entries[20].measured_usage = posted(&it.span.measured_usage, HOUR - 1);
    }),
    ("taken back as if it were used", WrongUsage, |it| {
        let measures = it.span.measured_usage.clone();
        let last = it.entries.last_mut().unwrap();
        last.measured_usage = posted(&measures, -last.duration);
    }),
    ("one of another span", WrongUsage, |it| {
        it.entries[20].span = "other".into();
    }),
    ("accepted with a refusal", WrongUsage, |it| {
        it.entries[20].status = Some(400);
    }),
    ("accepted with a conflict", WrongUsage, |it| {
        it.entries[20].status = Some(409);
    }),
    ("billed, and skipped", Overlap, |it| {
        let usage = it.entries[20].clone();
        it.skip(20);
        it.entries.push(usage);
    }),
    ("billed twice, and sent again", Overlap, |it| {
        let usage = it.entries[20].clone();
        it.skip(20);
        it.resend();
        it.entries.push(usage.clone());
        it.entries
            .push(it.usage(999, (usage.interval.start, usage.interval.end)));
    }),
    ("taken back, and never billed", Gap, |it| {
        it.skip(it.entries.len() - 2);
    }),
];

const IN_SPANS: &[Fault] = &[
    ("another plan", Differs, |it| {
        it.span.target.plan_id = "xl".into();
    }),
    ("another quantity", Differs, |it| {
        it.span.measured_usage = vec![measure("memory", 513)];
    }),
    ("no quantity", Differs, |it| it.span.measured_usage.clear()),
    ("another start", Differs, |it| it.span.start += 1),
    ("another end", Differs, |it| {
        it.span.end = Some(it.span.sampled_to + 1);
    }),
    ("no end", Differs, |it| it.span.end = None),
    ("not sampled to its end", Proof, |it| {
        it.span.sampled_to -= 1;
    }),
    ("open with an end", Proof, |it| {
        it.span.state = "open".into();
    }),
    ("a state that is none", Proof, |it| {
        it.span.state = "lost".into();
    }),
    ("more used in the proof", Proof, |it| {
        it.span.proof.used += 1;
    }),
    ("less billed in the proof", Proof, |it| {
        it.span.proof.billed -= 1;
    }),
    ("an answer is missing in the proof alone", Proof, |it| {
        it.span.proof.unanswered += 1;
    }),
    ("an answer is missing in a range alone", Proof, |it| {
        it.skip_unanswered(2);
        it.span.proof.unanswered = 0;
    }),
    ("more skipped in the proof", Proof, |it| {
        it.span.proof.skipped += 1;
    }),
    ("a difference in the proof", Proof, |it| {
        it.span.proof.difference = Some(1);
    }),
    ("a range that was never sampled", Proof, |it| {
        it.skip(20);
        it.span.excluded[0].end += 1;
    }),
    ("a range that was sampled is left out", Gap, |it| {
        it.skip(20);
        it.span.excluded.clear();
        it.span.proof.skipped = 0;
        it.span.proof.billed = it.span.proof.used;
    }),
];

fn first_wrong(row: &Row) -> Option<FindingKind> {
    kinds(row).into_iter().find(|kind| kind.is_wrong())
}

#[test]
fn each_planted_fault_is_named_first() {
    for (what, kind, plant) in IN_USAGES.iter().chain(IN_SPANS) {
        let (used, mut ledger) = truth();
        plant(&mut ledger);
        let row = ledger.check(&used);
        assert_eq!(first_wrong(&row), Some(*kind), "{what}: {row:#?}");
    }
}

/// The sums are those of what was planted, to the millisecond.
#[test]
fn the_difference_is_what_was_planted() {
    let difference = |plant: fn(&mut Ledger)| {
        let (used, mut ledger) = truth();
        plant(&mut ledger);
        ledger.check(&used).amounts.difference
    };
    let hour = i128::from(HOUR);
    assert_eq!(difference(|it| drop(it.entries.remove(20))), hour);
    assert_eq!(difference(|it| it.entries[20].duration += 1), -1);
    let twice = |it: &mut Ledger| {
        let again = it.entries[20].interval;
        it.entries.push(it.usage(999, (again.start, again.end)));
    };
    assert_eq!(difference(twice), -hour);
    // The stop came an hour later than the span says.
    let (mut used, ledger) = truth();
    used.end = used.end.map(|end| end + HOUR);
    assert_eq!(ledger.check(&used).amounts.difference, hour);
}

/// A wrong usage, and time that is not covered, are told once each.
#[test]
fn each_millisecond_is_judged_once() {
    for (what, _, plant) in IN_USAGES {
        let (used, mut ledger) = truth();
        plant(&mut ledger);
        let kinds = kinds(&ledger.check(&used));
        let gaps = kinds.iter().filter(|kind| matches!(kind, Gap | Overlap));
        let most = if *what == "an id is there twice" {
            2
        } else {
            1
        };
        assert!(gaps.count() <= most, "{what}: {kinds:?}");
    }
}

#[test]
fn young_usages_cannot_have_expired() {
    for (ago, gone) in [(2 * DAY, 10), (2 * DAY, usize::MAX), (31 * DAY, usize::MAX)] {
        let used = used(NOW - ago - 3 * DAY, Some(NOW - ago));
        let mut ledger = bill(&used, HOUR, false, NOW);
        ledger.entries.drain(..gone.min(ledger.entries.len()));
        assert_eq!(first_wrong(&ledger.check(&used)), Some(Gap), "{ago} {gone}");
    }
}

#[test]
fn a_span_that_nobody_reported_was_not_used() {
    let (_, ledger) = truth();
    let policy = policy();
    let mut check = SpanCheck::new(&ledger.span, None, &policy);
    for entry in &ledger.entries {
        check.entry(entry);
    }
    let row = check.finish();
    assert_eq!(kinds(&row), [FindingKind::SpanWithoutEvents]);
    assert_eq!(
        (row.amounts.used, row.amounts.difference),
        (0, -row.amounts.billed)
    );
}

/// Faults come before what is only worth knowing, so a limit hides none behind it.
#[test]
fn findings_have_a_limit() {
    let (used, mut ledger) = truth();
    for place in 0..30 {
        ledger.skip(place);
    }
    ledger.span.proof.billed += 1;
    assert_eq!(kinds(&ledger.check(&used))[0], Proof);
    for entry in &mut ledger.entries {
        entry.duration += 1;
    }
    let row = ledger.check(&used);
    assert_eq!(row.findings.len(), 50);
    // Each has a wrong duration twice: its own, and that of its measures.
    assert_eq!(row.more_findings, 2 * ledger.entries.len() + 31 - 50);
}

proptest! {
    /// Whichever number of whichever usage is wrong, by however much: it is found.
    #[test]
    fn no_wrong_number_goes_unnoticed(
        place: prop::sample::Index,
        field in 0..4,
        by in prop_oneof![-5_i64..5, -2 * HOUR..2 * HOUR, any::<i64>()],
    ) {
        prop_assume!(by != 0);
        let (used, mut ledger) = truth();
        let place = place.index(ledger.entries.len());
        let entry = &mut ledger.entries[place];
        let (low, high) = (entry.interval.start, entry.interval.end);
        let number = match field {
            0 => &mut entry.interval.start,
            1 => &mut entry.interval.end,
            2 => &mut entry.duration,
            _ => &mut entry.timestamp,
        };
        *number = number.wrapping_add(by);
        // Within the interval, the upstream counts a usage in the same window.
        let is_harmless = field == 3 && (low.min(high)..low.max(high)).contains(number);
        prop_assert_eq!(ledger.check(&used).fits(), is_harmless);
    }

    /// Any usages left out or repeated.
    #[test]
    fn no_wrong_list_goes_unnoticed(from: prop::sample::Index, to: prop::sample::Index, is_repeated: bool) {
        let (used, mut ledger) = truth();
        let (from, to) = (from.index(ledger.entries.len()), to.index(ledger.entries.len()));
        let one = ledger.entries[from].clone();
        if is_repeated {
            ledger.entries.insert(to, one);
        } else {
            ledger.entries.remove(from);
        }
        prop_assert!(!ledger.check(&used).fits());
    }

    /// Whatever the API answers, there is a verdict.
    #[test]
    fn no_answer_makes_it_stumble(numbers: [i64; 12], state in "(open|stopped|complete|x)") {
        let (used, mut ledger) = truth();
        let [start, end, sampled_to, a, b, c, d, e, f, g, h, i] = numbers;
        let span = &mut ledger.span;
        (span.start, span.end, span.sampled_to, span.state) = (start, Some(end), sampled_to, state);
        (span.proof.used, span.proof.billed, span.proof.skipped) = (a, b, c);
        (span.proof.difference, span.proof.unanswered) = (Some(d), e);
        let entry = &mut ledger.entries[0];
        (entry.interval.start, entry.interval.end) = (f, g);
        (entry.duration, entry.timestamp) = (h, i);
        prop_assert!(!ledger.check(&used).fits());
    }
}
