//! The declaration of a metric.

use prometheus_client::metrics::histogram::Histogram;

/// A metric, as operators see it.
#[derive(Debug)]
pub struct Metric {
    /// Its name, as Prometheus knows it: that of a counter ends in `_total`, that of an info in `_info`.
    pub name: &'static str,
    pub kind: MetricKind,
    /// Its labels. No value of a label is a text of a client.
    pub labels: &'static [Label],
    /// Its meaning, without a full stop at the end.
    pub help: &'static str,
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

/// Declares the metrics that a module measures, and a list of them for the documents. The comment on a
/// metric is its help. Names and labels are what dashboards and alerts rest on: they stay as they are.
#[macro_export]
macro_rules! metrics {
    ($list_vis:vis $list:ident; $(
        $(#[doc = $help:literal])+
        $vis:vis $metric:ident = $name:literal, $kind:ident $(($bounds:expr))?
            $(, $label:ident: $values:ident($of:expr))*;
    )+) => {
        $(
            $(#[doc = $help])+
            #[allow(clippy::doc_markdown, reason = "operators read the comments as they stand")]
            $vis static $metric: $crate::Metric = $crate::Metric {
                name: $name,
                kind: $crate::MetricKind::$kind $(($bounds))?,
                labels: &[$($crate::Label {
                    name: stringify!($label),
                    values: $crate::Values::$values($of),
                }),*],
                help: concat!($($help),+).trim_ascii_start(),
            };
        )+

        /// All of these, in the order of the document.
        $list_vis static $list: &[&$crate::Metric] = &[$(&$metric),+];
    };
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
