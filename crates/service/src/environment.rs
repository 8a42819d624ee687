//! Where time and randomness come from: the one place that asks the system for either.
//!
//! Everything else takes a [`Clock`] or a [`Random`], so that a test or a simulation can decide
//! what the time is and which ids are drawn.

use std::time::{SystemTime, UNIX_EPOCH};

use rand::Rng;
use sampler_domain::Timestamp;
use uuid::Uuid;

pub trait Clock: Send + Sync {
    fn now(&self) -> Timestamp;
}

#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the place that supplies the time"
    )]
    fn now(&self) -> Timestamp {
        let since_epoch = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Timestamp::clamped(i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX))
    }
}

/// Draws random bytes, and what is made of them.
pub trait Random: Send + Sync {
    fn fill(&self, bytes: &mut [u8]);

    /// Any whole number, each as likely as any other.
    fn u64(&self) -> u64 {
        let mut bytes = [0; 8];
        self.fill(&mut bytes);
        u64::from_le_bytes(bytes)
    }

    /// A number from 0 up to, but never, 1.
    fn fraction(&self) -> f64 {
        // The upper 53 bits: as many as a double holds exactly.
        (self.u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn uuid_v4(&self) -> Uuid {
        let mut bytes = [0; 16];
        self.fill(&mut bytes);
        uuid::Builder::from_random_bytes(bytes).into_uuid()
    }
}

/// The generator of the thread, seeded by the system.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemRandom;

impl Random for SystemRandom {
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the place that supplies randomness"
    )]
    fn fill(&self, bytes: &mut [u8]) {
        rand::rng().fill_bytes(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fills with one byte over and over.
    struct Always(u8);

    impl Random for Always {
        fn fill(&self, bytes: &mut [u8]) {
            bytes.fill(self.0);
        }
    }

    #[test]
    fn a_fraction_is_at_least_zero_and_below_one() {
        assert!(Always(0).fraction().abs() < f64::EPSILON);
        let highest = Always(0xff).fraction();
        assert!(highest < 1.0 && highest > 0.999_999, "{highest}");
    }

    #[test]
    fn an_id_is_made_of_the_bytes_and_of_version_4() {
        let id = Always(0xff).uuid_v4();
        assert_eq!(id.to_string(), "ffffffff-ffff-4fff-bfff-ffffffffffff");
    }
}
