//! How far a long command is, for people at a terminal.

use std::time::Instant;

use indicatif::{HumanCount, HumanFloatCount, ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::output::wants_json;

/// How often a second it is drawn.
const DRAWN: u8 = 5;

/// A line on standard error. It is not drawn where nobody looks.
#[derive(Debug)]
pub(crate) struct Progress {
    bar: ProgressBar,
    /// Where this command has begun, and how much was done by then.
    begun: Option<(Instant, u64)>,
}

impl Progress {
    /// Counts to `total`, whatever its unit is. Without a total, neither a share nor what is left is known.
    pub(crate) fn to(total: Option<u64>) -> Self {
        let target = if wants_json() {
            ProgressDrawTarget::hidden()
        } else {
            ProgressDrawTarget::stderr_with_hz(DRAWN)
        };
        let bar = ProgressBar::with_draw_target(total, target);
        let template = match total {
            Some(_) => "{bar:20} {percent}%  {msg}, {eta} left",
            None => "{spinner} {msg}",
        };
        let style = ProgressStyle::with_template(template).expect("a template that is a constant");
        bar.set_style(style.progress_chars("=> "));
        Self { bar, begun: None }
    }

    pub(crate) fn hidden() -> Self {
        Self {
            bar: ProgressBar::hidden(),
            begun: None,
        }
    }

    /// Shows `at` of the total, and how many `things` that is, as in `1,203 events`; `more` follows.
    pub(crate) fn show(&mut self, at: u64, count: u64, things: &str, more: &str) {
        let Some((begun, before)) = self.begun else {
            return self.begin(at, count);
        };
        let seconds = begun.elapsed().as_secs_f64().max(0.001);
        #[expect(clippy::cast_precision_loss, reason = "a rate that people read")]
        let rate = (count - before.min(count)) as f64 / seconds;
        let (count, rate) = (HumanCount(count), HumanFloatCount(rate.round()));
        self.bar.set_position(at);
        self.bar
            .set_message(format!("{count} {things}{more}, {rate}/s"));
    }

    /// What was done before takes no part in the rate.
    fn begin(&mut self, at: u64, count: u64) {
        self.begun = Some((Instant::now(), count));
        self.bar.set_position(at);
        self.bar.reset_eta();
    }

    /// Takes the line away: what comes then says it all.
    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
