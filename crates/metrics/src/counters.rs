//! Counters with labels whose values are known.

use std::sync::Arc;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;

use crate::metric::{Metric, Values};

pub(crate) type Labels = Vec<(&'static str, &'static str)>;

/// A counter for each combination of the words of a metric's labels; one where it has no labels.
/// All are made at once, so that counting takes no memory, and that no series appears only with its
/// first event. Clones count into the same counters.
#[derive(Clone, Debug)]
pub struct Counters {
    metric: &'static Metric,
    family: Family<Labels, Counter>,
    /// Row by row: the last label changes first.
    all: Arc<[Counter]>,
}

impl Counters {
    pub fn new(metric: &'static Metric) -> Self {
        let family = Family::<Labels, Counter>::default();
        let all = combinations(metric)
            .iter()
            .map(|it| family.get_or_create_owned(it))
            .collect();
        Self {
            metric,
            family,
            all,
        }
    }

    /// Counts one. `words` are the values of the labels, in their order.
    pub fn inc(&self, words: &[&'static str]) {
        self.add(words, 1);
    }

    pub fn add(&self, words: &[&'static str], count: u64) {
        let counter = self.find(words).and_then(|index| self.all.get(index));
        debug_assert!(counter.is_some(), "{}: {words:?}", self.metric.name);
        if let Some(counter) = counter {
            counter.inc_by(count);
        }
    }

    pub fn get(&self, words: &[&'static str]) -> u64 {
        let counter = self.find(words).and_then(|index| self.all.get(index));
        counter.map_or(0, Counter::get)
    }

    pub(crate) fn metric(&self) -> &'static Metric {
        self.metric
    }

    pub(crate) fn family(&self) -> Family<Labels, Counter> {
        self.family.clone()
    }

    fn find(&self, words: &[&str]) -> Option<usize> {
        let labels = self.metric.labels;
        if labels.len() != words.len() {
            return None;
        }
        labels
            .iter()
            .zip(words)
            .try_fold(0, |index, (label, word)| {
                let values = words_of(label.values);
                let position = values.iter().position(|value| value == word)?;
                Some(index * values.len() + position)
            })
    }
}

fn words_of(values: Values) -> &'static [&'static str] {
    match values {
        Values::Words(words) => words,
        Values::Bounded(_) => &[],
    }
}

fn combinations(metric: &'static Metric) -> Vec<Labels> {
    let mut all = vec![Labels::new()];
    for label in metric.labels {
        let mut extended = Vec::new();
        for labels in &all {
            for word in words_of(label.values) {
                let mut labels = labels.clone();
                labels.push((label.name, *word));
                extended.push(labels);
            }
        }
        all = extended;
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    crate::metrics! {
        _ALL;

        /// Events
        EVENTS = "sampler_events_total", Counter,
            event: Words(&["start", "stop"]),
            outcome: Words(&["accepted", "refused", "failed"]);

        /// Violations
        VIOLATIONS = "sampler_violations_total", Counter;
    }

    #[test]
    fn each_combination_has_a_counter_of_its_own() {
        let counters = Counters::new(&EVENTS);
        counters.inc(&["stop", "accepted"]);
        counters.add(&["start", "failed"], 7);
        counters.clone().inc(&["stop", "accepted"]);
        assert_eq!(counters.get(&["stop", "accepted"]), 2);
        assert_eq!(counters.get(&["start", "failed"]), 7);
        let all = combinations(&EVENTS);
        let words = all.iter().map(|labels| [labels[0].1, labels[1].1]);
        let sum: u64 = words.map(|words| counters.get(&words)).sum();
        assert_eq!(sum, 9);
    }

    #[test]
    fn one_without_labels_is_a_counter() {
        let counters = Counters::new(&VIOLATIONS);
        counters.inc(&[]);
        assert_eq!(counters.get(&[]), 1);
    }

    #[test]
    #[should_panic(expected = "sampler_events_total")]
    fn a_word_that_is_not_declared_is_a_mistake() {
        Counters::new(&EVENTS).inc(&["start", "lost"]);
    }
}
