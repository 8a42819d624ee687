//! Which usage belongs to which span.
//!
//! A usage says its target, its midpoint and its duration, and from these follows its interval. The
//! intervals of a span are a chain: the first begins at the start, each other where the one before
//! it ended. So a target's usages, in the order in which they came, can be dealt out to its spans
//! without asking the worker, which is what makes the table a check on it.

use std::collections::HashMap;

use sampler_domain::Quantity;
use sampler_testkit::abacus::{Amounts, Counted, Usage, add_amounts};
use sampler_testkit::build::Target;
use serde_json::Value;

use crate::replay::Event;

/// A span as the events tell it.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) target: Target,
    pub(super) start: i64,
    pub(super) end: Option<i64>,
    pub(super) measures: Value,
    /// When its start was sent: it has no earlier usages.
    sent_at: i64,
}

impl Row {
    pub(super) fn started(event: &Event, sent_at: i64) -> Self {
        Self {
            target: event.target.clone(),
            start: event.timestamp,
            end: None,
            measures: event.measures().clone(),
            sent_at,
        }
    }
}

/// What was billed for a span.
#[derive(Clone, Debug, Default)]
pub(super) struct Bill {
    /// The signed durations of its usages, in ms.
    pub(super) duration: i128,
    /// How many of them bill, and how many take back.
    pub(super) forwards: usize,
    pub(super) backwards: usize,
    pub(super) amounts: Amounts,
}

/// The interval of a usage: the moment at which its span was before, and after. The midpoint is
/// rounded down, whichever way the interval goes.
pub(super) fn interval_of(usage: &Usage) -> (i64, i64) {
    let duration = i64::try_from(usage.duration()).unwrap_or_default();
    let from = usage.end - duration.div_euclid(2);
    (from, from + duration)
}

/// The bill of each row, and the number of usages that belong to none.
pub(super) fn attribute(rows: &[Row], counted: &[Counted]) -> (Vec<Bill>, usize) {
    let mut of_target: HashMap<[&str; 6], Vec<usize>> = HashMap::new();
    for (number, row) in rows.iter().enumerate() {
        of_target
            .entry(row.target.0.each_ref().map(String::as_str))
            .or_default()
            .push(number);
    }
    let mut bills = vec![Bill::default(); rows.len()];
    let mut sampled_to: Vec<i64> = rows.iter().map(|row| row.start).collect();
    let mut unattributed = 0;
    for counted in counted {
        let numbers = of_target
            .get(&counted.usage.target())
            .map_or(&[][..], Vec::as_slice);
        let candidates = numbers.iter().filter_map(|number| {
            let rank = rank(&rows[*number], sampled_to[*number], counted)?;
            Some((rank, *number))
        });
        let Some((_, number)) = candidates.min() else {
            unattributed += 1;
            continue;
        };
        sampled_to[number] = interval_of(&counted.usage).1;
        bills[number].add(&counted.usage);
    }
    (bills, unattributed)
}

/// How well a usage goes on from where a span is: 0 is best, `None` not at all.
fn rank(row: &Row, sampled_to: i64, counted: &Counted) -> Option<u8> {
    let (from, to) = interval_of(&counted.usage);
    if from != sampled_to || counted.at < row.sent_at || !has_measures(&counted.usage, row) {
        return None;
    }
    let Some(end) = row.end else { return Some(1) };
    let ahead = (end - from).signum() == (to - from).signum();
    let short_of_end = (to - from).abs() < (end - from).abs();
    Some(match (to == end, ahead && short_of_end) {
        (true, _) => 0,
        (false, true) => 1,
        // Past the end, or away from it: the stop was not known yet.
        (false, false) => 2,
    })
}

/// Whether the usage has the measures of the span, before the duration that is appended.
fn has_measures(usage: &Usage, row: &Row) -> bool {
    let Some(expected) = row.measures.as_array() else {
        return false;
    };
    let Some((_, measures)) = usage.measured_usage.split_last() else {
        return false;
    };
    let quantity = |value: &Value| Quantity::from_store(value.clone());
    measures.len() == expected.len()
        && measures.iter().zip(expected).all(|(measure, expected)| {
            expected["measure"] == measure.measure.as_str()
                && quantity(&expected["quantity"]).same_as(&quantity(&measure.quantity))
        })
}

