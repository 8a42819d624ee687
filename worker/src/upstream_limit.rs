//! The concurrency limit of requests to the upstream. Posts, lookups before posts, and the lookups of the
//! confirmation have one each. It adapts to the load that the upstream can take, and allows none while that asks to wait or
//! is overloaded.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use sampler_upstream::{ConcurrencyLimit, Load};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::ReportProgress;

/// After this many overloads in a row all requests pause.
const PAUSE_AFTER: u32 = 8;

/// The first such pause; each further one is twice as long.
const PAUSE_FIRST: Duration = Duration::from_millis(50);

const PAUSE_MAX: Duration = Duration::from_secs(2);

/// Grants the permits to ask the upstream.
pub(crate) struct UpstreamLimit {
    permits: Arc<Semaphore>,
    state: Mutex<LimitState>,
    began: Instant,
}

struct LimitState {
    paused_until: Option<Instant>,
    limiter: ConcurrencyLimit,
    /// Permits that are in use or free; follows the limiter.
    permits: usize,
    in_flight: usize,
    /// Answers in a row that were [`Load::Overload`].
    overloads_in_a_row: u32,
}

/// The permit of one request. Give it back with [`UpstreamLimit::release`].
pub(crate) struct UpstreamPermit {
    permit: OwnedSemaphorePermit,
    began: Instant,
}

impl UpstreamLimit {
    pub(crate) fn new(max: usize) -> Self {
        let limiter = ConcurrencyLimit::new(max);
        let permits = limiter.limit();
        let state = LimitState {
            paused_until: None,
            limiter,
            permits,
            in_flight: 0,
            overloads_in_a_row: 0,
        };
        Self {
            permits: Arc::new(Semaphore::new(permits)),
            state: Mutex::new(state),
            began: Instant::now(),
        }
    }

    fn state(&self) -> MutexGuard<'_, LimitState> {
        self.state.lock().expect("nobody panics with it")
    }

    pub(crate) fn current(&self) -> usize {
        self.state().limiter.limit()
    }

    /// Grants no permit for this long, unless a longer pause is running already.
    pub(crate) fn pause_for(&self, length: Duration) {
        let until = Instant::now() + length;
        let mut state = self.state();
        if state.paused_until.is_none_or(|earlier| earlier < until) {
            state.paused_until = Some(until);
        }
    }

    /// Waits for a permit; `None` once `stop` is cancelled.
    pub(crate) async fn acquire(
        &self,
        progress: &dyn ReportProgress,
        stop: &CancellationToken,
    ) -> Option<UpstreamPermit> {
        let permit = stop
            .run_until_cancelled(Arc::clone(&self.permits).acquire_owned())
            .await?
            .expect("the semaphore is never closed");
        while let Some(remaining) = self.remaining_pause() {
            let wait = tokio::time::sleep(remaining.min(progress.interval()));
            stop.run_until_cancelled(wait).await?;
            progress.report();
        }
        self.state().in_flight += 1;
        Some(UpstreamPermit {
            permit,
            began: Instant::now(),
        })
    }

    pub(crate) fn try_acquire(&self) -> Option<UpstreamPermit> {
        if self.remaining_pause().is_some() {
            return None;
        }
        let permit = Arc::clone(&self.permits).try_acquire_owned().ok()?;
        self.state().in_flight += 1;
        Some(UpstreamPermit {
            permit,
            began: Instant::now(),
        })
    }

    /// Takes a permit back with which nothing was sent.
    pub(crate) fn give_back(&self, permit: UpstreamPermit) {
        self.state().in_flight -= 1;
        drop(permit);
    }

    /// Takes a permit back, with what its answer showed about the load.
    pub(crate) fn release(&self, permit: UpstreamPermit, load: Load) {
        let UpstreamPermit { permit, began } = permit;
        let (now, latency) = (self.began.elapsed(), began.elapsed());
        let mut state = self.state();
        let in_flight = state.in_flight;
        state.in_flight -= 1;
        state.limiter.answered(now, latency, load, in_flight);
        let limit = state.limiter.limit();
        if state.permits > limit {
            // The limit has shrunk: this permit is dropped.
            state.permits -= 1;
            permit.forget();
        } else {
            self.permits.add_permits(limit - state.permits);
            state.permits = limit;
        }
        let pause = state.note_load(load);
        drop(state);
        if let Some(length) = pause {
            self.pause_for(length);
        }
    }

    /// How much of the pause is left.
    pub(crate) fn remaining_pause(&self) -> Option<Duration> {
        let paused_until = self.state().paused_until;
        paused_until?
            .checked_duration_since(Instant::now())
            .filter(|remaining| !remaining.is_zero())
    }
}

