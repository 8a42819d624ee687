//! What time it is: the one notion of now in a worker.
//!
//! It follows Abacus's clock as several of its answers date it, by a clock that does not step.
//! Usages are dated answers anyway; while none are posted, probes ask for the time. Until enough
//! is known nothing is decided by time: a worker whose clock is a day ahead would post the future.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use sampler_abacus::{ClockEstimate, Dated, Noted, Pace, Reading};
use sampler_domain::Timestamp;
use sampler_service::environment::Clock;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};
use tracing::{error, info, warn};

use crate::{Beat, Worker};

/// Clocks that differ by less agree, ms.
const TOLERATED: i64 = 5_000;

/// After so many answers in a row without a date, Abacus counts as one that does not date them.
const UNDATED_MOST: u32 = 3;

/// How often it is told that Abacus does not answer.
const SILENCE_TOLD_EVERY: Duration = Duration::from_mins(1);

/// How long a wait goes without a sign of life: waiting for an Abacus that is away is no
/// standstill.
const BEAT_INTERVAL: Duration = Duration::from_secs(5);

/// What time it is.
pub struct Time {
    clock: Arc<dyn Clock>,
    began: Instant,
    pace: Pace,
    state: Mutex<State>,
    /// Told when it becomes known what time it is.
    known: Notify,
}

struct State {
    estimate: ClockEstimate,
    /// Answers in a row that had no date.
    undated: u32,
    /// The clocks are more than a year apart, and ours is the later one.
    is_far_ahead: bool,
    probed_at: Option<Duration>,
    /// Whether the last probe had an answer.
    is_answered: bool,
    /// When it was told last that none comes.
    silence_told_at: Option<Duration>,
    told: Told,
}

/// What the log was told of the clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Told {
    #[default]
    Agrees,
    Ahead,
    Behind,
    FarAhead,
    Undated,
}

/// When a request was sent.
#[derive(Clone, Copy)]
pub(crate) struct Asked(Duration);

impl Time {
    /// Nothing is known of Abacus's clock yet; `clock` is the one of this machine.
    pub fn new(clock: Arc<dyn Clock>, pace: Pace) -> Arc<Self> {
        Arc::new(Self {
            clock,
            began: Instant::now(),
            pace,
            state: Mutex::new(State {
                estimate: ClockEstimate::new(pace),
                undated: 0,
                is_far_ahead: false,
                probed_at: None,
                is_answered: false,
                silence_told_at: None,
                told: Told::default(),
            }),
            known: Notify::new(),
        })
    }

    /// How far the clock of this machine is ahead of Abacus's, in ms; negative where it is behind.
    /// None where that is not known.
    pub fn ahead(&self) -> Option<i64> {
        let state = self.state();
        state.estimate.ahead(self.moment(), self.clock.now())
    }

    /// Whether the clocks differ by more than can be left alone.
    pub fn disagrees(&self) -> bool {
        let is_far_ahead = self.state().is_far_ahead;
        let apart = |ahead: i64| ahead.saturating_abs() >= TOLERATED;
        is_far_ahead || self.ahead().is_some_and(apart)
    }

    /// Whether the worker goes by its own clock, because Abacus's answers have no date.
    pub fn is_own(&self) -> bool {
        let state = self.state();
        state.is_undated() && state.estimate.at(self.moment()).is_none()
    }

    /// What time it is. Where that is not known, as far as it was known last: for notes, and for
    /// what is decided already.
    pub(crate) fn now(&self) -> Timestamp {
        let (state, moment) = (self.state(), self.moment());
        let estimate = if state.is_undated() {
            state.estimate.at(moment)
        } else {
            state.estimate.at_by_last(moment)
        };
        estimate.unwrap_or_else(|| self.clock.now())
    }

    /// Whether it is known what time it is.
    pub(crate) fn is_known(&self) -> bool {
        let state = self.state();
        state.is_undated() || state.estimate.at(self.moment()).is_some()
    }

    /// To be called when a request is sent.
    pub(crate) fn asked(&self) -> Asked {
        Asked(self.moment())
    }

    /// Takes note of what an answer says of the time.
    pub(crate) fn heard(&self, asked: Asked, dated: Dated) {
        let (received, ours) = (self.moment(), self.clock.now());
        let mut state = self.state();
        match dated {
            Dated::NoAnswer => return,
            Dated::Undated => state.undated = state.undated.saturating_add(1),
            Dated::At(date) => {
                let reading = Reading {
                    sent: asked.0,
                    received,
                    ours,
                    date,
                };
                let noted = state.estimate.note(&reading);
                state.is_far_ahead = noted == Noted::FarBehind;
                match noted {
                    Noted::Taken | Noted::TooSoon => state.undated = 0,
                    // Whoever is a year behind takes nothing for past that is not.
                    Noted::FarAhead => state.undated = state.undated.saturating_add(1),
                    Noted::FarBehind => {}
                }
            }
        }
        state.tell(received, ours);
        drop(state);
        if self.is_known() {
            self.known.notify_waiters();
        }
    }