impl Bill {
    fn add(&mut self, usage: &Usage) {
        let duration = usage.duration();
        self.duration += duration;
        if duration < 0 {
            self.backwards += 1;
        } else {
            self.forwards += 1;
        }
        add_amounts(&mut self.amounts, usage);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use sampler_testkit::abacus::Measure;
    use serde_json::json;

    use super::*;

    fn row(start: i64, end: Option<i64>, quantity: i64, sent_at: i64) -> Row {
        let measures = json!([{ "measure": "m", "quantity": quantity }]);
        Row {
            target: Target::default(),
            start,
            end,
            measures,
            sent_at,
        }
    }

    fn usage(from: i64, to: i64, quantity: f64, at: i64) -> Counted {
        let midpoint = (from + to).div_euclid(2);
        let measure = |name: &str, quantity| Measure {
            measure: name.to_owned(),
            quantity,
        };
        let usage = Usage {
            dedup_id: "1".to_owned(),
            start: midpoint,
            end: midpoint,
            organization_id: String::new(),
            space_id: String::new(),
            consumer_id: String::new(),
            resource_id: String::new(),
            plan_id: String::new(),
            resource_instance_id: String::new(),
            measured_usage: vec![
                measure("m", json!(quantity)),
                measure("duration", json!(to - from)),
            ],
        };
        Counted {
            at,
            usage: Arc::new(usage),
        }
    }

    fn bills(rows: &[Row], usages: &[Counted]) -> (Vec<(i128, usize, usize)>, usize) {
        let (bills, unattributed) = attribute(rows, usages);
        let bill = |bill: &Bill| (bill.duration, bill.forwards, bill.backwards);
        (bills.iter().map(bill).collect(), unattributed)
    }

    #[test]
    fn an_interval_follows_from_midpoint_and_duration() {
        for (from, to) in [(0, 5), (5, 0), (3, 4), (4, 3), (7, 7), (10, 20), (20, 10)] {
            assert_eq!(interval_of(&usage(from, to, 1.0, 0).usage), (from, to));
        }
    }

    #[test]
    fn a_late_stop_is_taken_back() {
        let rows = [row(2, Some(13), 1, 0)];
        let usages = [
            usage(2, 10, 1.0, 1),
            usage(10, 20, 1.0, 2),
            usage(20, 13, 1.0, 3),
        ];
        assert_eq!(bills(&rows, &usages), (vec![(11, 2, 1)], 0));
    }

    #[test]
    fn an_update_is_two_spans_that_meet() {
        let rows = [row(0, Some(15), 1, 0), row(15, None, 2, 5)];
        let usages = [
            usage(0, 10, 1.0, 1),
            usage(10, 20, 1.0, 2),
            usage(15, 20, 2.0, 6),
            usage(20, 15, 1.0, 7),
            usage(20, 30, 2.0, 8),
        ];
        assert_eq!(bills(&rows, &usages), (vec![(15, 2, 1), (15, 2, 0)], 0));
    }

    #[test]
    fn spans_of_equal_measures_are_told_apart_by_their_ends() {
        let rows = [row(0, Some(12), 1, 0), row(12, Some(15), 1, 5)];
        let usages = [
            usage(0, 10, 1.0, 1),
            usage(10, 20, 1.0, 2),
            usage(12, 20, 1.0, 6),
            usage(20, 15, 1.0, 7),
            usage(20, 12, 1.0, 8),
        ];
        assert_eq!(bills(&rows, &usages), (vec![(12, 2, 1), (3, 1, 1)], 0));
    }

    #[test]
    fn a_usage_that_fits_no_span_is_unattributed() {
        let rows = [row(0, Some(10), 1, 5)];
        let usages = [
            usage(1, 10, 1.0, 6),
            usage(0, 10, 2.0, 6),
            usage(0, 10, 1.0, 4),
            usage(0, 10, 1.0, 6),
            usage(0, 10, 1.0, 6),
        ];
        assert_eq!(bills(&rows, &usages), (vec![(10, 1, 0)], 4));
    }
}