impl LimitState {
    /// Counts overloads in a row, and returns the pause that they lead to. Most cost a write to their
    /// span, so posting all due spans to an unreachable upstream would overload the store.
    fn note_load(&mut self, load: Load) -> Option<Duration> {
        if load == Load::Sustained {
            self.overloads_in_a_row = 0;
            return None;
        }
        self.overloads_in_a_row = self.overloads_in_a_row.saturating_add(1);
        let doublings = self.overloads_in_a_row.checked_sub(PAUSE_AFTER)?.min(16);
        Some((PAUSE_FIRST * 2_u32.pow(doublings)).min(PAUSE_MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::IgnoreProgress;

    async fn post(post_limit: &UpstreamLimit, stop: &CancellationToken, load: Load) {
        let permit = post_limit.acquire(&IgnoreProgress, stop).await.unwrap();
        post_limit.release(permit, load);
    }

    #[tokio::test(start_paused = true)]
    async fn the_longest_pause_counts() {
        let (post_limit, stop, began) = (
            UpstreamLimit::new(4),
            CancellationToken::new(),
            Instant::now(),
        );
        post(&post_limit, &stop, Load::Sustained).await;
        assert_eq!(began.elapsed(), Duration::ZERO);
        post_limit.pause_for(Duration::from_secs(30));
        post_limit.pause_for(Duration::from_secs(12));
        post(&post_limit, &stop, Load::Sustained).await;
        assert_eq!(began.elapsed().as_secs(), 30);
    }

    #[tokio::test(start_paused = true)]
    async fn a_shutdown_ends_the_wait() {
        let (post_limit, stop) = (UpstreamLimit::new(1), CancellationToken::new());
        post_limit.pause_for(Duration::from_hours(1));
        stop.cancel();
        assert!(post_limit.acquire(&IgnoreProgress, &stop).await.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn the_limit_holds_and_shrinks_after_an_overload() {
        let (post_limit, stop) = (UpstreamLimit::new(4), CancellationToken::new());
        let mut permits = Vec::new();
        for _ in 0..4 {
            permits.push(post_limit.acquire(&IgnoreProgress, &stop).await.unwrap());
        }
        let fifth = post_limit.acquire(&IgnoreProgress, &stop);
        assert!(
            tokio::time::timeout(Duration::from_secs(1), fifth)
                .await
                .is_err()
        );
        post_limit.release(permits.pop().unwrap(), Load::Overload);
        post_limit.release(permits.pop().unwrap(), Load::Sustained);
        // Two posts are in flight, and the limit is two by now.
        let third = post_limit.acquire(&IgnoreProgress, &stop);
        assert!(
            tokio::time::timeout(Duration::from_secs(1), third)
                .await
                .is_err()
        );
        post_limit.release(permits.pop().unwrap(), Load::Sustained);
        permits.push(post_limit.acquire(&IgnoreProgress, &stop).await.unwrap());
        assert_eq!(permits.len(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn an_unreachable_abacus_gets_fewer_and_fewer_posts() {
        let (post_limit, stop, began) = (
            UpstreamLimit::new(4),
            CancellationToken::new(),
            Instant::now(),
        );
        for _ in 0..PAUSE_AFTER {
            post(&post_limit, &stop, Load::Overload).await;
        }
        assert_eq!(began.elapsed(), Duration::ZERO);
        for _ in 0..20 {
            post(&post_limit, &stop, Load::Overload).await;
        }
        assert!(
            began.elapsed() > Duration::from_secs(28),
            "{:?}",
            began.elapsed()
        );
        let began = Instant::now();
        post(&post_limit, &stop, Load::Sustained).await;
        post(&post_limit, &stop, Load::Sustained).await;
        assert!(began.elapsed() <= PAUSE_MAX);
    }
}
