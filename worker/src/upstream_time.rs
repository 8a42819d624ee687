//! The upstream's time: the one notion of now in a worker.
//!
//! It follows the upstream's clock, which the `Date` of several answers shows, and a clock that does not
//! step. Each posted usage brings an answer with a date; while none are posted, requests ask for the
//! time. The worker decides nothing by time before the estimate is there: if its own clock were a
//! day ahead, it would post the future.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use sampler_domain::Timestamp;
use sampler_service::environment::Clock;
use sampler_store::Limiter;
use sampler_upstream::{AnswerDate, ClockEstimate, ClockReading, Noted, Pace};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};
use tracing::{error, info, warn};

use crate::{ReportProgress, Worker};

/// Clocks that differ by less agree, ms.
const TOLERANCE: i64 = 5_000;

/// After this many answers in a row without a date, the upstream counts as one that never dates them.
const UNDATED_MOST: u32 = 3;

/// How often the log says that the upstream does not answer.
const NO_ANSWER_INTERVAL: Duration = Duration::from_mins(1);

/// The current time, by the upstream's clock as far as it is known.
pub struct UpstreamTime {
    clock: Arc<dyn Clock>,
    began: Instant,
    pace: Pace,
    state: Mutex<TimeState>,
    /// Limits how often the log says that there is no answer.
    no_answer: Limiter<()>,
    /// Notified when the time becomes known.
    known: Notify,
}

struct TimeState {
    estimate: ClockEstimate,
    /// Answers in a row that had no date.
    undated: u32,
    /// The clocks are more than a year apart, and ours is the later one.
    is_far_ahead: bool,
    asked_at: Option<Duration>,
    /// Whether the last request for the time had an answer.
    is_answered: bool,
    reported: ClockState,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ClockState {
    #[default]
    Agrees,
    Ahead,
    Behind,
    FarAhead,
    Undated,
}

/// When a request was sent.
#[derive(Clone, Copy)]
pub(crate) struct SentAt(Duration);

impl UpstreamTime {
    /// Nothing is known of the upstream's clock yet; `clock` is the one of this machine.
    pub fn new(clock: Arc<dyn Clock>, pace: Pace) -> Arc<Self> {
        Arc::new(Self {
            clock,
            began: Instant::now(),
            pace,
            state: Mutex::new(TimeState {
                estimate: ClockEstimate::new(pace),
                undated: 0,
                is_far_ahead: false,
                asked_at: None,
                is_answered: false,
                reported: ClockState::default(),
            }),
            no_answer: Limiter::new(1, NO_ANSWER_INTERVAL),
            known: Notify::new(),
        })
    }

    /// How far the clock of this machine is ahead of the upstream's, in ms; negative where it is behind.
    /// None where that is not known.
    pub fn ahead(&self) -> Option<i64> {
        let state = self.state();
        state.estimate.ahead(self.instant(), self.clock.now())
    }

    /// Whether the clocks differ by more than the tolerance.
    pub fn disagrees(&self) -> bool {
        let is_far_ahead = self.state().is_far_ahead;
        is_far_ahead
            || self
                .ahead()
                .is_some_and(|ahead| ahead.saturating_abs() >= TOLERANCE)
    }

    /// Whether the worker goes by its own clock, because the upstream's answers have no date.
    pub fn uses_own_clock(&self) -> bool {
        let state = self.state();
        state.is_undated() && state.estimate.at(self.instant()).is_none()
    }

    /// The current time. If the estimate is too old, it is still used: that is enough for notes,
    /// and for what is decided already. No clock shows [`Timestamp::MAX`], which stands for "never".
    pub(crate) fn now(&self) -> Timestamp {
        let (state, instant) = (self.state(), self.instant());
        let estimate = if state.is_undated() {
            state.estimate.at(instant)
        } else {
            state.estimate.at_by_last(instant)
        };
        let now = estimate.unwrap_or_else(|| self.clock.now());
        now.min(Timestamp::MAX.plus(-1))
    }

    pub(crate) fn is_known(&self) -> bool {
        let state = self.state();
        state.is_undated() || state.estimate.at(self.instant()).is_some()
    }

    /// To be called when a request is sent.
    pub(crate) fn request_sent(&self) -> SentAt {
        SentAt(self.instant())
    }

    /// Takes the date of an answer into the estimate.
    pub(crate) fn note_answer(&self, sent_at: SentAt, dated: AnswerDate) {
        let (received, ours) = (self.instant(), self.clock.now());
        let mut state = self.state();
        match dated {
            AnswerDate::NoAnswer => return,
            AnswerDate::Undated => state.undated = state.undated.saturating_add(1),
            AnswerDate::At(date) => {
                let reading = ClockReading {
                    sent: sent_at.0,
                    received,
                    ours,
                    date,
                };
                let noted = state.estimate.note(&reading);
                state.is_far_ahead = noted == Noted::FarBehind;
                match noted {
                    Noted::Taken | Noted::TooSoon => state.undated = 0,
                    // Our clock is a year behind: by it, nothing seems past that is not.
                    Noted::FarAhead => state.undated = state.undated.saturating_add(1),
                    Noted::FarBehind => {}
                }
            }
        }
        state.report(received, ours);
        drop(state);
        if self.is_known() {
            self.known.notify_waiters();
        }
    }

