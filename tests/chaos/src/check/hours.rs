//! What counts at Abacus in each hour.

use std::collections::BTreeMap;

use super::off::OffBill;
use super::{Rule, Violation};
use crate::evidence::Usage;

/// An hour in ms: what intervals do not cross a boundary of.
const HOUR: i64 = 3_600_000;

/// The hour of a moment, since epoch.
pub(super) fn hour_of(moment: i64) -> i64 {
    moment.div_euclid(HOUR)
}

/// No hour of a span may be below zero, unless nobody could know it: returns how many of those there are.
pub(super) fn check(
    counted: &[Usage],
    off: &OffBill<'_>,
    violations: &mut Vec<Violation>,
) -> usize {
    let mut hours: BTreeMap<(&str, i64), Vec<&Usage>> = BTreeMap::new();
    for usage in counted {
        let hour = (usage.tag().unwrap_or_default(), hour_of(usage.midpoint));
        hours.entry(hour).or_default().push(usage);
    }
    let mut unknown = 0;
    for ((name, hour), usages) in hours {
        let durations = usages.iter().filter_map(|usage| usage.duration());
        let sum: i128 = durations.map(i128::from).sum();
        if sum >= 0 {
            continue;
        }
        let back = usages.iter().filter(|usage| usage.duration() < Some(0));
        let back: Vec<&str> = back.map(|usage| usage.dedup_id.as_str()).collect();
        if off.was_unknown(name, hour, &back) {
            unknown += 1;
        } else {
            let detail = format!("{sum} ms in the hour of {}", hour * HOUR);
            violations.push(Rule::BelowZero.broken(name, detail));
        }
    }
    unknown
}
