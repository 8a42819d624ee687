//! A fair queue in front of a number of permits.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

use super::TurnedAway;
use super::fair_queue::{Client, FairQueue, QueueLimits, Ticket};
use super::spent::Spent;

/// How many permits there are, and the limits of the queue for them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PermitLimits {
    pub(crate) permits: usize,
    /// The weight of all that hold a permit, at the most. One alone may weigh more.
    pub(crate) weight: usize,
    pub(crate) wait: Duration,
    /// Whether clients are charged for the time for which they hold a permit: then the next permit
    /// goes to the client that has recently held them for the least time.
    pub(crate) charges_time: bool,
    pub(crate) queue: QueueLimits,
}

/// Permits, and the requests that wait for one.
#[derive(Debug)]
pub(crate) struct FairPermits {
    limits: PermitLimits,
    state: Mutex<PermitsState>,
}

#[derive(Debug)]
struct PermitsState {
    queue: FairQueue<Waiting>,
    spent: Spent,
    held: usize,
    held_weight: usize,
}

/// A request that waits. It gets a permit, or nothing where it was given up.
#[derive(Debug)]
struct Waiting {
    client: Client,
    weight: usize,
    answer: oneshot::Sender<Option<ServingPermit>>,
}

/// Permission to be served. It goes to the next request when this is dropped.
#[derive(Debug)]
pub struct ServingPermit {
    permits: Arc<FairPermits>,
    client: Client,
    weight: usize,
    since: Instant,
    is_held: bool,
}

impl FairPermits {
    pub(crate) fn new(limits: PermitLimits) -> Arc<Self> {
        let state = PermitsState {
            queue: FairQueue::new(limits.queue),
            spent: Spent::default(),
            held: 0,
            held_weight: 0,
        };
        Arc::new(Self {
            limits,
            state: Mutex::new(state),
        })
    }

    pub(crate) fn waiting(&self) -> usize {
        self.lock().queue.len()
    }

    /// Waits for the client's turn. A caller that goes away gives up its place in the queue.
    pub(crate) async fn acquire(
        self: &Arc<Self>,
        client: Client,
        weight: usize,
    ) -> Result<ServingPermit, TurnedAway> {
        if self.lock().take_at_once(&self.limits, weight) {
            return Ok(self.permit(client, weight));
        }
        let (answer, answered) = oneshot::channel();
        let waiting = Waiting {
            client,
            weight,
            answer,
        };
        let (ticket, shed) = self
            .lock()
            .queue
            .push(client, weight, Instant::now(), waiting);
        turn_away(shed);
        let _leaving = Leaving {
            permits: self,
            ticket,
        };
        self.hand_out();
        match timeout(self.limits.wait, answered).await {
            Ok(Ok(Some(permit))) => Ok(permit),
            Ok(Ok(None) | Err(_)) | Err(_) => Err(TurnedAway::Queue),
        }
    }

    /// Hands out what is free.
    fn hand_out(self: &Arc<Self>) {
        loop {
            let (next, shed) = self.lock().next(&self.limits);
            turn_away(shed);
            let Some(next) = next else {
                return;
            };
            let permit = self.permit(next.client, next.weight);
            if let Err(Some(permit)) = next.answer.send(Some(permit)) {
                // Given back here: a permit that is dropped would call this function again.
                permit.give_back();
            }
        }
    }

    /// A permit that the state counts.
    fn permit(self: &Arc<Self>, client: Client, weight: usize) -> ServingPermit {
        ServingPermit {
            permits: Arc::clone(self),
            client,
            weight,
            since: Instant::now(),
            is_held: true,
        }
    }

    fn lock(&self) -> MutexGuard<'_, PermitsState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PermitsState {
    /// Counts a permit for a request of this weight, if one is free and nobody waits. Says whether it did.
    fn take_at_once(&mut self, limits: &PermitLimits, weight: usize) -> bool {
        let is_taken =
            self.queue.is_empty() && self.room(limits).is_some_and(|room| weight <= room);
        if is_taken {
            self.count(weight);
        }
        is_taken
    }

