//! What is seen while it goes on.

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

/// Three bars: events sent, spans complete, usages counted. Nothing where there is no terminal.
pub(super) struct Progress {
    events: ProgressBar,
    spans: ProgressBar,
    usages: ProgressBar,
}

impl Progress {
    pub(super) fn new(events: usize) -> Self {
        let bars = MultiProgress::new();
        let bar = |name: &'static str, template: &str, length: usize| {
            let style = ProgressStyle::with_template(template).expect("a fixed template");
            let bar = ProgressBar::new(length as u64)
                .with_style(style)
                .with_message(name);
            bars.add(bar)
        };
        let counted = "{msg:16} [{bar:40}] {pos}/{len}";
        let events = bar("events sent", counted, events);
        let spans = bar("spans complete", counted, 0);
        let usages = bar("usages counted", "{msg:16} {pos}", 0);
        Self {
            events,
            spans,
            usages,
        }
    }

    /// One more event was sent.
    pub(super) fn event(&self) {
        self.events.inc(1);
    }

    /// All events were sent, and this many spans must complete.
    pub(super) fn sent(&self, stopped: usize) {
        self.spans.set_length(stopped as u64);
    }

    pub(super) fn update(&self, incomplete: u64, counted: u64) {
        let stopped = self.spans.length().unwrap_or_default();
        self.spans.set_position(stopped.saturating_sub(incomplete));
        self.usages.set_position(counted);
    }

    pub(super) fn finish(&self) {
        for bar in [&self.events, &self.spans, &self.usages] {
            bar.abandon();
        }
    }
}
