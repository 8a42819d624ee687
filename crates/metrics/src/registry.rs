//! All metrics of a program, and their text.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, text};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry;

use crate::Histogram;
use crate::counters::Counters;
use crate::metric::{Metric, MetricKind};

crate::metrics! {
    pub METRICS;

    /// Which program this is
    BUILD_INFO = "sampler_build_info", Info,
        program: Words(&["sampler-receiver", "sampler-worker"]),
        version: Bounded("the version of the program");
}

#[derive(Debug)]
pub struct Registry {
    inner: registry::Registry,
    registered: Vec<&'static str>,
}

impl Registry {
    /// A registry with what every program says.
    pub fn new(program: &'static str, version: &'static str) -> Self {
        let mut all = Self {
            inner: registry::Registry::default(),
            registered: Vec::new(),
        };
        let build = Info::new(vec![("program", program), ("version", version)]);
        all.register(&BUILD_INFO, build);
        all
    }

    /// Adds counters. The part that counts keeps its handle on them.
    pub fn counters(&mut self, counters: &Counters) {
        self.register(counters.metric(), counters.family());
    }

    /// Adds a histogram. The part that measures keeps its handle on it.
    pub fn histogram(&mut self, metric: &'static Metric, histogram: &Histogram) {
        debug_assert!(
            matches!(metric.kind, MetricKind::Histogram(_)),
            "{}",
            metric.name
        );
        self.register(metric, histogram.clone());
    }

    /// Adds a gauge that is read when somebody asks. It is left out while it has no value.
    pub fn gauge(
        &mut self,
        metric: &'static Metric,
        read: impl Fn() -> Option<f64> + Send + Sync + 'static,
    ) {
        debug_assert_eq!(metric.kind, MetricKind::Gauge, "{}", metric.name);
        self.read(metric, Read::Number(Box::new(read)));
    }

    /// Adds a counter that is read when somebody asks. Its value must never become less.
    pub fn counter(
        &mut self,
        metric: &'static Metric,
        read: impl Fn() -> u64 + Send + Sync + 'static,
    ) {
        debug_assert_eq!(metric.kind, MetricKind::Counter, "{}", metric.name);
        self.read(metric, Read::Count(Box::new(read)));
    }

    /// Adds a counter of a time in seconds, as [`counter`](Self::counter). It is left out while it has no
    /// value.
    pub fn seconds(
        &mut self,
        metric: &'static Metric,
        read: impl Fn() -> Option<f64> + Send + Sync + 'static,
    ) {
        debug_assert_eq!(metric.kind, MetricKind::Counter, "{}", metric.name);
        self.read(metric, Read::Number(Box::new(read)));
    }

    /// Adds a metric of the library, such as a family with labels whose values become known in time.
    pub fn register(&mut self, metric: &'static Metric, of_library: impl registry::Metric) {
        self.note(metric);
        let (name, help) = (metric.family(), metric.help);
        self.inner.register(name, help, of_library);
    }

    /// All of them in the text format of `OpenMetrics` 1.0.
    ///
    /// # Errors
    /// Never, as far as we know: the library passes on that writing to a text can fail.
    pub fn encode(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        text::encode(&mut text, &self.inner)?;
        Ok(text)
    }

    fn read(&mut self, metric: &'static Metric, read: Read) {
        self.note(metric);
        let collected = Collected { metric, read };
        self.inner.register_collector(Box::new(collected));
    }

    fn note(&mut self, metric: &'static Metric) {
        let name = metric.name;
        debug_assert!(!self.registered.contains(&name), "{name} is there twice");
        self.registered.push(name);
    }
}

/// A metric that is read when somebody asks.
struct Collected {
    metric: &'static Metric,
    read: Read,
}

enum Read {
    Count(Box<dyn Fn() -> u64 + Send + Sync>),
    Number(Box<dyn Fn() -> Option<f64> + Send + Sync>),
}

impl fmt::Debug for Collected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Collected").field(&self.metric.name).finish()
    }
}

impl Collected {
    fn write(&self, mut encoder: DescriptorEncoder<'_>, value: &impl EncodeMetric) -> fmt::Result {
        let (name, help) = (self.metric.family(), self.metric.help);
        value.encode(encoder.encode_descriptor(name, help, None, value.metric_type())?)
    }
}

impl Collector for Collected {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        match &self.read {
            Read::Count(read) => self.write(encoder, &ConstCounter::new(read())),
            // A value that is not a number would spoil all that is computed from it.
            Read::Number(read) => match read().filter(|value| value.is_finite()) {
                None => Ok(()),
                Some(value) if self.metric.kind == MetricKind::Counter => {
                    self.write(encoder, &ConstCounter::new(value))
                }
                Some(value) => self.write(encoder, &ConstGauge::new(value)),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    crate::metrics! {
        _ALL;

        /// An offset
        OFFSET = "sampler_offset_seconds", Gauge;

        /// Spans
        SPANS = "sampler_spans", Gauge;

        /// The time of spans
        SPAN_SECONDS = "sampler_span_seconds", Gauge;

        /// Violations
        VIOLATIONS = "sampler_violations_total", Counter;

        /// Events
        EVENTS = "sampler_events_total", Counter,
            event: Words(&["start", "stop"]),
            outcome: Words(&["refused", "failed"]);

        /// The time of commands
        SECONDS = "sampler_commit_seconds", Histogram(&[0.0025, 0.005]);
    }

    #[test]
    fn tells_what_there_is_and_leaves_out_what_has_no_value() {
        let mut metrics = Registry::new("sampler-worker", "1.2.3");
        metrics.gauge(&OFFSET, || Some(-1.5));
        metrics.gauge(&SPANS, || None);
        metrics.gauge(&SPAN_SECONDS, || Some(f64::NAN));
        metrics.counter(&VIOLATIONS, || 3);
        let text = metrics.encode().unwrap();
        let samples: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
        let expected = [
            "sampler_build_info{program=\"sampler-worker\",version=\"1.2.3\"} 1",
            "sampler_offset_seconds -1.5",
            "sampler_violations_total 3",
        ];
        assert_eq!(samples, expected);
        assert!(text.ends_with("# EOF\n"), "{text}");
    }

    #[test]
    fn counters_are_there_from_the_start_and_histograms_with_their_buckets() {
        let mut metrics = Registry::new("sampler-receiver", "1.2.3");
        let (events, seconds) = (Counters::new(&EVENTS), SECONDS.histogram());
        metrics.counters(&events);
        metrics.histogram(&SECONDS, &seconds);
        events.inc(&["start", "refused"]);
        seconds.observe(0.003);
        let text = metrics.encode().unwrap();
        for sample in [
            "sampler_events_total{event=\"start\",outcome=\"refused\"} 1\n",
            "sampler_events_total{event=\"stop\",outcome=\"failed\"} 0\n",
            "sampler_commit_seconds_bucket{le=\"0.0025\"} 0\n",
            "sampler_commit_seconds_bucket{le=\"0.005\"} 1\n",
            "sampler_commit_seconds_count 1\n",
        ] {
            assert!(text.contains(sample), "{sample}{text}");
        }
    }

    #[test]
    #[should_panic(expected = "there twice")]
    fn a_metric_is_added_once() {
        let mut metrics = Registry::new("sampler-worker", "1");
        metrics.counter(&VIOLATIONS, || 0);
        metrics.counter(&VIOLATIONS, || 0);
    }
}