    /// What a request may weigh that gets a permit now; none if no permit is free.
    fn room(&self, limits: &PermitLimits) -> Option<usize> {
        match self.held {
            held if held >= limits.permits => None,
            0 => Some(usize::MAX),
            _ => Some(limits.weight.saturating_sub(self.held_weight)),
        }
    }

    fn count(&mut self, weight: usize) {
        self.held += 1;
        self.held_weight += weight;
    }

    /// The request that is next, if a permit is free; and one that is given up.
    fn next(&mut self, limits: &PermitLimits) -> (Option<Waiting>, Option<Waiting>) {
        let Some(room) = self.room(limits).filter(|_| !self.queue.is_empty()) else {
            return (None, None);
        };
        let now = Instant::now();
        if limits.charges_time {
            self.queue.prefer_least(|client| {
                let spent = self.spent.of(client, now).as_millis();
                u64::try_from(spent).unwrap_or(u64::MAX)
            });
        }
        let (next, shed) = self.queue.pop(now, |weight| weight <= room);
        if let Some(next) = &next {
            self.count(next.weight);
        }
        (next, shed)
    }
}

impl ServingPermit {
    fn give_back(mut self) {
        self.release();
    }

    fn release(&mut self) {
        if std::mem::take(&mut self.is_held) {
            let mut state = self.permits.lock();
            state.held -= 1;
            state.held_weight -= self.weight;
            if self.permits.limits.charges_time {
                let now = Instant::now();
                state.spent.add(self.client, now - self.since, now);
            }
        }
    }
}

impl Drop for ServingPermit {
    fn drop(&mut self) {
        if self.is_held {
            self.release();
            self.permits.hand_out();
        }
    }
}

/// Takes a request out of the queue when it is no longer waited for.
struct Leaving<'a> {
    permits: &'a FairPermits,
    ticket: Ticket,
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        self.permits.lock().queue.remove(self.ticket);
    }
}

