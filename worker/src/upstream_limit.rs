//! The concurrency limit of requests to the upstream. Posts, lookups before posts, and the questions of watches
//! have one each. It grows while it is used and the upstream can take that, shrinks by half with an
//! overload (additive increase, multiplicative decrease), and allows none while the upstream asks to wait or is
//! overloaded again and again.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use sampler_upstream::Load;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::ReportProgress;

/// The limit before anything is known.
const FIRST: usize = 8;

/// After this many overloads in a row all requests pause.
const PAUSE_AFTER: u32 = 8;

/// The first such pause; each further one is twice as long.
const PAUSE_FIRST: Duration = Duration::from_millis(50);

const PAUSE_MAX: Duration = Duration::from_secs(2);

/// Grants the permits to ask the upstream.
#[derive(Clone)]
pub(crate) struct UpstreamLimit {
    permits: Arc<Semaphore>,
    state: Arc<Mutex<LimitState>>,
    max: usize,
}

struct LimitState {
    paused_until: Option<Instant>,
    limit: f64,
    /// Permits that are in use or free; follows the limit.
    permits: usize,
    in_flight: usize,
    /// When the limit was last halved; none while it still doubles, because there was no overload.
    halved_at: Option<Instant>,
    overloads_in_a_row: u32,
}

/// The permit of one request. Unless it is released with what its answer showed, nothing was sent.
pub(crate) struct UpstreamPermit {
    limit: UpstreamLimit,
    permit: Option<OwnedSemaphorePermit>,
    began: Instant,
}

impl UpstreamLimit {
    pub(crate) fn new(max: usize) -> Self {
        let max = max.max(1);
        let first = FIRST.min(max);
        let state = LimitState {
            paused_until: None,
            limit: first as f64,
            permits: first,
            in_flight: 0,
            halved_at: None,
            overloads_in_a_row: 0,
        };
        Self {
            permits: Arc::new(Semaphore::new(first)),
            state: Arc::new(Mutex::new(state)),
            max,
        }
    }

    fn state(&self) -> MutexGuard<'_, LimitState> {
        self.state.lock().expect("nobody panics with it")
    }

    pub(crate) fn current(&self) -> usize {
        self.state().whole()
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
        Some(self.begin(permit))
    }

    pub(crate) fn try_acquire(&self) -> Option<UpstreamPermit> {
        if self.remaining_pause().is_some() {
            return None;
        }
        let permit = Arc::clone(&self.permits).try_acquire_owned().ok()?;
        Some(self.begin(permit))
    }

    fn begin(&self, permit: OwnedSemaphorePermit) -> UpstreamPermit {
        self.state().in_flight += 1;
        UpstreamPermit {
            limit: self.clone(),
            permit: Some(permit),
            began: Instant::now(),
        }
    }

    /// How much of the pause is left.
    pub(crate) fn remaining_pause(&self) -> Option<Duration> {
        let paused_until = self.state().paused_until;
        paused_until?
            .checked_duration_since(Instant::now())
            .filter(|remaining| !remaining.is_zero())
    }

    /// Takes a permit back, so that as many are there as the limit says.
    fn take_back(&self, permit: OwnedSemaphorePermit, state: &mut LimitState) {
        let limit = state.whole();
        if state.permits > limit {
            state.permits -= 1;
            permit.forget();
        } else {
            self.permits.add_permits(limit - state.permits);
            state.permits = limit;
        }
    }
}

impl UpstreamPermit {
    /// Gives the permit back, with what its answer showed about the load.
    pub(crate) fn release(mut self, load: Load) {
        let limit = self.limit.clone();
        let mut state = limit.state();
        state.note(load, self.began, limit.max);
        if let Some(permit) = self.permit.take() {
            limit.take_back(permit, &mut state);
        }
        let pause = state.pause_after(load);
        drop(state);
        if let Some(length) = pause {
            limit.pause_for(length);
        }
    }
}

impl Drop for UpstreamPermit {
    fn drop(&mut self) {
        self.limit.state().in_flight -= 1;
    }
}

impl LimitState {
    fn whole(&self) -> usize {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "the limit is between 1 and the maximum"
        )]
        let limit = self.limit as usize;
        limit
    }

    /// Adapts the limit to the answer to a request that began then. Requests that were in flight together
    /// halve the limit once. Only a limit that is used has shown that the upstream can take it.
    fn note(&mut self, load: Load, began: Instant, max: usize) {
        match load {
            Load::Overload if self.halved_at.is_none_or(|halved_at| halved_at <= began) => {
                self.halved_at = Some(Instant::now());
                self.limit = (self.limit / 2.0).max(1.0);
            }
            Load::Sustained if 2 * self.in_flight > self.whole() => {
                // One for each request doubles the limit in the time that they take together.
                let more = self.halved_at.map_or(1.0, |_| 1.0 / self.limit);
                self.limit = (self.limit + more).min(max as f64);
            }
            Load::Overload | Load::Sustained => {}
        }
    }

    /// Counts overloads in a row, and returns the pause that they lead to. Most cost a write to their
    /// span, so posting all due spans to an unreachable upstream would overload the store.
    fn pause_after(&mut self, load: Load) -> Option<Duration> {
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
        permit.release(load);
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
        permits.pop().unwrap().release(Load::Overload);
        permits.pop().unwrap().release(Load::Sustained);
        // Two posts are in flight, and the limit is two by now.
        let third = post_limit.acquire(&IgnoreProgress, &stop);
        assert!(
            tokio::time::timeout(Duration::from_secs(1), third)
                .await
                .is_err()
        );
        permits.pop().unwrap().release(Load::Sustained);
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

    /// Requests of an upstream that can take so many, a second each, for so many seconds.
    async fn settle(limit: &UpstreamLimit, capacity: usize, seconds: usize) -> Vec<usize> {
        let stop = CancellationToken::new();
        let mut limits = Vec::new();
        for _ in 0..seconds {
            let mut permits = Vec::new();
            for _ in 0..limit.current() {
                permits.push(limit.acquire(&IgnoreProgress, &stop).await.unwrap());
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
            let is_too_much = permits.len() > capacity;
            for (number, permit) in permits.into_iter().enumerate() {
                permit.release(if is_too_much && number == 0 {
                    Load::Overload
                } else {
                    Load::Sustained
                });
            }
            limits.push(limit.current());
        }
        limits
    }

    #[tokio::test(start_paused = true)]
    async fn it_doubles_up_to_the_maximum_if_the_upstream_can_take_it() {
        let limits = settle(&UpstreamLimit::new(128), 1_000, 12).await;
        assert!(limits[1] > 13 && limits[11] == 128, "{limits:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn it_stays_near_what_the_upstream_can_take() {
        let limits = settle(&UpstreamLimit::new(10_000), 50, 200).await;
        let late = &limits[50..];
        assert!(late.iter().all(|it| (20..=52).contains(it)), "{late:?}");
        assert!(late.iter().any(|it| *it > 45), "{late:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_limit_that_is_not_reached_does_not_grow_and_it_is_never_below_one() {
        let (limit, stop) = (UpstreamLimit::new(64), CancellationToken::new());
        for _ in 0..100 {
            post(&limit, &stop, Load::Sustained).await;
        }
        assert_eq!(limit.current(), FIRST);
        for _ in 0..100 {
            post(&limit, &stop, Load::Overload).await;
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        assert_eq!(limit.current(), 1);
        assert_eq!(UpstreamLimit::new(0).current(), 1);
    }
}
