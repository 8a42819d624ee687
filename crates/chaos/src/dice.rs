//! Randomness from a seed.

use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};

/// A sequence of throws that is the same for the same seed.
#[derive(Clone, Debug)]
pub(crate) struct Dice(StdRng);

impl Dice {
    /// The dice of that number among those of a seed: what one throws does not depend on how often
    /// another was thrown.
    pub(crate) fn new(seed: u64, number: u64) -> Self {
        // An odd constant spreads the numbers, so that neighbours have nothing in common.
        let mixed = seed ^ number.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        Self(StdRng::seed_from_u64(mixed))
    }

    /// A number from `low` to `high`, both inside; `low` where there is none.
    pub(crate) fn between(&mut self, low: i64, high: i64) -> i64 {
        if low >= high {
            return low;
        }
        self.0.random_range(low..=high)
    }

    /// A place in a list of that length, which must not be empty.
    pub(crate) fn place(&mut self, length: usize) -> usize {
        self.0.random_range(0..length)
    }

    /// Whether something comes true that does so as many times in a hundred.
    pub(crate) fn percent(&mut self, percent: u32) -> bool {
        self.0.random_range(0..100) < percent
    }

    /// Brings a list into any order.
    pub(crate) fn shuffle<T>(&mut self, list: &mut [T]) {
        list.shuffle(&mut self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_throws_the_same() {
        let throws = |seed, number| {
            let mut dice = Dice::new(seed, number);
            (0..20).map(|_| dice.between(0, 1000)).collect::<Vec<_>>()
        };
        assert_eq!(throws(1, 2), throws(1, 2));
        assert_ne!(throws(1, 2), throws(1, 3));
        assert_ne!(throws(1, 2), throws(2, 2));
    }
}