fn turn_away(shed: impl IntoIterator<Item = Waiting>) {
    for waiting in shed {
        // A request that has gone away needs no answer.
        drop(waiting.answer.send(None));
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    const LIMITS: PermitLimits = PermitLimits {
        permits: 2,
        weight: 100,
        wait: Duration::from_secs(5),
        charges_time: false,
        queue: QueueLimits {
            weight: 1_000,
            quantum: 10,
            target: Duration::from_millis(500),
            interval: Duration::from_secs(1),
        },
    };

    async fn acquire(permits: &Arc<FairPermits>, client: u64) -> ServingPermit {
        permits.acquire(Client(client), 10).await.unwrap()
    }

    fn begin(
        permits: &Arc<FairPermits>,
        client: u64,
        weight: usize,
    ) -> tokio::task::JoinHandle<Result<ServingPermit, TurnedAway>> {
        let permits = Arc::clone(permits);
        tokio::spawn(async move { permits.acquire(Client(client), weight).await })
    }

    async fn until_waiting(permits: &FairPermits, count: usize) {
        while permits.waiting() != count {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_permit_that_is_dropped_goes_to_the_client_whose_turn_it_is() {
        let permits = FairPermits::new(LIMITS);
        let (first, second) = (acquire(&permits, 1).await, acquire(&permits, 1).await);
        let flood: Vec<_> = (0..10).map(|_| begin(&permits, 1, 10)).collect();
        until_waiting(&permits, 10).await;
        let quiet = begin(&permits, 2, 10);
        until_waiting(&permits, 11).await;
        drop(first);
        until_waiting(&permits, 10).await;
        drop(second);
        let quiet = quiet.await.unwrap().unwrap();
        assert_eq!(permits.waiting(), 9);
        drop(quiet);
        for waiting in flood {
            waiting.await.unwrap().unwrap();
        }
        assert_eq!(permits.lock().held, 0);
    }

    /// Many clients whose requests take long, beside one whose requests do not.
    #[tokio::test(start_paused = true)]
    async fn who_has_held_permits_for_long_comes_after_who_has_not() {
        let permits = FairPermits::new(PermitLimits {
            permits: 1,
            wait: Duration::from_secs(100),
            charges_time: true,
            ..LIMITS
        });
        let quiet = acquire(&permits, 99).await;
        tokio::time::advance(Duration::from_millis(20)).await;
        drop(quiet);
        for client in 0..16 {
            let slow = acquire(&permits, client).await;
            tokio::time::advance(Duration::from_secs(5)).await;
            drop(slow);
        }
        let held = acquire(&permits, 0).await;
        let slow: Vec<_> = (0..16).map(|client| begin(&permits, client, 10)).collect();
        until_waiting(&permits, 16).await;
        let quiet = begin(&permits, 99, 10);
        until_waiting(&permits, 17).await;
        drop(held);
        drop(quiet.await.unwrap().unwrap());
        for waiting in slow {
            drop(waiting.await.unwrap().unwrap());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn those_who_hold_one_weigh_no_more_than_the_limit_but_for_one_alone() {
        let permits = FairPermits::new(LIMITS);
        let heavy = permits.acquire(Client(1), 500).await.unwrap();
        let light = begin(&permits, 2, 1);
        until_waiting(&permits, 1).await;
        drop(heavy);
        light.await.unwrap().unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_overtakes_a_heavy_request_that_waits() {
        let permits = FairPermits::new(LIMITS);
        let held = acquire(&permits, 1).await;
        let heavy = begin(&permits, 2, 95);
        until_waiting(&permits, 1).await;
        let mut light = Box::pin(permits.acquire(Client(3), 10));
        assert!((&mut light).now_or_never().is_none());
        drop(held);
        drop(heavy.await.unwrap().unwrap());
        light.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_for_ever_and_who_goes_away_leaves_nothing_behind() {
        let permits = FairPermits::new(LIMITS);
        let held = (acquire(&permits, 1).await, acquire(&permits, 1).await);
        let began = Instant::now();
        assert_eq!(
            permits.acquire(Client(2), 10).await.unwrap_err(),
            TurnedAway::Queue
        );
        assert_eq!(began.elapsed(), LIMITS.wait);
        let waiting = begin(&permits, 2, 10);
        until_waiting(&permits, 1).await;
        waiting.abort();
        assert!(waiting.await.unwrap_err().is_cancelled());
        assert_eq!(permits.waiting(), 0);
        drop(held);
        let state = permits.lock();
        assert_eq!((state.held, state.held_weight), (0, 0));
    }

    /// The permit is on its way to a caller that goes away at the same time.
    #[tokio::test(start_paused = true)]
    async fn a_permit_that_nobody_takes_is_not_lost() {
        let permits = FairPermits::new(LIMITS);
        let (first, second) = (acquire(&permits, 1).await, acquire(&permits, 1).await);
        let waiting = begin(&permits, 2, 10);
        until_waiting(&permits, 1).await;
        drop(first);
        waiting.abort();
        let _ = waiting.await;
        drop(second);
        assert_eq!(permits.lock().held, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn the_heaviest_client_is_turned_away_where_too_much_waits() {
        let permits = FairPermits::new(LIMITS);
        let held = (acquire(&permits, 1).await, acquire(&permits, 1).await);
        let mut flood = Vec::new();
        for count in 1..=10 {
            flood.push(begin(&permits, 1, 100));
            until_waiting(&permits, count).await;
        }
        let quiet = begin(&permits, 2, 10);
        assert_eq!(
            flood.remove(0).await.unwrap().unwrap_err(),
            TurnedAway::Queue
        );
        drop(held);
        quiet.await.unwrap().unwrap();
        for waiting in flood {
            waiting.await.unwrap().unwrap();
        }
    }
}