    /// How long until the time is asked for, if no other answer comes before.
    fn until_asked(&self) -> Duration {
        let (state, instant) = (self.state(), self.instant());
        let Some(asked_at) = state.asked_at else {
            return Duration::ZERO;
        };
        let is_known = state.is_undated() || state.estimate.at(instant).is_some();
        let interval = if is_known && state.estimate.is_in_doubt(instant) {
            self.pace.in_doubt()
        } else if is_known {
            self.pace.usual
        } else if state.is_answered && !state.is_far_ahead {
            self.pace.first_spacing()
        } else {
            self.pace.spacing()
        };
        let last = state
            .estimate
            .last_at()
            .map_or(asked_at, |at| at.max(asked_at));
        (last + interval).saturating_sub(instant)
    }

    /// Notes the answer to a request for the time.
    fn note_time(&self, sent_at: SentAt, answer: Result<AnswerDate, String>) {
        let instant = self.instant();
        let mut state = self.state();
        state.asked_at = Some(instant);
        state.is_answered = answer.is_ok();
        drop(state);
        match answer {
            Ok(dated) => self.note_answer(sent_at, dated),
            Err(error) if !self.is_known() => self.report_no_answer(&error),
            // A post reports the failure itself, or the upstream answered seconds ago.
            Err(_) => {}
        }
    }

    /// Logs, once in a while, why nothing is sampled.
    fn report_no_answer(&self, error: &str) {
        if self.no_answer.admit(()).is_some() {
            warn!(
                code = "clock.no_answer",
                error, "the upstream does not answer: nothing is sampled before it does"
            );
        }
    }

    fn instant(&self) -> Duration {
        self.began.elapsed()
    }

    fn state(&self) -> MutexGuard<'_, TimeState> {
        self.state.lock().expect("nobody panics with it")
    }
}

impl TimeState {
    fn is_undated(&self) -> bool {
        self.undated >= UNDATED_MOST
    }

    /// Logs each change of how our clock compares with the upstream's.
    fn report(&mut self, instant: Duration, ours: Timestamp) {
        let ahead_ms = self.estimate.ahead(instant, ours);
        let state = match ahead_ms {
            Some(ahead) if ahead >= TOLERANCE => ClockState::Ahead,
            Some(ahead) if ahead <= -TOLERANCE => ClockState::Behind,
            Some(_) => ClockState::Agrees,
            None if self.is_undated() => ClockState::Undated,
            None if self.is_far_ahead => ClockState::FarAhead,
            None => return,
        };
        if std::mem::replace(&mut self.reported, state) != state {
            state.log(ahead_ms.unwrap_or_default());
        }
    }
}

impl ClockState {
    fn log(self, ahead_ms: i64) {
        match self {
            Self::Ahead => warn!(
                code = "clock.ahead",
                ahead_ms, "the clock of this machine is ahead of the upstream's"
            ),
            Self::Behind => warn!(
                code = "clock.behind",
                ahead_ms, "the clock of this machine is behind the upstream's"
            ),
            Self::FarAhead => error!(
                code = "clock.far_ahead",
                "nothing is sampled: the clock of this machine is more than a year ahead of the upstream's"
            ),
            Self::Undated => warn!(
                code = "clock.undated",
                "the upstream's answers have no date: the worker goes by the clock of this machine"
            ),
            Self::Agrees => info!("the clock of this machine agrees with the upstream's again"),
        }
    }
}

impl Worker {
    /// Keeps the estimate of the upstream's clock fresh: asks for the time when no answer came for a while.
    pub(crate) async fn keep_clock_estimate(&self) {
        while !self.stop.is_cancelled() {
            let wait = self.time.until_asked();
            if !wait.is_zero() {
                self.sleep(wait).await;
                continue;
            }
            let sent_at = self.time.request_sent();
            let asking = self.parts.upstream.ask_time();
            if let Some(answer) = self.stop.run_until_cancelled(asking).await {
                self.time.note_time(sent_at, answer);
            }
        }
    }

    /// Waits until the time is known; false if the worker shuts down before.
    pub(crate) async fn wait_until_time_known(&self, progress: &dyn ReportProgress) -> bool {
        while !self.stop.is_cancelled() {
            let known = self.time.known.notified();
            if self.time.is_known() {
                return true;
            }
            // A clock that is a year off must be set by a person, so readiness fails.
            if !self.time.state().is_far_ahead {
                progress.report();
            }
            let wait = timeout(progress.interval(), known);
            let _ = self.stop.run_until_cancelled(wait).await;
        }
        false
    }
}
