//! The randomness of processes and of their calls.

use std::sync::Mutex;

use sampler_domain::Timestamp;
use sampler_service::environment::Random;
use sampler_testkit::rng::{Rng, SharedRng, mix};

/// The outcomes of the calls of one process. Each is drawn from the moment and the kind of the call,
/// not from a sequence: so a run without some operation stays the same where that operation does not
/// matter, and a failing run can be made short.
#[derive(Debug)]
pub(crate) struct CallRng {
    seed: u64,
    /// The moment of the last call, and how many calls there were at that moment.
    last: Mutex<(i64, u64)>,
}

impl CallRng {
    pub(crate) fn new(mut rng: Rng) -> Self {
        Self {
            seed: rng.u64(),
            last: Mutex::default(),
        }
    }

    /// For one call, at `now`.
    pub(crate) fn of(&self, kind: &str, now: Timestamp) -> Rng {
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
        Rng::new(self.seed, kind ^ mix(now.as_millis().unsigned_abs()))
    }
}

/// The random bytes of one process.
#[derive(Debug)]
pub(crate) struct SeededRandom(SharedRng);

impl SeededRandom {
    pub(crate) fn new(mut rng: Rng) -> Self {
        Self(SharedRng::new(rng.u64()))
    }
}

impl Random for SeededRandom {
    fn fill(&self, bytes: &mut [u8]) {
        self.0.fill(bytes);
    }
}
