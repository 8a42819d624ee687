//! What is seen while it runs: a line now and then.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::stats::Stats;

/// How often a line is written.
const LINE_INTERVAL: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(crate) struct View {
    stats: Arc<Stats>,
    began: Instant,
    /// When the last line was written, and how many events there were by then.
    last: Mutex<(Instant, u64)>,
}

impl View {
    pub(crate) fn new(stats: Arc<Stats>) -> Self {
        let began = Instant::now();
        Self {
            stats,
            began,
            last: Mutex::new((began, 0)),
        }
    }

    pub(crate) fn say(&self, text: &str) {
        eprintln!("{:>4} s  {text}", self.began.elapsed().as_secs());
    }

    /// Says how things are, if it is time to. `usages`: how many Abacus counts.
    pub(crate) fn draw(&self, usages: u64) {
        let (stats, events) = (&self.stats, self.stats.events());
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let passed = last.0.elapsed();
        if passed < LINE_INTERVAL {
            return;
        }
        let rate = events.saturating_sub(last.1) as f64 / passed.as_secs_f64();
        *last = (Instant::now(), events);
        drop(last);
        let spans = stats.spans();
        self.say(&format!(
            "events {events} ({rate:.0}/s), retries {}, usages {usages}; spans: open {}, stopped {}, \
             complete {}; now: {}; last error: {}",
            stats.retries.get(),
            spans.open,
            spans.stopped,
            spans.complete,
            stats.current_faults().join(", "),
            stats.last_error(),
        ));
    }
}
