//! The gate in front of Abacus: it lets as many usages through at once as Abacus bears, and none
//! while Abacus says that it takes nothing, or is away.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use sampler_abacus::{Limiter, Load};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::Beat;

/// How long a wait at the gate goes without a sign of life: waiting as told is no standstill.
const BEAT_INTERVAL: Duration = Duration::from_secs(5);

/// So many failures in a row, and Abacus counts as away.
const AWAY_AFTER: u32 = 8;

/// How long the gate closes when Abacus is away, at first; twice as long each time.
const AWAY_FIRST: Duration = Duration::from_millis(50);

/// How long it closes at the most.
const AWAY_MOST: Duration = Duration::from_secs(2);

/// Decides who may post when.
pub(crate) struct Gate {
    permits: Arc<Semaphore>,
    state: Mutex<State>,
    began: Instant,
}

struct State {
    closed_until: Option<Instant>,
    limiter: Limiter,
    /// Permits that were given out or are free; follows the limiter.
    permits: usize,
    in_flight: usize,
    failures_in_a_row: u32,
}

/// Leave to post one usage. Say what came of it with [`Gate::answered`].
pub(crate) struct Pass {
    permit: OwnedSemaphorePermit,
    began: Instant,
}

impl Gate {
    /// A gate that never lets more than `max` through at once.
    pub(crate) fn new(max: usize) -> Self {
        let limiter = Limiter::new(max);
        let permits = limiter.limit();
        let state = State {
            closed_until: None,
            limiter,
            permits,
            in_flight: 0,
            failures_in_a_row: 0,
        };
        Self {
            permits: Arc::new(Semaphore::new(permits)),
            state: Mutex::new(state),
            began: Instant::now(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nobody panics with it")
    }

    /// Closes the gate for so long from now, unless it is closed for longer already.
    pub(crate) fn close_for(&self, length: Duration) {
        let until = Instant::now() + length;
        let mut state = self.state();
        if state.closed_until.is_none_or(|earlier| earlier < until) {
            state.closed_until = Some(until);
        }
    }

    /// Waits for leave to post; none when the wait is ended by `stop`.
    pub(crate) async fn pass(&self, beat: &dyn Beat, stop: &CancellationToken) -> Option<Pass> {
        let permit = stop
            .run_until_cancelled(Arc::clone(&self.permits).acquire_owned())
            .await?;
        let permit = permit.expect("the semaphore is never closed");
        while let Some(rest) = self.rest() {
            let wait = tokio::time::sleep(rest.min(BEAT_INTERVAL));
            stop.run_until_cancelled(wait).await?;
            beat.beat();
        }
        self.state().in_flight += 1;
        Some(Pass {
            permit,
            began: Instant::now(),
        })
    }

    /// Takes note of what came of a post.
    pub(crate) fn answered(&self, pass: Pass, load: Load) {
        let Pass { permit, began } = pass;
        let (now, latency) = (self.began.elapsed(), began.elapsed());
        let mut state = self.state();
        let in_flight = state.in_flight;
        state.in_flight -= 1;
        state.limiter.answered(now, latency, load, in_flight);
        let limit = state.limiter.limit();
        if state.permits > limit {
            // One less from now on: this permit is not given back.
            state.permits -= 1;
            permit.forget();
        } else {
            self.permits.add_permits(limit - state.permits);
            state.permits = limit;
        }
        let away = state.note_failure(load);
        drop(state);
        if let Some(length) = away {
            self.close_for(length);
        }
    }

    /// How long the gate stays closed.
    fn rest(&self) -> Option<Duration> {
        let closed_until = self.state().closed_until;
        closed_until?
            .checked_duration_since(Instant::now())
            .filter(|rest| !rest.is_zero())
    }
}

impl State {
    /// Counts failures in a row; says how long to leave an Abacus that is away alone. Each usage
    /// that fails is noted on its span, and all spans at once would be a storm in the store.
    fn note_failure(&mut self, load: Load) -> Option<Duration> {
        if load == Load::Borne {
            self.failures_in_a_row = 0;
            return None;
        }
        self.failures_in_a_row = self.failures_in_a_row.saturating_add(1);
        let doublings = self.failures_in_a_row.checked_sub(AWAY_AFTER)?.min(16);
        Some((AWAY_FIRST * 2_u32.pow(doublings)).min(AWAY_MOST))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NoBeat;

    async fn post(gate: &Gate, stop: &CancellationToken, load: Load) {
        let pass = gate.pass(&NoBeat, stop).await.unwrap();
        gate.answered(pass, load);
    }

    #[tokio::test(start_paused = true)]
    async fn everybody_waits_for_the_longest_time_told() {
        let (gate, stop, began) = (Gate::new(4), CancellationToken::new(), Instant::now());
        post(&gate, &stop, Load::Borne).await;
        assert_eq!(began.elapsed(), Duration::ZERO);
        gate.close_for(Duration::from_secs(30));
        gate.close_for(Duration::from_secs(12));
        post(&gate, &stop, Load::Borne).await;
        assert_eq!(began.elapsed().as_secs(), 30);
    }

    #[tokio::test(start_paused = true)]
    async fn a_stop_ends_the_wait() {
        let (gate, stop) = (Gate::new(1), CancellationToken::new());
        gate.close_for(Duration::from_hours(1));
        stop.cancel();
        assert!(gate.pass(&NoBeat, &stop).await.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn only_so_many_are_let_through_and_fewer_after_it_was_too_much() {
        let (gate, stop) = (Gate::new(4), CancellationToken::new());
        let mut passes = Vec::new();
        for _ in 0..4 {
            passes.push(gate.pass(&NoBeat, &stop).await.unwrap());
        }
        let fifth = gate.pass(&NoBeat, &stop);
        assert!(
            tokio::time::timeout(Duration::from_secs(1), fifth)
                .await
                .is_err()
        );
        gate.answered(passes.pop().unwrap(), Load::TooMuch);
        gate.answered(passes.pop().unwrap(), Load::Borne);
        // Two are on their way and two are the limit by now.
        let third = gate.pass(&NoBeat, &stop);
        assert!(
            tokio::time::timeout(Duration::from_secs(1), third)
                .await
                .is_err()
        );
        gate.answered(passes.pop().unwrap(), Load::Borne);
        passes.push(gate.pass(&NoBeat, &stop).await.unwrap());
        assert_eq!(passes.len(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn an_abacus_that_is_away_is_asked_less_and_less_often() {
        let (gate, stop, began) = (Gate::new(4), CancellationToken::new(), Instant::now());
        for _ in 0..AWAY_AFTER {
            post(&gate, &stop, Load::TooMuch).await;
        }
        assert_eq!(began.elapsed(), Duration::ZERO);
        for _ in 0..20 {
            post(&gate, &stop, Load::TooMuch).await;
        }
        assert!(
            began.elapsed() > Duration::from_secs(28),
            "{:?}",
            began.elapsed()
        );
        let began = Instant::now();
        post(&gate, &stop, Load::Borne).await;
        post(&gate, &stop, Load::Borne).await;
        assert!(began.elapsed() <= AWAY_MOST);
    }
}
