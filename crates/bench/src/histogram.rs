//! Latencies, counted in buckets: exact below 256 µs, within 0.8 % above.

use std::time::Duration;

/// Each doubling of the latency is divided into 2 to the power of this many buckets.
const PRECISION: u32 = 7;
/// Longer latencies count as this, in µs: nobody waits for nineteen hours.
const LONGEST: u64 = (1 << 36) - 1;

/// How often which latency was seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Histogram {
    counts: Vec<u64>,
    total: u64,
    longest: u64,
}

impl Histogram {
    /// Counts one latency.
    pub(crate) fn record(&mut self, latency: Duration) {
        let micros = u64::try_from(latency.as_micros())
            .unwrap_or(LONGEST)
            .min(LONGEST);
        let bucket = bucket_of(micros);
        if bucket >= self.counts.len() {
            self.counts.resize(bucket + 1, 0);
        }
        self.counts[bucket] += 1;
        self.total += 1;
        self.longest = self.longest.max(micros);
    }

    /// Counts all that another one has counted.
    pub(crate) fn merge(&mut self, other: &Self) {
        if other.counts.len() > self.counts.len() {
            self.counts.resize(other.counts.len(), 0);
        }
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count += more;
        }
        self.total += other.total;
        self.longest = self.longest.max(other.longest);
    }

    /// How many latencies were counted.
    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    /// The latency in ms that so many of a thousand do not exceed: 500 is the median, 990 the 99th
    /// percentile. Never less than the true one. 0 where nothing was counted.
    pub(crate) fn millis_at(&self, per_mille: u64) -> f64 {
        let wanted = (self.total * per_mille).div_ceil(1000).max(1);
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return top_of(bucket).min(self.longest) as f64 / 1000.0;
            }
        }
        0.0
    }

    /// The longest latency in ms.
    pub(crate) fn longest_millis(&self) -> f64 {
        self.longest as f64 / 1000.0
    }
}

/// The bucket of a latency in µs.
fn bucket_of(micros: u64) -> usize {
    let doublings = shift_of(micros);
    let bucket = (u64::from(doublings) << PRECISION) + (micros >> doublings);
    usize::try_from(bucket).expect("there are less than 4,000 buckets")
}

/// By how many bits a latency is cut short.
fn shift_of(micros: u64) -> u32 {
    micros
        .checked_ilog2()
        .map_or(0, |power| power.saturating_sub(PRECISION))
}

/// The longest latency in µs that falls into a bucket.
fn top_of(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    let doublings = (bucket >> PRECISION).saturating_sub(1);
    let kept = bucket - (doublings << PRECISION);
    ((kept + 1) << doublings) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(micros: impl IntoIterator<Item = u64>) -> Histogram {
        let mut histogram = Histogram::default();
        for micros in micros {
            histogram.record(Duration::from_micros(micros));
        }
        histogram
    }

    #[test]
    fn every_latency_is_in_the_bucket_that_ends_closest_above() {
        for micros in (0..5_000).chain([10_000, 65_535, 65_536, 999_999, 60_000_000, LONGEST]) {
            let bucket = bucket_of(micros);
            let top = top_of(bucket);
            assert!(top >= micros, "{micros}");
            assert!(bucket == 0 || top_of(bucket - 1) < micros, "{micros}");
            assert!((top - micros) as f64 <= micros as f64 * 0.008, "{micros}");
        }
    }

    #[test]
    fn percentiles_are_those_of_the_sorted_list() {
        let histogram = of((1..=200).rev());
        assert!((histogram.millis_at(500) - 0.100).abs() < 1e-9);
        assert!((histogram.millis_at(990) - 0.198).abs() < 1e-9);
        assert!((histogram.millis_at(999) - 0.200).abs() < 1e-9);
        assert!((histogram.millis_at(0) - 0.001).abs() < 1e-9);
        assert!((histogram.longest_millis() - 0.200).abs() < 1e-9);
    }

    #[test]
    fn one_slow_answer_in_a_hundred_shows_at_the_percentile_above() {
        let histogram = of([1_000; 99].into_iter().chain([50_000]));
        assert!(histogram.millis_at(990) < 1.01);
        assert!((histogram.millis_at(999) - 50.0).abs() < 1e-9);
    }

    #[test]
    fn merging_is_counting_both() {
        let mut one = of(0..1_000);
        one.merge(&of(50_000..51_000));
        assert_eq!(one, of((0..1_000).chain(50_000..51_000)));
        assert_eq!(one.total(), 2_000);
    }

    #[test]
    fn nothing_counted_is_nothing_to_divide_by() {
        assert!(Histogram::default().millis_at(990).abs() < f64::EPSILON);
    }
}
