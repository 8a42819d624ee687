//! Limits on signing in, for which nobody needs a token although it costs requests to the token server.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use tokio::sync::{Semaphore, SemaphorePermit};

/// How many people may be signing in at the same time: each holds a request to the token server.
const AT_ONCE: usize = 8;

/// How many used attempts are remembered. Who fills this uses as many requests for it as a repeat of
/// one that is forgotten would save.
const USED_MAX: usize = 4_096;

/// The attempts of one instance.
pub(crate) struct Attempts {
    permits: Semaphore,
    /// The states of the latest attempts that have returned, the last one last.
    used: Mutex<VecDeque<String>>,
}

impl Default for Attempts {
    fn default() -> Self {
        Self {
            permits: Semaphore::new(AT_ONCE),
            used: Mutex::default(),
        }
    }
}

impl Attempts {
    /// A permit to ask the token server; none where enough others are asking it.
    pub(crate) fn admit(&self) -> Option<SemaphorePermit<'_>> {
        self.permits.try_acquire().ok()
    }

    /// Uses the state of an attempt. False where it was used before.
    pub(crate) fn consume(&self, state: &str) -> bool {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        if used.iter().any(|known| known == state) {
            return false;
        }
        if used.len() == USED_MAX {
            used.pop_front();
        }
        used.push_back(state.to_owned());
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_used_once_and_only_so_many_are_remembered() {
        let attempts = Attempts::default();
        assert!(attempts.consume("first"));
        assert!(!attempts.consume("first"));
        for number in 0..USED_MAX {
            assert!(attempts.consume(&number.to_string()));
        }
        assert_eq!(attempts.used.lock().unwrap().len(), USED_MAX);
        assert!(attempts.consume("first"));
    }

    #[test]
    fn a_handful_may_ask_at_a_time() {
        let attempts = Attempts::default();
        let mut held: Vec<_> = (0..AT_ONCE).map(|_| attempts.admit().unwrap()).collect();
        assert!(attempts.admit().is_none());
        held.pop();
        assert!(attempts.admit().is_some());
    }
}
