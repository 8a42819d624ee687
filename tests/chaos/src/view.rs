//! What is seen while it goes on.

use std::io::IsTerminal;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use crate::stats::Stats;

/// How often a line is written where there is no terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(10);

/// Lines that change in place on a terminal; elsewhere a line now and then.
#[derive(Debug)]
pub(crate) struct View {
    stats: Arc<Stats>,
    began: Instant,
    length: Duration,
    bars: MultiProgress,
    time: ProgressBar,
    lines: [ProgressBar; 4],
    is_terminal: bool,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// When events were counted last, how many there were, and how many a second that made.
    counted: (Instant, u64, f64),
    written: Instant,
}

impl View {
    pub(crate) fn new(stats: Arc<Stats>, length: Duration) -> Self {
        let bars = MultiProgress::new();
        let style =
            |template: &str| ProgressStyle::with_template(template).expect("a fixed template");
        let time = ProgressBar::new(length.as_secs()).with_style(style("[{bar:40}] {msg}"));
        let time = bars.add(time);
        let line = |()| bars.add(ProgressBar::new(0).with_style(style("{msg}")));
        let lines = [(); 4].map(line);
        let now = Instant::now();
        let shown = State {
            counted: (now, 0, 0.0),
            written: now,
        };
        Self {
            stats,
            began: now,
            length,
            bars,
            time,
            lines,
            is_terminal: std::io::stderr().is_terminal(),
            state: Mutex::new(shown),
        }
    }

    /// Says something that stays.
    pub(crate) fn say(&self, text: &str) {
        let text = format!("{:>4} s  {text}", self.began.elapsed().as_secs());
        if self.is_terminal {
            // The terminal may be gone.
            let _ = self.bars.println(text);
        } else {
            eprintln!("{text}");
        }
    }

    /// Shows how things are. `usages`: how many Abacus counts.
    pub(crate) fn draw(&self, usages: u64) {
        let lines = self.texts(usages);
        if self.is_terminal {
            let elapsed = self.began.elapsed();
            self.time
                .set_position(elapsed.as_secs().min(self.length.as_secs()));
            self.time.set_message(format!("{} s", elapsed.as_secs()));
            for (bar, text) in self.lines.iter().zip(lines) {
                bar.set_message(text);
            }
            return;
        }
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.written.elapsed() < LINE_INTERVAL {
            return;
        }
        state.written = Instant::now();
        drop(state);
        let [counts, _, current, error] = lines;
        self.say(&format!("{counts}; {current}; {error}"));
    }

    fn texts(&self, usages: u64) -> [String; 4] {
        let (stats, spans) = (&self.stats, self.stats.spans());
        let counts = format!(
            "events {} ({:.0}/s), retries {}, usages {usages}; spans: open {}, stopped {}, \
             complete {}",
            stats.events(),
            self.rate(stats.events()),
            stats.retries.get(),
            spans.open,
            spans.stopped,
            spans.complete,
        );
        let faults = stats.faults();
        let faults: Vec<String> = faults
            .iter()
            .map(|(kind, count)| format!("{kind} {count}"))
            .collect();
        let current = stats.current_faults();
        let current = if current.is_empty() {
            "nothing".to_owned()
        } else {
            current.join(", ")
        };
        [
            counts,
            format!("faults: {}", faults.join(", ")),
            format!("now: {current}"),
            format!("last error: {}", stats.last_error()),
        ]
    }

    /// Events a second, over the last second or more.
    fn rate(&self, events: u64) -> f64 {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (at, before, rate) = state.counted;
        let seconds = at.elapsed().as_secs_f64();
        if seconds < 1.0 {
            return rate;
        }
        let rate = events.saturating_sub(before) as f64 / seconds;
        state.counted = (Instant::now(), events, rate);
        rate
    }

    /// Leaves what was shown last.
    pub(crate) fn finish(&self) {
        self.time.abandon();
        for line in &self.lines {
            line.abandon();
        }
    }
}
