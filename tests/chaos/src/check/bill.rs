//! What is billed for each span.

use std::collections::{BTreeMap, HashMap};

use serde_json::Value;

use super::answers::KnownOutcome;
use super::off::{OffBill, by_hours};
use super::{Case, Rule, Violation};
use crate::event::{DURATION, EventFields, Kind, Measure};
use crate::evidence::Usage;

/// An hour in ms: what intervals do not cross a boundary of.
const HOUR: i64 = 3_600_000;

/// What is billed for one span.
#[derive(Debug, Default)]
struct Bill<'a> {
    usages: Vec<&'a Usage>,
}

/// All that is billed, by the name of the start.
#[derive(Debug)]
pub(super) struct Bills<'a> {
    by_start: HashMap<&'a str, Bill<'a>>,
    off: OffBill<'a>,
}

impl<'a> Bills<'a> {
    /// Assigns the usages to starts. A usage that fits none breaks a rule.
    pub(super) fn new(
        usages: &'a [Usage],
        off: OffBill<'a>,
        cases: &[Case<'_>],
        violations: &mut Vec<Violation>,
    ) -> Self {
        let starts = cases.iter().filter(|case| case.event.kind == Kind::Start);
        let starts: HashMap<&str, &Case<'_>> = starts
            .map(|case| (case.event.name.as_str(), case))
            .collect();
        let mut by_start: HashMap<&str, Bill<'_>> = HashMap::new();
        for usage in usages {
            let start = usage.tag().and_then(|tag| Some((tag, *starts.get(tag)?)));
            let Some((tag, case)) = start else {
                let detail = format!("{:?} of {:?}", usage.measures, usage.target);
                violations.push(Rule::UsageKnown.broken(&usage.dedup_id, detail));
                continue;
            };
            by_start.entry(tag).or_default().usages.push(usage);
            check_usage(usage, case, violations);
        }
        Self { by_start, off }
    }

    /// Compares the bill of a span that was started and has that end.
    pub(super) fn check_span(
        &self,
        case: &Case<'_>,
        end: Option<i64>,
        violations: &mut Vec<Violation>,
    ) {
        let (Some(fields), name) = (&case.fields, &case.event.name) else {
            return;
        };
        let Some(end) = end else {
            return violations.push(Rule::Incomplete.broken(name, "it was never stopped"));
        };
        let empty = Bill::default();
        let bill = self.by_start.get(name.as_str()).unwrap_or(&empty);
        let off = self.off.of(name);
        let off_bill: i128 = off.iter().map(|entry| i128::from(entry.duration)).sum();
        let (billed, used) = (bill.duration(), i128::from(end - fields.timestamp));
        let detail = format!(
            "{billed} ms are billed in {} usages, {off_bill} ms are on no bill in {}, and {used} ms \
             were used, from {} to {end}",
            bill.usages.len(),
            off.len(),
            fields.timestamp
        );
        if billed + off_bill < used {
            return violations.push(Rule::Billed.broken(name, detail));
        }
        if billed + off_bill > used {
            return violations.push(Rule::BilledOnce.broken(name, detail));
        }
        for measure in &fields.measures {
            bill.check_measure(measure, billed, name, violations);
        }
        let used = hours(fields.timestamp, end);
        let of = |hours: &BTreeMap<i64, i128>, hour: &i64| hours.get(hour).copied().unwrap_or(0);
        let (billed, off) = (bill.hours(), by_hours(off));
        let all = used.keys().chain(billed.keys()).chain(off.keys());
        let is_wrong = |hour: &&i64| of(&billed, hour) + of(&off, hour) != of(&used, hour);
        if let Some(hour) = all.clone().find(is_wrong) {
            let detail = format!(
                "{} ms in the hour of {}, {} ms on no bill, {} ms used",
                of(&billed, hour),
                hour * HOUR,
                of(&off, hour),
                of(&used, hour)
            );
            return violations.push(Rule::HoursBilled.broken(name, detail));
        }
        let below = billed.iter().filter(|(_, sum)| **sum < 0);
        for (hour, sum) in below.filter(|(hour, _)| !self.was_unknown(name, **hour, bill)) {
            let detail = format!("{sum} ms in the hour of {}", hour * HOUR);
            violations.push(Rule::BelowZero.broken(name, detail));
        }
    }

    fn was_unknown(&self, name: &str, hour: i64, bill: &Bill<'_>) -> bool {
        let is_back = |usage: &&&Usage| {
            hour_of(usage.midpoint) == hour && usage.duration().is_some_and(i64::is_negative)
        };
        let back = bill.usages.iter().filter(is_back);
        let back: Vec<&str> = back.map(|usage| usage.dedup_id.as_str()).collect();
        self.off.was_unknown(name, hour, &back)
    }

    /// How many hours are below zero on the bill.
    pub(super) fn below_zero(&self) -> usize {
        let below = |bill: &Bill<'_>| bill.hours().values().filter(|sum| **sum < 0).count();
        self.by_start.values().map(below).sum()
    }

    /// Makes sure that nothing is billed for an event that started no span.
    pub(super) fn check_nothing(&self, case: &Case<'_>, violations: &mut Vec<Violation>) {
        let Some(bill) = self.by_start.get(case.event.name.as_str()) else {
            return;
        };
        let detail = format!("{} usages, {} ms", bill.usages.len(), bill.duration());
        let rule = match case.outcome {
            // The event may be kept without an answer, but then it would be billed to its end.
            KnownOutcome::Refused | KnownOutcome::Nothing => Rule::RefusedNotBilled,
            KnownOutcome::Accepted => Rule::BilledOnce,
        };
        violations.push(rule.broken(&case.event.name, detail));
    }
}

/// The hour of a moment, since epoch.
pub(super) fn hour_of(moment: i64) -> i64 {
    moment.div_euclid(HOUR)
}

/// Compares one usage with the start it names.
fn check_usage(usage: &Usage, case: &Case<'_>, violations: &mut Vec<Violation>) {
    let name = &case.event.name;
    let Some(fields) = case.fields.as_ref().filter(|_| case.id_of.is_none()) else {
        let detail = format!("the usage {}", usage.dedup_id);
        return violations.push(Rule::RefusedNotBilled.broken(name, detail));
    };
    if usage.target != fields.target {
        let detail = format!("{:?} instead of {:?}", usage.target, fields.target);
        violations.push(Rule::TargetKept.broken(name, detail));
    }
    if !has_measures(usage, fields) {
        let detail = format!("{:?} instead of {:?}", usage.measures, fields.measures);
        violations.push(Rule::MeasuresBilled.broken(name, detail));
    }
}

/// Whether the usage has the measures of the start and, in the end, its duration.
fn has_measures(usage: &Usage, fields: &EventFields) -> bool {
    let Some((last, measures)) = usage.measures.split_last() else {
        return false;
    };
    let same = |(one, other): (&Measure, &Measure)| {
        one.measure == other.measure && is_same(&one.quantity, &other.quantity)
    };
    last.measure == DURATION
        && last.quantity.is_i64()
        && measures.len() == fields.measures.len()
        && measures.iter().zip(&fields.measures).all(same)
}

/// Equality that takes 1 and 1.0 for the same.
fn is_same(one: &Value, other: &Value) -> bool {
    one == other || (one.is_number() && one.as_f64() == other.as_f64())
}

impl Bill<'_> {
    fn duration(&self) -> i128 {
        self.usages
            .iter()
            .filter_map(|usage| usage.duration())
            .map(i128::from)
            .sum()
    }

