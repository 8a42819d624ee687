//! What counts at Abacus: each usage against the start that it names, and each hour.

use std::collections::{BTreeMap, HashMap};

use super::off::OffBill;
use super::{Rule, Starts, Violation};
use crate::event::{DURATION, EventFields};
use crate::evidence::Usage;

/// An hour in ms: what intervals do not cross a boundary of.
const HOUR: i64 = 3_600_000;

/// All that counts, by the name of the start.
#[derive(Debug)]
pub(super) struct Bills<'a> {
    by_start: HashMap<&'a str, Vec<&'a Usage>>,
    off: OffBill<'a>,
}

impl<'a> Bills<'a> {
    /// Assigns the usages to starts. A usage that fits none breaks a rule.
    pub(super) fn new(
        usages: &'a [Usage],
        off: OffBill<'a>,
        starts: &Starts<'_>,
        violations: &mut Vec<Violation>,
    ) -> Self {
        let mut by_start: HashMap<&str, Vec<&Usage>> = HashMap::new();
        for usage in usages {
            let tag = usage.tag().unwrap_or_default();
            match starts.fields(tag) {
                Ok(fields) => check_usage(usage, tag, fields, violations),
                Err(rule) => {
                    let detail = format!("{:?} of {:?}", usage.measures, usage.target);
                    violations.push(rule.broken(&usage.dedup_id, detail));
                }
            }
            by_start.entry(tag).or_default().push(usage);
        }
        Self { by_start, off }
    }

    /// No hour may be below zero, unless nobody could know it: returns how many of those there are.
    pub(super) fn check_hours(&self, violations: &mut Vec<Violation>) -> usize {
        let mut unknown = 0;
        for (name, usages) in &self.by_start {
            for (hour, sum) in hours(usages).into_iter().filter(|(_, sum)| *sum < 0) {
                if self.was_unknown(name, hour, usages) {
                    unknown += 1;
                } else {
                    let detail = format!("{sum} ms in the hour of {}", hour * HOUR);
                    violations.push(Rule::BelowZero.broken(name, detail));
                }
            }
        }
        unknown
    }

    fn was_unknown(&self, name: &str, hour: i64, usages: &[&Usage]) -> bool {
        let is_back = |usage: &&&Usage| {
            hour_of(usage.midpoint) == hour && usage.duration().is_some_and(i64::is_negative)
        };
        let back = usages.iter().filter(is_back);
        let back: Vec<&str> = back.map(|usage| usage.dedup_id.as_str()).collect();
        self.off.was_unknown(name, hour, &back)
    }
}

/// The hour of a moment, since epoch.
pub(super) fn hour_of(moment: i64) -> i64 {
    moment.div_euclid(HOUR)
}

/// What counts in each hour.
fn hours(usages: &[&Usage]) -> BTreeMap<i64, i128> {
    let mut hours = BTreeMap::new();
    for usage in usages {
        let duration = usage.duration().unwrap_or_default();
        *hours.entry(hour_of(usage.midpoint)).or_default() += i128::from(duration);
    }
    hours
}

/// Compares one usage with the start it names.
fn check_usage(usage: &Usage, name: &str, fields: &EventFields, violations: &mut Vec<Violation>) {
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
    let split = usage.measures.split_last();
    split.is_some_and(|(last, measures)| last.measure == DURATION && measures == fields.measures)
}