    /// How long until Abacus is to be asked for the time, if nothing is heard of it before.
    fn until_probe(&self) -> Duration {
        let (state, moment) = (self.state(), self.moment());
        let Some(probed_at) = state.probed_at else {
            return Duration::ZERO;
        };
        let is_known = state.is_undated() || state.estimate.at(moment).is_some();
        let interval = if is_known && state.estimate.is_in_doubt(moment) {
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
            .map_or(probed_at, |at| at.max(probed_at));
        (last + interval).saturating_sub(moment)
    }

    /// Takes note of what came of a probe.
    fn probed(&self, asked: Asked, answer: Result<Dated, String>) {
        let moment = self.moment();
        let mut state = self.state();
        state.probed_at = Some(moment);
        state.is_answered = answer.is_ok();
        drop(state);
        match answer {
            Ok(dated) => self.heard(asked, dated),
            Err(error) if !self.is_known() => self.tell_silence(&error),
            // Something is posted, and says what is wrong; or it was there a moment ago.
            Err(_) => {}
        }
    }

    /// Says, once in a while, why nothing is sampled.
    fn tell_silence(&self, error: &str) {
        let (moment, mut state) = (self.moment(), self.state());
        let is_recent = |told_at: Duration| moment.saturating_sub(told_at) < SILENCE_TOLD_EVERY;
        if !state.silence_told_at.is_some_and(is_recent) {
            state.silence_told_at = Some(moment);
            warn!(
                error,
                "Abacus does not answer: nothing is sampled before it does"
            );
        }
    }

    fn moment(&self) -> Duration {
        self.began.elapsed()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nobody panics with it")
    }
}

impl State {
    fn is_undated(&self) -> bool {
        self.undated >= UNDATED_MOST
    }

    /// Says so when it begins or ends to matter that the clocks differ.
    fn tell(&mut self, moment: Duration, ours: Timestamp) {
        let ahead_ms = self.estimate.ahead(moment, ours);
        let tell = match ahead_ms {
            Some(ahead) if ahead >= TOLERATED => Told::Ahead,
            Some(ahead) if ahead <= -TOLERATED => Told::Behind,
            Some(_) => Told::Agrees,
            None if self.is_undated() => Told::Undated,
            None if self.is_far_ahead => Told::FarAhead,
            None => return,
        };
        if std::mem::replace(&mut self.told, tell) == tell {
            return;
        }
        let ahead_ms = ahead_ms.unwrap_or_default();
        match tell {
            Told::Ahead => warn!(ahead_ms, "the clock of this machine is ahead of Abacus's"),
            Told::Behind => warn!(ahead_ms, "the clock of this machine is behind Abacus's"),
            Told::FarAhead => error!(
                "nothing is sampled: the clock of this machine is more than a year ahead of Abacus's"
            ),
            Told::Undated => {
                warn!(
                    "Abacus's answers have no date: the worker goes by the clock of this machine"
                );
            }
            Told::Agrees => info!("the clock of this machine agrees with Abacus's again"),
        }
    }
}

impl Worker {
    /// Compares clocks with Abacus whenever nothing was heard of it for a while.
    pub(crate) async fn keep_time(&self) {
        while !self.stop.is_cancelled() {
            let wait = self.time.until_probe();
            if !wait.is_zero() {
                self.pause(wait).await;
                continue;
            }
            let asked = self.time.asked();
            let probe = self.parts.collector.probe();
            if let Some(answer) = self.stop.run_until_cancelled(probe).await {
                self.time.probed(asked, answer);
            }
        }
    }

    /// Waits until it is known what time it is; false where the worker is told to stop before.
    pub(crate) async fn knows_the_time(&self, beat: &dyn Beat) -> bool {
        while !self.stop.is_cancelled() {
            let known = self.time.known.notified();
            if self.time.is_known() {
                return true;
            }
            // A clock that is a year off waits for a person, and health is to say so.
            if !self.time.state().is_far_ahead {
                beat.beat();
            }
            let wait = timeout(BEAT_INTERVAL, known);
            let _ = self.stop.run_until_cancelled(wait).await;
        }
        false
    }
}
