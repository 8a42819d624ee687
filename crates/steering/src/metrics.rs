//! Metrics of the backlog, and of how many starts are admitted.

use std::sync::Arc;

use sampler_domain::Timestamp;
use sampler_metrics::Registry;
use sampler_service::environment::Clock;
use sampler_store::{Backlog, ControllerState};

use crate::{MonthClose, Steering, is_of};

sampler_metrics::metrics! {
    pub METRICS;

    /// Spans that are due; no more than were counted within 2 s
    BACKLOG_SPANS = "sampler_backlog_spans", Gauge;

    /// How long the span has been due that waits longest; 0 where none is due
    BACKLOG_OLDEST_SECONDS = "sampler_backlog_oldest_seconds", Gauge;

    /// The time until the upstream closes the previous month; absent while no month closes
    MONTH_CLOSE_SECONDS = "sampler_month_close_seconds", Gauge;

    /// Spans with intervals of the previous month that are not sampled yet; absent while no month
    /// closes
    MONTH_LEFT_SPANS = "sampler_month_left_spans", Gauge;

    /// Spans that are suspended, because the upstream refuses their usages
    SUSPENDED_SPANS = "sampler_suspended_spans", Gauge;

    /// The percentage of new starts that is admitted, for resources without a rate of their own
    ADMISSION_RATE = "sampler_admission_rate", Gauge;

    /// 1 while operators have paused sampling; 0 otherwise
    SAMPLING_PAUSED = "sampler_sampling_paused", Gauge;

    /// 1 while the controller of starts is on and its parameters are right; 0 otherwise
    CONTROLLER_RUNNING = "sampler_controller_running", Gauge;

    /// How long the backlog needs, as the controller measured last; absent while it does not run
    CONTROLLER_NEEDED_SECONDS = "sampler_controller_needed_seconds", Gauge;

    /// The term of the error, as a share of all starts; absent while the controller does not run
    CONTROLLER_PROPORTIONAL = "sampler_controller_proportional", Gauge;

    /// The term of the sum of all errors, as a share of all starts; absent while the controller does
    /// not run
    CONTROLLER_INTEGRAL = "sampler_controller_integral", Gauge;

    /// The term of the change of the error, as a share of all starts; absent while the controller does
    /// not run
    CONTROLLER_DERIVATIVE = "sampler_controller_derivative", Gauge;
}

impl Steering {
    /// Adds what is known of the backlog and of rates to the metrics of a program.
    pub fn register_metrics(
        self: &Arc<Self>,
        registry: &mut Registry,
        clock: &Arc<dyn Clock>,
        month: MonthClose,
    ) {
        let of_backlog = |read: fn(&Backlog, Timestamp) -> f64| {
            let (steering, clock) = (Arc::clone(self), Arc::clone(clock));
            move || {
                let backlog = steering.backlog()?;
                Some(read(&backlog.value, clock.now()))
            }
        };
        registry.gauge(&BACKLOG_SPANS, of_backlog(|it, _| it.due as f64));
        registry.gauge(&BACKLOG_OLDEST_SECONDS, of_backlog(oldest_seconds));
        registry.gauge(&SUSPENDED_SPANS, of_backlog(|it, _| it.suspended as f64));
        let of_clock = Arc::clone(clock);
        registry.gauge(&MONTH_CLOSE_SECONDS, move || {
            let now = of_clock.now();
            let closing = month.closing(now)?;
            Some(month.closes_at(closing.end).since(now) as f64 / 1_000.0)
        });
        let (steering, of_clock) = (Arc::clone(self), Arc::clone(clock));
        registry.gauge(&MONTH_LEFT_SPANS, move || {
            let closing = month.closing(of_clock.now());
            let backlog = steering.backlog()?.value;
            let left = backlog.closing.filter(|_| is_of(closing, &backlog))?;
            Some(left.spans as f64)
        });
        let steering = Arc::clone(self);
        registry.gauge(&ADMISSION_RATE, move || {
            Some(steering.admission_rate().get())
        });
        let steering = Arc::clone(self);
        registry.gauge(&SAMPLING_PAUSED, move || {
            Some(f64::from(u8::from(steering.is_sampling_paused())))
        });
        self.register_controller(registry);
    }

    pub(crate) fn register_controller(self: &Arc<Self>, registry: &mut Registry) {
        let steering = Arc::clone(self);
        registry.gauge(&CONTROLLER_RUNNING, move || {
            let settings = steering.control().controller;
            let is_running = settings.enabled && settings.errors().is_empty();
            Some(f64::from(u8::from(is_running)))
        });
        let of_terms = |read: fn(&ControllerState) -> f64| {
            let steering = Arc::clone(self);
            move || steering.controller().as_ref().map(read)
        };
        registry.gauge(
            &CONTROLLER_NEEDED_SECONDS,
            of_terms(|state| state.terms.needed_seconds),
        );
        registry.gauge(
            &CONTROLLER_PROPORTIONAL,
            of_terms(|state| state.terms.proportional),
        );
        registry.gauge(&CONTROLLER_INTEGRAL, of_terms(|state| state.terms.integral));
        registry.gauge(
            &CONTROLLER_DERIVATIVE,
            of_terms(|state| state.terms.derivative),
        );
    }
}

fn oldest_seconds(backlog: &Backlog, now: Timestamp) -> f64 {
    let since = backlog.oldest.map_or(0, |oldest| now.since(oldest).max(0));
    since as f64 / 1_000.0
}
