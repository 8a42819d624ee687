//! Random numbers that follow from a seed, the same on every machine (splitmix64).

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// What splitmix64 adds to its state at each step.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// The finalizer of splitmix64: another number for each number, without visible order.
pub const fn mix(number: u64) -> u64 {
    let mut mixed = number;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// A generator that always gives the same numbers for the same seed and stream. Seeds of regression
/// tests depend on its numbers, so it must never change.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// One of the streams of a seed. To draw from one leaves the others alone.
    pub const fn new(seed: u64, stream: u64) -> Self {
        Self(mix(seed.wrapping_add(STEP)) ^ mix(stream.wrapping_mul(STEP).wrapping_add(1)))
    }

    /// Any number.
    pub fn u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        mix(self.0)
    }

    /// A number below `limit`, which must not be 0.
    pub fn below(&mut self, limit: usize) -> usize {
        let scaled = (u128::from(self.u64()) * limit as u128) >> 64;
        usize::try_from(scaled).expect("below a usize")
    }

    /// A number from `low` to `high`, both inclusive; `low` if `high` is less.
    pub fn between(&mut self, low: i64, high: i64) -> i64 {
        let count = (high - low + 1).max(1).unsigned_abs();
        let scaled = (u128::from(self.u64()) * u128::from(count)) >> 64;
        low + i64::try_from(scaled).expect("below the count")
    }

    /// A number from 0 to `most`, small ones as often as those twice as large.
    pub fn log_uniform(&mut self, most: i64) -> i64 {
        let bits = self.below(64 - most.max(1).leading_zeros() as usize + 1);
        self.between(0, ((1_i64 << bits) - 1).min(most))
    }

    /// A wait of 0 to `most` ms, short ones as often as those twice as long.
    pub fn wait(&mut self, most: i64) -> Duration {
        Duration::from_millis(self.log_uniform(most).unsigned_abs())
    }

    /// True with this probability.
    pub fn percent(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// One of the items.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len())]
    }

    /// Brings a list into a random order.
    pub fn shuffle<T>(&mut self, list: &mut [T]) {
        for place in (1..list.len()).rev() {
            list.swap(place, self.below(place + 1));
        }
    }
}

/// A generator that several threads may share: the random bytes of one process.
#[derive(Debug, Default)]
pub struct SharedRng(AtomicU64);

impl SharedRng {
    /// A generator that begins in this state.
    pub const fn new(state: u64) -> Self {
        Self(AtomicU64::new(state))
    }

    /// Fills a buffer with random bytes.
    pub fn fill(&self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let state = self.0.fetch_add(STEP, Ordering::Relaxed);
            let number = mix(state.wrapping_add(STEP));
            chunk.copy_from_slice(&number.to_le_bytes()[..chunk.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The seeds of the simulation's regression tests mean what they mean by these numbers.
    #[test]
    fn the_numbers_of_a_seed_never_change() {
        let mut rng = Rng::new(364, 1);
        let numbers = [(); 3].map(|()| rng.u64());
        let expected = [
            0x0860_315e_7486_afb1,
            0xdd2b_608f_51cb_775e,
            0x28d9_252a_18c1_24b0,
        ];
        assert_eq!(numbers, expected);
    }

    #[test]
    fn streams_differ_and_numbers_stay_within_their_limits() {
        let numbers = |stream| {
            let mut rng = Rng::new(1, stream);
            [(); 20].map(|()| rng.between(0, 1000))
        };
        assert_ne!(numbers(2), numbers(3));
        let (mut rng, mut seen) = (Rng::new(7, 0), [false; 3]);
        for _ in 0..1_000 {
            seen[usize::try_from(rng.between(-1, 1) + 1).unwrap()] = true;
            assert!(rng.below(5) < 5);
            assert!((0..=1_000).contains(&rng.log_uniform(1_000)));
            assert_eq!(rng.log_uniform(0), 0);
        }
        assert_eq!(seen, [true; 3]);
    }
}
