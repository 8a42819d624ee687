//! Metrics of the backlog, and of how many starts are admitted.

use metrics::gauge;
use sampler_domain::Timestamp;
use sampler_store::Backlog;

use crate::{MonthClose, Steering, is_of};

impl Steering {
    /// Sets the metrics of what is known of the backlog and of rates.
    pub fn measure(&self, now: Timestamp, month: MonthClose) {
        let closing = month.closing(now);
        if let Some(closing) = closing {
            let left = month.closes_at(closing.end).since(now);
            gauge!("sampler_month_close_seconds").set(left as f64 / 1_000.0);
        }
        if let Some(backlog) = self.backlog().map(|read| read.value) {
            gauge!("sampler_backlog_spans").set(backlog.due as f64);
            gauge!("sampler_backlog_oldest_seconds").set(oldest_seconds(&backlog, now));
            gauge!("sampler_suspended_spans").set(backlog.suspended as f64);
            let left = backlog.closing.filter(|_| is_of(closing, &backlog));
            if let Some(left) = left {
                gauge!("sampler_month_left_spans").set(left.spans as f64);
            }
        }
        gauge!("sampler_admission_rate").set(self.admission_rate().get());
        gauge!("sampler_sampling_paused").set(u8::from(self.is_sampling_paused()));
        self.measure_controller();
    }

    fn measure_controller(&self) {
        let settings = self.control().controller;
        let is_running = settings.enabled && settings.errors().is_empty();
        gauge!("sampler_controller_running").set(u8::from(is_running));
        if let Some(controller) = self.controller() {
            let terms = controller.terms;
            gauge!("sampler_controller_needed_seconds").set(terms.needed_seconds);
            gauge!("sampler_controller_proportional").set(terms.proportional);
            gauge!("sampler_controller_integral").set(terms.integral);
            gauge!("sampler_controller_derivative").set(terms.derivative);
        }
    }
}

fn oldest_seconds(backlog: &Backlog, now: Timestamp) -> f64 {
    let since = backlog.oldest.map_or(0, |oldest| now.since(oldest).max(0));
    since as f64 / 1_000.0
}
