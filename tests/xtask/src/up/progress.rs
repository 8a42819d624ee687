//! What is seen while the spans are sampled.

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

/// Two bars: spans complete, usages counted. Nothing where there is no terminal.
pub(super) struct Progress {
    spans: ProgressBar,
    usages: ProgressBar,
}

impl Progress {
    /// With so many spans that are to be complete.
    pub(super) fn new(stopped: u64) -> Self {
        let bars = MultiProgress::new();
        let bar = |name: &'static str, template: &str| {
            let style = ProgressStyle::with_template(template).expect("a fixed template");
            let bar = ProgressBar::new(stopped).with_style(style);
            bars.add(bar.with_message(name))
        };
        Self {
            spans: bar("spans complete", "{msg:16} [{bar:40}] {pos}/{len}"),
            usages: bar("usages counted", "{msg:16} {pos}"),
        }
    }

    pub(super) fn update(&self, incomplete: u64, counted: u64) {
        let stopped = self.spans.length().unwrap_or_default();
        self.spans.set_position(stopped.saturating_sub(incomplete));
        self.usages.set_position(counted);
    }
}

impl Drop for Progress {
    /// The bars stay as they are.
    fn drop(&mut self) {
        self.spans.abandon();
        self.usages.abandon();
    }
}
