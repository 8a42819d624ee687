//! Permits that clients share: one client holds at most a third of them.
//!
//! A request waits for a permit of its client first, and then for one of all. So of each client only as many
//! requests as it may have served at a time stand in the queue of all, however many it sends.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::{Client, TurnedAway};

/// How many permits there are of a kind, and how long a request waits for them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PermitLimits {
    pub(crate) permits: usize,
    /// The weight for which a request needs one permit; a heavier one needs more of them.
    pub(crate) unit: usize,
    pub(crate) wait: Duration,
}

/// The permits of a kind.
#[derive(Debug)]
pub(crate) struct Permits {
    limits: PermitLimits,
    all: Arc<Semaphore>,
    /// The permits of the clients that hold some, or wait for some.
    clients: Mutex<HashMap<Client, Arc<Semaphore>>>,
    waiting: AtomicUsize,
}

/// Permission to be served, until this is dropped.
#[derive(Debug)]
pub struct ServingPermit {
    _of_all: OwnedSemaphorePermit,
    _of_client: OfClient,
}

/// What a request holds, or waits for, of its client's permits.
#[derive(Debug)]
struct OfClient {
    permits: Arc<Permits>,
    client: Client,
    semaphore: Option<Arc<Semaphore>>,
    held: Option<OwnedSemaphorePermit>,
}

impl PermitLimits {
    /// The permits that one client may hold: a third, but two where there are two.
    fn of_client(&self) -> usize {
        (self.permits / 3).max(self.permits.min(2))
    }
}

impl Permits {
    pub(crate) fn new(limits: PermitLimits) -> Arc<Self> {
        Arc::new(Self {
            limits,
            all: Arc::new(Semaphore::new(limits.permits)),
            clients: Mutex::default(),
            waiting: AtomicUsize::new(0),
        })
    }

    /// How many requests wait.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Waits for the permits of a request. One that weighs more than all permits together is served alone.
    pub(crate) async fn acquire(
        self: &Arc<Self>,
        client: Client,
        weight: usize,
    ) -> Result<ServingPermit, TurnedAway> {
        let needed = weight.div_ceil(self.limits.unit).max(1);
        let _waiting = Waiting::new(self);
        let turn = timeout(self.limits.wait, self.turn(client, needed));
        turn.await.map_err(|_| TurnedAway::Queue)
    }

    async fn turn(self: &Arc<Self>, client: Client, needed: usize) -> ServingPermit {
        let mut of_client = OfClient::new(self, client);
        of_client.wait(needed.min(self.limits.of_client())).await;
        ServingPermit {
            _of_all: acquire(&self.all, needed.min(self.limits.permits)).await,
            _of_client: of_client,
        }
    }
}

impl OfClient {
    fn new(permits: &Arc<Permits>, client: Client) -> Self {
        let mut clients = lock(&permits.clients);
        let fresh = || Arc::new(Semaphore::new(permits.limits.of_client()));
        let semaphore = Arc::clone(clients.entry(client).or_insert_with(fresh));
        Self {
            permits: Arc::clone(permits),
            client,
            semaphore: Some(semaphore),
            held: None,
        }
    }

    async fn wait(&mut self, needed: usize) {
        if let Some(semaphore) = &self.semaphore {
            self.held = Some(acquire(semaphore, needed).await);
        }
    }
}

impl Drop for OfClient {
    fn drop(&mut self) {
        self.held = None;
        self.semaphore = None;
        let mut clients = lock(&self.permits.clients);
        // Whoever holds permits of the client, or waits for them, has the semaphore, too.
        let is_last = |semaphore: &Arc<Semaphore>| Arc::strong_count(semaphore) == 1;
        if clients.get(&self.client).is_some_and(is_last) {
            clients.remove(&self.client);
        }
    }
}

/// Counts a request while it waits.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn new(permits: &'a Permits) -> Self {
        permits.waiting.fetch_add(1, Ordering::Relaxed);
        Self(&permits.waiting)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

async fn acquire(semaphore: &Arc<Semaphore>, permits: usize) -> OwnedSemaphorePermit {
    let permits = u32::try_from(permits).unwrap_or(u32::MAX);
    let acquired = Arc::clone(semaphore).acquire_many_owned(permits).await;
    acquired.expect("the semaphore is never closed")
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use tokio::time::Instant;

    use super::*;

    const LIMITS: PermitLimits = PermitLimits {
        permits: 6,
        unit: 100,
        wait: Duration::from_secs(5),
    };

    fn try_acquire(permits: &Arc<Permits>, client: u64, weight: usize) -> Option<ServingPermit> {
        permits.acquire(Client(client), weight).now_or_never()?.ok()
    }

    #[tokio::test]
    async fn a_client_holds_a_third_and_what_it_gives_back_is_free_again() {
        let permits = Permits::new(LIMITS);
        for _ in 0..3 {
            let of_first: Vec<_> = (0..3).map(|_| try_acquire(&permits, 1, 10)).collect();
            assert_eq!(of_first.iter().flatten().count(), 2);
            let of_second = [try_acquire(&permits, 2, 200), try_acquire(&permits, 2, 1)];
            assert_eq!(
                of_second.iter().flatten().count(),
                1,
                "a heavy one counts for two"
            );
            let of_third = try_acquire(&permits, 3, 10);
            assert!(of_third.is_some());
        }
        assert!(lock(&permits.clients).is_empty());
        assert_eq!((permits.all.available_permits(), permits.waiting()), (6, 0));
    }

    #[tokio::test]
    async fn what_weighs_more_than_all_together_is_served_alone() {
        let permits = Permits::new(LIMITS);
        let huge = try_acquire(&permits, 1, 100_000);
        assert!(huge.is_some());
        assert!(try_acquire(&permits, 2, 1).is_none());
        drop(huge);
        assert!(try_acquire(&permits, 2, 1).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_for_ever_and_who_goes_away_leaves_nothing_behind() {
        let permits = Permits::new(LIMITS);
        let held = [try_acquire(&permits, 1, 200), try_acquire(&permits, 2, 200)];
        let began = Instant::now();
        let refused = permits.acquire(Client(1), 1).await.unwrap_err();
        assert_eq!((refused, began.elapsed()), (TurnedAway::Queue, LIMITS.wait));
        let waiting = Arc::clone(&permits);
        let waiting = tokio::spawn(async move { waiting.acquire(Client(1), 1).await });
        while permits.waiting() != 1 {
            tokio::task::yield_now().await;
        }
        waiting.abort();
        assert!(waiting.await.unwrap_err().is_cancelled());
        drop(held);
        assert!(lock(&permits.clients).is_empty());
        assert_eq!((permits.all.available_permits(), permits.waiting()), (6, 0));
    }
}
