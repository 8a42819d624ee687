//! The declaration of a metric.

use prometheus_client::metrics::histogram::Histogram;

/// A metric, as operators see it.
#[derive(Debug)]
pub struct Metric {
    /// Its name, as Prometheus knows it: that of a counter ends in `_total`, that of an info in `_info`.
    pub name: &'static str,
    pub program: Program,
    pub kind: MetricKind,
    /// Its labels. No value of a label is a text of a client.
    pub labels: &'static [Label],
    /// Its meaning, without a full stop at the end.
    pub help: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    Receiver,
    Worker,
    Both,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MetricKind {
    /// How often something has happened since the program was started.
    Counter,
    /// How much there is of something now.
    Gauge,
    /// How large something is each time, by these upper bounds; a last bucket has no bound.
    Histogram(&'static [f64]),
    /// Always 1; the labels say it.
    Info,
}

#[derive(Debug)]
pub struct Label {
    pub name: &'static str,
    pub values: Values,
}

#[derive(Clone, Copy, Debug)]
pub enum Values {
    /// These words. The series of each are there from the start.
    Words(&'static [&'static str]),
    /// Other values, whose number is bounded, in words.
    Bounded(&'static str),
}

impl Program {
    /// Whether the program with this name has it.
    pub fn includes(self, program: &str) -> bool {
        match self {
            Self::Receiver => program == "sampler-receiver",
            Self::Worker => program == "sampler-worker",
            Self::Both => true,
        }
    }
}

impl Metric {
    /// An empty histogram with the buckets of this metric; without any if it is not a histogram.
    pub fn histogram(&self) -> Histogram {
        let bounds = match self.kind {
            MetricKind::Histogram(bounds) => bounds,
            MetricKind::Counter | MetricKind::Gauge | MetricKind::Info => &[],
        };
        debug_assert!(!bounds.is_empty(), "{} is not a histogram", self.name);
        Histogram::new(bounds.iter().copied())
    }

    /// The name of the family: without what `OpenMetrics` adds to it for each sample.
    pub(crate) fn family(&self) -> &'static str {
        let suffix = match self.kind {
            MetricKind::Counter => "_total",
            MetricKind::Info => "_info",
            MetricKind::Gauge | MetricKind::Histogram(_) => "",
        };
        self.name.strip_suffix(suffix).unwrap_or(self.name)
    }
}
