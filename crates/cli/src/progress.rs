//! How far a long command is, for people at a terminal.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::output::wants_json;

/// How often a second it is drawn.
const DRAWN: u8 = 5;

/// A line on standard error. It is not drawn where nobody looks.
#[derive(Debug)]
pub(crate) struct Progress(ProgressBar);

impl Progress {
    /// Counts to `total`. Without a total, neither a share nor what is left is known.
    pub(crate) fn to(total: Option<u64>) -> Self {
        let target = if wants_json() {
            ProgressDrawTarget::hidden()
        } else {
            ProgressDrawTarget::stderr_with_hz(DRAWN)
        };
        let template = match total {
            Some(_) => "{bar:20} {percent}%  {human_pos} {msg}, {per_sec}, {eta} left",
            None => "{spinner} {human_pos} {msg}, {per_sec}",
        };
        let style = ProgressStyle::with_template(template).expect("a template that is a constant");
        let bar = ProgressBar::with_draw_target(total, target);
        Self(bar.with_style(style.progress_chars("=> ")))
    }

    pub(crate) fn hidden() -> Self {
        Self(ProgressBar::hidden())
    }

    /// Shows how many `things` are done, as in `1,203 events`; `more` follows.
    pub(crate) fn show(&self, done: u64, things: &str, more: &str) {
        self.0.set_position(done);
        self.0.set_message(format!("{things}{more}"));
    }

    /// Takes the line away: what comes then says it all.
    pub(crate) fn finish(&self) {
        self.0.finish_and_clear();
    }
}