    /// What is billed for each hour.
    fn hours(&self) -> BTreeMap<i64, i128> {
        let mut hours = BTreeMap::new();
        for usage in &self.usages {
            let duration = usage.duration().unwrap_or_default();
            *hours.entry(hour_of(usage.midpoint)).or_default() += i128::from(duration);
        }
        hours.retain(|_, sum| *sum != 0);
        hours
    }

    /// A measure is billed by its quantity times the duration, where that is a whole number.
    fn check_measure(
        &self,
        measure: &Measure,
        duration: i128,
        name: &str,
        violations: &mut Vec<Violation>,
    ) {
        let Some(quantity) = whole_number(&measure.quantity) else {
            return;
        };
        let amount = |usage: &&Usage| {
            let billed = usage
                .measures
                .iter()
                .find(|other| other.measure == measure.measure)?;
            Some(i128::from(whole_number(&billed.quantity)?) * i128::from(usage.duration()?))
        };
        let billed: i128 = self.usages.iter().filter_map(amount).sum();
        let expected = i128::from(quantity) * duration;
        if billed != expected {
            let detail = format!("{}: {billed} billed, {expected} expected", measure.measure);
            violations.push(Rule::MeasuresBilled.broken(name, detail));
        }
    }
}

/// A whole number, also one that is written as 3.0.
fn whole_number(value: &Value) -> Option<i64> {
    let double = || value.as_f64().filter(|double| double.fract() == 0.0);
    // Quantities here are small; a wrong one shows all the same.
    #[expect(clippy::cast_possible_truncation, reason = "held at the limits of i64")]
    value
        .as_i64()
        .or_else(|| double().map(|double| double as i64))
}

/// What is used in each hour between two moments.
fn hours(start: i64, end: i64) -> BTreeMap<i64, i128> {
    let mut hours = BTreeMap::new();
    let mut from = start;
    while from < end {
        let hour = from.div_euclid(HOUR);
        let to = ((hour + 1) * HOUR).min(end);
        hours.insert(hour, i128::from(to - from));
        from = to;
    }
    hours
}
