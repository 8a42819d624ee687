//! The backlog, and the control of operators and the controller, as every instance of both programs
//! knows them. They are read every 2 s, so a change is followed within 5 s.
//!
//! If something cannot be read, the last known value holds. Before the first read the rate of
//! starts is 100 %; but receivers take no events and workers begin nothing until they know what
//! operators have set.

mod clock;
mod metrics;
mod month;

use std::sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use sampler_domain::{ClosingMonth, Control, Id, Percent, Timestamp};
use sampler_service::telemetry::error_chain;
use sampler_store::{
    Backlog, ControllerState, KeptControl, Limiter, Operating, Published, StoreError,
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{error, warn};

pub use clock::DatabaseClock;
pub use month::MonthClose;

/// How often everything is read.
pub const FOLLOW_INTERVAL: Duration = Duration::from_secs(2);

/// The least time between two lines of the log about one failure.
const LOG_INTERVAL: Duration = Duration::from_mins(1);

/// How long it holds since when receivers take events, once that was read. Workers wait for longer before
/// they remove what they have named.
pub const EVENT_AGE_LIFETIME: Duration = Duration::from_mins(5);

/// How long a rate that the controller has set holds without a further step, ms. After that no
/// worker makes steps, and the rate no longer reflects the backlog.
const CONTROLLER_LIFETIME: i64 = 300_000;

/// Follows the documents that all instances read.
pub struct Steering {
    store: Arc<dyn Operating>,
    known: RwLock<Known>,
    /// Failures that the log reports. While the database is away, each instance asks it every few
    /// seconds: further lines would say nothing new.
    reports: Limiter<&'static str>,
}

/// The last values that were read.
#[derive(Default)]
struct Known {
    control: Option<KeptControl>,
    controller: Option<LastRead<ControllerState>>,
    backlog: Option<LastRead<Backlog>>,
    /// Since when receivers take events, and when that was read.
    events_taken_since: Option<(Timestamp, Instant)>,
}

/// Something that was read, and when.
#[derive(Clone)]
struct LastRead<T> {
    published: Published<T>,
    at: Instant,
}

impl<T: Clone> LastRead<T> {
    fn at(at: Instant, published: Published<T>) -> Self {
        Self { published, at }
    }

    /// As it is now: older than when it was read.
    fn now(&self) -> Published<T> {
        let since = i64::try_from(self.at.elapsed().as_millis()).unwrap_or(i64::MAX);
        Published {
            value: self.published.value.clone(),
            age: self.published.age.saturating_add(since),
        }
    }
}

impl Steering {
    pub fn new(store: Arc<dyn Operating>) -> Arc<Self> {
        Arc::new(Self {
            store,
            known: RwLock::default(),
            reports: Limiter::new(1, LOG_INTERVAL),
        })
    }

    fn known(&self) -> RwLockReadGuard<'_, Known> {
        self.known.read().expect("nobody panics with it")
    }

    fn known_mut(&self) -> RwLockWriteGuard<'_, Known> {
        self.known.write().expect("nobody panics with it")
    }

    /// Whether the log reports a failure with this code, which may come again every few seconds.
    pub fn may_report(&self, code: &'static str) -> bool {
        self.reports.admit(code).is_some()
    }

    /// Reads everything again and again until `stop`, with this pause.
    pub async fn follow(&self, interval: Duration, stop: &CancellationToken) {
        while !stop.is_cancelled() {
            self.poll().await;
            let pause = tokio::time::sleep(interval);
            stop.run_until_cancelled(pause).await;
        }
    }

    /// Reads everything once.
    pub async fn poll(&self) {
        let asked = Instant::now();
        let control = self.store.control().await;
        let controller = self.store.controller().await;
        let backlog = self.store.published_backlog().await;
        let taken_since = self.store.events_taken_since().await;
        self.note_control(control);
        self.note_event_age(taken_since, asked);
        match (controller, backlog) {
            (Ok(controller), Ok(backlog)) => {
                let mut known = self.known_mut();
                known.controller = controller.map(|state| LastRead::at(asked, state));
                known.backlog = backlog.map(|backlog| LastRead::at(asked, backlog));
            }
            (Err(error), _) | (_, Err(error)) => {
                if self.may_report("steering.not_read") {
                    warn!(
                        code = "steering.not_read",
                        error = error_chain(&error),
                        "the backlog and the controller could not be read"
                    );
                }
            }
        }
    }

    fn note_control(&self, control: Result<KeptControl, StoreError>) {
        let mut known = self.known_mut();
        match control {
            Ok(control) => known.control = Some(control),
            Err(StoreError::Refused(problem)) => {
                // Nobody but an operator can mend it, and until then everything continues.
                known.control.get_or_insert_with(KeptControl::default);
                if self.may_report("control.unreadable") {
                    error!(code = "control.unreadable", error = %problem,
                        "what operators have set cannot be read; what was known last holds");
                }
            }
            Err(error) => {
                if self.may_report("control.not_read") {
                    warn!(
                        code = "control.not_read",
                        error = error_chain(&error),
                        "what operators have set could not be read; what was known last holds"
                    );
                }
            }
        }
    }

    fn note_event_age(&self, since: Result<Timestamp, StoreError>, asked: Instant) {
        match since {
            Ok(since) => self.known_mut().events_taken_since = Some((since, asked)),
            Err(error) => {
                if self.may_report("event_age.not_read") {
                    warn!(
                        code = "event_age.not_read",
                        error = error_chain(&error),
                        "how old events may be could not be read"
                    );
                }
            }
        }
    }

    /// Since when receivers take events; `None` where that was not read of late
    /// ([`EVENT_AGE_LIFETIME`]). A receiver that has not read it at all takes no events.
    pub fn events_taken_since(&self) -> Option<Timestamp> {
        let Some((since, read_at)) = self.known().events_taken_since else {
            return Some(Timestamp::MIN);
        };
        (read_at.elapsed() < EVENT_AGE_LIFETIME).then_some(since)
    }

    /// Whether it was read at least once since when receivers take events.
    pub fn knows_event_age(&self) -> bool {
        self.known().events_taken_since.is_some()
    }

    /// Whether the control document was read at least once.
    pub fn is_known(&self) -> bool {
        self.known().control.is_some()
    }

    /// The settings of operators, as far as they are known.
    pub fn control(&self) -> Control {
        let known = self.known();
        let kept = known.control.as_ref();
        kept.map(|kept| kept.control.clone()).unwrap_or_default()
    }

    pub fn control_version(&self) -> i64 {
        self.known().control.as_ref().map_or(0, |kept| kept.version)
    }

    pub fn is_sampling_paused(&self) -> bool {
        let known = self.known();
        let kept = known.control.as_ref();
        kept.is_some_and(|kept| kept.control.sampling.paused)
    }

    /// How many of the new starts of a resource are admitted: all rates that apply multiply.
    pub fn start_rate_of(&self, resource: &Id) -> Percent {
        let known = self.known();
        let rates = known.control.as_ref().map(|kept| &kept.control.starts);
        let set = rates.map_or(Percent::ALL, |starts| starts.of(resource));
        set.times(known.automatic_rate())
    }

    /// The same of a resource without a rate of its own.
    pub fn admission_rate(&self) -> Percent {
        let known = self.known();
        let rates = known.control.as_ref().map(|kept| &kept.control.starts);
        let set = rates.map_or(Percent::ALL, |starts| starts.rate);
        set.times(known.automatic_rate())
    }

    /// The rate of the controller, if it runs.
    pub fn controller(&self) -> Option<ControllerState> {
        let known = self.known();
        let running = known.running_controller()?;
        Some(running.value)
    }

    pub fn backlog(&self) -> Option<Published<Backlog>> {
        self.known().backlog.as_ref().map(LastRead::now)
    }
}

impl Known {
    fn running_controller(&self) -> Option<Published<ControllerState>> {
        let settings = self.control.as_ref()?.control.controller;
        if !settings.enabled || !settings.errors().is_empty() {
            return None;
        }
        let controller = self.controller.as_ref().map(LastRead::now)?;
        (0..=CONTROLLER_LIFETIME)
            .contains(&controller.age)
            .then_some(controller)
    }

    /// The rate that no operator has set.
    fn automatic_rate(&self) -> Percent {
        self.running_controller()
            .map_or(Percent::ALL, |state| state.value.rate)
    }
}

/// Whether the backlog was counted while this month was closing.
fn is_of(month: Option<ClosingMonth>, backlog: &Backlog) -> bool {
    let counted = backlog.closing.map(|closing| closing.end);
    counted == month.map(|month| month.end)
}

#[cfg(test)]
#[allow(clippy::float_cmp, reason = "these numbers are exact")]
mod tests;
