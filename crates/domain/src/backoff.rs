//! How long a span waits after a failure.

/// How long a span waits after failed executions: twice as long each time, up to a limit, less a
/// random part of up to half, so that spans that failed together do not retry together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// After the first failure, ms.
    pub first: i64,
    /// At the most, ms.
    pub limit: i64,
}

impl Backoff {
    /// The wait in ms after the failure number `attempts`; `fraction` is random in `[0, 1)`.
    pub fn wait(self, attempts: u32, fraction: f64) -> i64 {
        let doublings = attempts.saturating_sub(1).min(40);
        let whole = self
            .first
            .saturating_mul(1 << doublings)
            .clamp(1, self.limit.max(1));
        #[expect(clippy::cast_possible_truncation, reason = "at most half of `whole`")]
        let off = (whole as f64 / 2.0 * fraction.clamp(0.0, 1.0)) as i64;
        (whole - off).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_their_limit_and_keep_at_least_half() {
        let backoff = Backoff {
            first: 1_000,
            limit: 60_000,
        };
        let longest = |attempts| backoff.wait(attempts, 0.0);
        assert_eq!(
            [1, 2, 3, 6, 7, 1_000].map(longest),
            [1_000, 2_000, 4_000, 32_000, 60_000, 60_000]
        );
        assert_eq!(backoff.wait(3, 0.5), 3_000);
        assert!(backoff.wait(3, 0.999_999) >= 2_000);
    }
}
