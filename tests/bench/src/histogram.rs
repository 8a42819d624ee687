//! Latencies of a run.

use std::time::Duration;

/// Digits that count: each latency is kept within 0.8 %, and a histogram stays small enough for
/// each of a thousand senders to have its own.
const DIGITS: u8 = 2;
/// Longer latencies count as this, in µs: a day.
const LONGEST: u64 = 86_400_000_000;

/// How often each latency was seen, in µs.
#[derive(Clone, Debug)]
pub(crate) struct Histogram(hdrhistogram::Histogram<u64>);

impl Default for Histogram {
    fn default() -> Self {
        Self(hdrhistogram::Histogram::new(DIGITS).expect("as many digits as it can have"))
    }
}

impl Histogram {
    /// Counts one latency.
    pub(crate) fn record(&mut self, latency: Duration) {
        let micros = u64::try_from(latency.as_micros()).unwrap_or(LONGEST);
        self.0
            .record(micros.min(LONGEST))
            .expect("it grows as needed");
    }

    /// Counts all latencies of another histogram.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.0.add(&other.0).expect("it grows as needed");
    }

    /// The latency in ms that this part of all do not exceed: 0.5 is the median. Never less than
    /// the true one; 0 where nothing was counted.
    pub(crate) fn millis_at(&self, quantile: f64) -> f64 {
        self.0.value_at_quantile(quantile) as f64 / 1000.0
    }
}
