//! Chance that follows from a seed.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sampler_domain::Timestamp;
use sampler_service::environment::Random;

/// What splitmix64 adds at each step.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Makes 64 random looking bits of a state (splitmix64).
const fn mix(state: u64) -> u64 {
    let mut number = state;
    number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

/// A row of numbers that follows from its seed alone.
#[derive(Clone, Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    /// The row `name` of those that a seed has. What one part draws leaves the others' rows alone.
    pub(crate) fn new(seed: u64, name: u64) -> Self {
        Self(mix(seed.wrapping_add(STEP)) ^ mix(name.wrapping_mul(STEP).wrapping_add(1)))
    }

    pub(crate) fn u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        mix(self.0)
    }

    /// 0 up to, but never, `limit`.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        let scaled = (u128::from(self.u64()) * limit as u128) >> 64;
        usize::try_from(scaled).expect("below a usize")
    }

    /// `low` to `high`, both inside.
    pub(crate) fn between(&mut self, low: i64, high: i64) -> i64 {
        let room = (high - low + 1).max(1).unsigned_abs();
        let scaled = (u128::from(self.u64()) * u128::from(room)) >> 64;
        low + i64::try_from(scaled).expect("within the room")
    }

    /// 0 to `most`, small numbers as often as those twice as large.
    pub(crate) fn spread(&mut self, most: i64) -> i64 {
        let bits = self.below(64 - most.max(1).leading_zeros() as usize + 1);
        self.between(0, ((1_i64 << bits) - 1).min(most))
    }

    /// A wait of 0 to `most` ms, small ones as often as those twice as long.
    pub(crate) fn wait(&mut self, most: i64) -> Duration {
        Duration::from_millis(self.spread(most).unsigned_abs())
    }

    pub(crate) fn percent(&mut self, chance: usize) -> bool {
        self.below(100) < chance
    }

    pub(crate) fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len())]
    }
}

/// What becomes of the calls of one process. It is drawn for each call from the moment and the
/// kind of the call, not from a row: so a run from which something is left out stays the same
/// where that does not matter, and a failing run can be made short.
#[derive(Debug)]
pub(crate) struct Fates {
    row: u64,
    /// The moment of the last call, and how many calls there were at that moment.
    last: Mutex<(i64, u64)>,
}

impl Fates {
    pub(crate) fn new(mut dice: Dice) -> Self {
        Self {
            row: dice.u64(),
            last: Mutex::default(),
        }
    }

    /// For one call, at `now`.
    pub(crate) fn of(&self, kind: &str, now: Timestamp) -> Dice {
        let mut last = self.last.lock().expect("nobody panics with it");
        let count = if last.0 == now.as_millis() {
            last.1 + 1
        } else {
            0
        };
        *last = (now.as_millis(), count);
        let kind = kind
            .bytes()
            .fold(count, |all, byte| mix(all ^ u64::from(byte)));
        Dice::new(self.row, kind ^ mix(now.as_millis().unsigned_abs()))
    }
}

/// The chance of one process.
#[derive(Debug)]
pub(crate) struct SeededRandom(AtomicU64);

impl SeededRandom {
    pub(crate) fn new(mut dice: Dice) -> Self {
        Self(AtomicU64::new(dice.u64()))
    }
}

impl Random for SeededRandom {
    fn fill(&self, bytes: &mut [u8]) {
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

    #[test]
    fn a_row_follows_from_its_seed_and_name() {
        let row = |seed, name| {
            let mut dice = Dice::new(seed, name);
            [dice.u64(), dice.u64()]
        };
        assert_eq!(row(1, 2), row(1, 2));
        assert_ne!(row(1, 2), row(2, 1));
        assert_ne!(row(1, 2), row(1, 3));
    }

    #[test]
    fn numbers_stay_within_their_limits() {
        let mut dice = Dice::new(7, 0);
        let mut seen = [false; 3];
        for _ in 0..1_000 {
            seen[usize::try_from(dice.between(-1, 1) + 1).unwrap()] = true;
            assert!(dice.below(5) < 5);
            assert!((0..=1_000).contains(&dice.spread(1_000)));
            assert_eq!(dice.spread(0), 0);
        }
        assert_eq!(seen, [true; 3]);
    }
}
