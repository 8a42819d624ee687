//! Counts of a run, for the display and for the summary.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::schedule::Lane;

/// How long a text may be that is shown in one line.
const TEXT_MAX: usize = 160;

/// A number that only grows.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// How many spans there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Spans {
    /// Not stopped.
    pub(crate) open: u64,
    /// Stopped, and not through with it.
    pub(crate) stopped: u64,
    /// Through with it.
    pub(crate) complete: u64,
}

/// All counts of a run.
#[derive(Debug, Default)]
pub(crate) struct Stats {
    /// Events with a definite answer, by what it was; and those without one.
    pub(crate) accepted: Counter,
    pub(crate) refused: Counter,
    pub(crate) unknown: Counter,
    /// Events that were sent again because no answer said the outcome.
    pub(crate) retries: Counter,
    /// Events that were sent again though the outcome was known.
    pub(crate) repeats: Counter,
    /// Batches of new events of which some were kept and others had no definite answer.
    pub(crate) broken_batches: Counter,
    /// Those of them that a repeat has completed.
    pub(crate) mended_batches: Counter,
    /// Acts of operators that were done.
    pub(crate) skips: Counter,
    pub(crate) resumes: Counter,
    pub(crate) resends: Counter,
    /// Acts that were answered that their subject had changed.
    pub(crate) outdated_acts: Counter,
    /// Acts that had no definite answer.
    pub(crate) unknown_acts: Counter,
    longest_outage: AtomicU64,
    details: Mutex<Details>,
}

#[derive(Debug, Default)]
struct Details {
    faults: BTreeMap<&'static str, u64>,
    current: BTreeMap<Lane, String>,
    last_error: String,
    spans: Spans,
}

impl Stats {
    fn details(&self) -> MutexGuard<'_, Details> {
        self.details.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Events with a definite answer.
    pub(crate) fn events(&self) -> u64 {
        self.accepted.get() + self.refused.get()
    }

    /// A client has waited so long for a definite answer.
    pub(crate) fn note_wait(&self, wait: Duration) {
        let millis = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        self.longest_outage.fetch_max(millis, Ordering::Relaxed);
    }

    /// The longest that a client has waited for a definite answer.
    pub(crate) fn longest_outage(&self) -> Duration {
        Duration::from_millis(self.longest_outage.load(Ordering::Relaxed))
    }

    pub(crate) fn fault_begins(&self, lane: Lane, kind: &'static str, text: String) {
        let mut details = self.details();
        *details.faults.entry(kind).or_default() += 1;
        details.current.insert(lane, text);
    }

    /// The fault of that lane is over.
    pub(crate) fn fault_ends(&self, lane: Lane) {
        self.details().current.remove(&lane);
    }

    /// How many faults of each kind there were.
    pub(crate) fn faults(&self) -> BTreeMap<&'static str, u64> {
        self.details().faults.clone()
    }

    /// What is going wrong at the moment.
    pub(crate) fn current_faults(&self) -> Vec<String> {
        self.details().current.values().cloned().collect()
    }

    /// Something went wrong, as it may.
    pub(crate) fn error(&self, text: &str) {
        self.details().last_error = text.chars().take(TEXT_MAX).collect();
    }

    pub(crate) fn last_error(&self) -> String {
        self.details().last_error.clone()
    }

    pub(crate) fn set_spans(&self, spans: Spans) {
        self.details().spans = spans;
    }

    pub(crate) fn spans(&self) -> Spans {
        self.details().spans
    }
}
