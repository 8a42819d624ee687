//! How many requests are served at a time.
//!
//! Permits precede the store's group commit: events wait here, where clients are distinguished, and not in the
//! store, where all are alike. An event waits for its turn once it is valid, a large one once its body has
//! arrived, so a slow body holds nothing. Stops and starts have permits of their own, but for large ones: a refused
//! start bills too little for a short time, a refused stop bills too much.
//!
//! One client holds at most a third of the permits of a kind. A request waits for a permit of its client first,
//! and then for one of all, so of each client only as many requests as it may have served stand in the queue of all.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use memchr::memchr3_iter;
use sampler_domain::ClientId;
use sampler_service::security::Grant;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::reading::AT_ONCE;

/// How long a request waits for its turn.
const WAIT: Duration = Duration::from_secs(5);

/// How long a request waits that reads: as long as the slowest of them, a sum, may take. And one that adds up: the sum
/// of another client may have waited for its turn to read, too.
const READ_WAIT: Duration = Duration::from_secs(7);
const SUM_WAIT: Duration = Duration::from_secs(14);

/// A request that weighs more is large: it waits before it is parsed.
pub(crate) const LARGE_REQUEST: usize = 32 << 10;

/// The least weight of a request, and the weight of each value in its JSON: about the memory they take.
const REQUEST_WEIGHT: usize = 1 << 10;
const VALUE_WEIGHT: usize = 160;

/// Clients that are remembered although they hold nothing.
const CLIENTS_IDLE: usize = 1_000;

/// A client, as a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Client(u64);

impl Client {
    /// Everybody, where no token names a client.
    const NOBODY: Self = Self(0);

    /// The client of a request: that of its token, or else who reports this resource.
    pub(crate) fn of(grant: &Grant, resource: &str) -> Self {
        Self::named(grant.client().map_or(resource, ClientId::as_str))
    }

    fn named(name: &str) -> Self {
        if name.is_empty() {
            return Self::NOBODY;
        }
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        Self(hasher.finish())
    }
}

/// The kind of a request, or of what it needs, each with permits of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Start,
    Stop,
    BatchStart,
    BatchStop,
    /// An event with a large body. Until it is kept, memory holds it several times: as a body, parsed, as a
    /// document, in the command, and in what the driver sends.
    Large,
    Mapping,
    Act,
    Read,
    /// A request that adds up usages. It reads, besides.
    Sum,
    /// A body in memory, but for small ones.
    Body,
}

/// The permits of each kind, the weight for which a request needs one of them, and how long a request waits.
const LIMITS: [(Kind, usize, usize, Duration); 10] = [
    // The 384 of one client keep all commands of a group busy while the next ones gather.
    (Kind::Start, 3 * 384, usize::MAX, WAIT),
    (Kind::Stop, 3 * 384, usize::MAX, WAIT),
    // Those of one client are twice what all commands hold, so that the next commands are full when they are sent; all
    // together fill the queue of the store behind them.
    (Kind::BatchStart, 3 * 2_048, 6 << 10, WAIT),
    (Kind::BatchStop, 3 * 384, usize::MAX, WAIT),
    (Kind::Large, 64, 64 << 10, WAIT),
    // Each is three calls to another service.
    (Kind::Mapping, 32, usize::MAX, WAIT),
    (Kind::Act, 8, usize::MAX, WAIT),
    // Each holds a connection.
    (Kind::Read, AT_ONCE as usize, usize::MAX, READ_WAIT),
    // Each keeps a processor of the database busy.
    (Kind::Sum, 1, usize::MAX, SUM_WAIT),
    // A third is a batch of the largest size, and what it was decompressed from.
    (Kind::Body, 18 << 10, 1 << 10, WAIT),
];

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TurnedAway {
    /// `MAX_INFLIGHT` requests are in flight.
    Limit,
    /// There was no permit in time.
    Queue,
    /// Bodies of this client take all the memory that one client may have.
    Memory,
}

/// Permission to be served, or to hold bytes, until this is dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    _of_client: OwnedSemaphorePermit,
    _of_all: OwnedSemaphorePermit,
}

#[derive(Debug)]
pub(crate) struct Admission {
    queues: [Queue; LIMITS.len()],
    /// `MAX_INFLIGHT`, where that is set: of all events, batches and mappings, and of those that are no stops.
    in_flight: Option<[Arc<Semaphore>; 2]>,
}

impl Admission {
    pub(crate) fn new(in_flight: Option<usize>) -> Self {
        // A quarter, rounded down, is for single stops.
        let limits = |all: usize| [all, (all - all / 4).max(1)];
        Self {
            queues: LIMITS.map(|(_, permits, unit, wait)| Queue::new(permits, unit, wait)),
            in_flight: in_flight.map(|all| limits(all).map(|it| Arc::new(Semaphore::new(it)))),
        }
    }

    /// Counts a request against `MAX_INFLIGHT`.
    pub(crate) fn count(&self, is_stop: bool) -> Result<Vec<OwnedSemaphorePermit>, TurnedAway> {
        let limits = self.in_flight.iter().flatten();
        let limits = limits.take(if is_stop { 1 } else { 2 });
        let permits = limits.map(|limit| Arc::clone(limit).try_acquire_owned());
        let permits: Result<_, _> = permits.collect();
        permits.map_err(|_| TurnedAway::Limit)
    }

    /// Waits until a request may be served. One that weighs more than all permits together is served alone.
    pub(crate) async fn turn(
        &self,
        kind: Kind,
        client: Client,
        weight: usize,
    ) -> Result<Turn, TurnedAway> {
        let queue = &self.queues[kind as usize];
        let _waiting = Arc::clone(&queue.waiting);
        let (of_client, of_all) = queue.needed(client, weight);
        let turn = async {
            Turn {
                _of_client: acquire(queue.of(client), of_client).await,
                _of_all: acquire(Arc::clone(&queue.all), of_all).await,
            }
        };
        let turn = timeout(queue.wait, turn).await;
        turn.map_err(|_| TurnedAway::Queue)
    }

    /// Takes bytes of memory for a body, at once.
    pub(crate) fn hold(&self, client: Client, bytes: usize) -> Result<Turn, TurnedAway> {
        let queue = &self.queues[Kind::Body as usize];
        let (_, needed) = queue.needed(client, bytes);
        let take = |permits: Arc<Semaphore>| {
            let taken = permits.try_acquire_many_owned(needed);
            taken.map_err(|_| TurnedAway::Memory)
        };
        Ok(Turn {
            _of_client: take(queue.of(client))?,
            _of_all: take(Arc::clone(&queue.all))?,
        })
    }

    /// How many events wait for their turn.
    pub(crate) fn waiting_events(&self) -> usize {
        let events = &self.queues[..=Kind::Large as usize];
        events.iter().map(Queue::waiting).sum()
    }
}

/// The permits of a kind.
#[derive(Debug)]
struct Queue {
    permits: usize,
    /// The weight for which a request needs one permit.
    unit: usize,
    wait: Duration,
    all: Arc<Semaphore>,
    clients: Mutex<HashMap<Client, Arc<Semaphore>>>,
    /// Each request that waits holds a clone.
    waiting: Arc<()>,
}

impl Queue {
    fn new(permits: usize, unit: usize, wait: Duration) -> Self {
        Self {
            permits,
            unit,
            wait,
            all: Arc::new(Semaphore::new(permits)),
            clients: Mutex::default(),
            waiting: Arc::default(),
        }
    }

    /// The permits that one client may hold: a third, and at least one. Where clients have no names, two.
    fn share(&self, client: Client) -> usize {
        let least = if client == Client::NOBODY { 2 } else { 1 };
        (self.permits / 3).max(self.permits.min(least))
    }

    /// The permits of its client, and of all, that a request needs.
    fn needed(&self, client: Client, weight: usize) -> (u32, u32) {
        let needed = weight.div_ceil(self.unit).max(1);
        let limited = |to: usize| u32::try_from(needed.min(to)).unwrap_or(u32::MAX);
        (limited(self.share(client)), limited(self.permits))
    }

    fn of(&self, client: Client) -> Arc<Semaphore> {
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        if clients.len() >= CLIENTS_IDLE {
            // Whoever holds permits of a client, or waits for them, has the semaphore, too.
            clients.retain(|_, permits| Arc::strong_count(permits) > 1);
        }
        let fresh = || Arc::new(Semaphore::new(self.share(client)));
        Arc::clone(clients.entry(client).or_insert_with(fresh))
    }

    fn waiting(&self) -> usize {
        Arc::strong_count(&self.waiting) - 1
    }
}

async fn acquire(permits: Arc<Semaphore>, needed: u32) -> OwnedSemaphorePermit {
    let acquired = permits.acquire_many_owned(needed).await;
    acquired.expect("the semaphore is never closed")
}

/// The weight of a request with this body: about the memory that it takes until it is answered.
pub(crate) fn weight(body: &[u8]) -> usize {
    REQUEST_WEIGHT + body.len() + VALUE_WEIGHT * values(body)
}

/// How many values a body has at the most: each but the first follows a comma, or is the first of a container
/// that is not empty. Texts may hold these, too.
pub(crate) fn values(body: &[u8]) -> usize {
    let opens_nothing = |at: &usize| matches!(body[*at..], [b'[', b']', ..] | [b'{', b'}', ..]);
    let found = memchr3_iter(b',', b'[', b'{', body);
    1 + found.filter(|at| !opens_nothing(at)).count()
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use tokio::time::Instant;

    use super::*;

    const CLIENTS: [&str; 3] = ["a", "b", "c"];

    fn try_turn(admission: &Admission, kind: Kind, client: &str, weight: usize) -> Option<Turn> {
        let turn = admission.turn(kind, Client::named(client), weight);
        tokio::task::unconstrained(turn).now_or_never()?.ok()
    }

    #[tokio::test]
    async fn a_client_holds_a_third_of_each_kind_and_what_it_gives_back_is_free_again() {
        let admission = Admission::new(None);
        for (index, (kind, permits, unit, _)) in LIMITS.into_iter().enumerate() {
            assert_eq!(kind as usize, index);
            let take = |client| try_turn(&admission, kind, client, unit.min(2));
            for _ in 0..2 {
                let held: Vec<_> = CLIENTS
                    .map(|client| std::iter::from_fn(|| take(client)).collect::<Vec<_>>())
                    .into();
                let counts: Vec<_> = held.iter().map(Vec::len).collect();
                let expected = match permits {
                    1 => [1, 0, 0],
                    2 => [1, 1, 0],
                    _ => [permits / 3; 3],
                };
                assert_eq!(counts, expected, "{kind:?}");
            }
            assert_eq!(admission.queues[kind as usize].waiting(), 0);
        }
    }

    #[tokio::test]
    async fn what_weighs_more_than_all_together_is_served_alone() {
        let admission = Admission::new(None);
        let huge = try_turn(&admission, Kind::Large, "a", 100 << 20);
        assert!(huge.is_some());
        assert!(try_turn(&admission, Kind::Large, "b", 1).is_none());
        drop(huge);
        assert!(try_turn(&admission, Kind::Large, "b", 1).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_for_ever_and_who_goes_away_leaves_nothing_behind() {
        let admission = Arc::new(Admission::new(None));
        let held = try_turn(&admission, Kind::Sum, "a", 1);
        let began = Instant::now();
        let refused = admission.turn(Kind::Sum, Client::named("b"), 1).await;
        assert_eq!(refused.unwrap_err(), TurnedAway::Queue);
        assert_eq!(began.elapsed(), SUM_WAIT);
        let waiting = Arc::clone(&admission);
        let client = Client::named("a");
        let waiting = tokio::spawn(async move { waiting.turn(Kind::Sum, client, 1).await });
        while admission.queues[Kind::Sum as usize].waiting() != 1 {
            tokio::task::yield_now().await;
        }
        waiting.abort();
        assert!(waiting.await.unwrap_err().is_cancelled());
        drop(held);
        assert_eq!(admission.queues[Kind::Sum as usize].waiting(), 0);
        assert!(try_turn(&admission, Kind::Sum, "b", 1).is_some());
    }

    #[test]
    fn a_quarter_of_the_requests_in_flight_is_for_stops() {
        for (limit, others, stops) in [(8, 6, 2), (1, 1, 0)] {
            let admission = &Admission::new(Some(limit));
            let take = |is_stop| std::iter::from_fn(move || admission.count(is_stop).ok());
            let held: Vec<_> = take(false).collect();
            let more: Vec<_> = take(true).collect();
            assert_eq!((held.len(), more.len()), (others, stops));
            drop(held);
            assert!(admission.count(true).is_ok());
        }
    }

    #[test]
    fn a_body_of_many_values_weighs_what_they_take_of_memory() {
        for (body, count) in [
            ("1", 1),
            ("{}", 1),
            ("[[],{},[1]]", 5),
            (r#"{"a":[1,2,{"b":"c"}],"d":null}"#, 7),
        ] {
            assert_eq!(values(body.as_bytes()), count, "{body}");
        }
        let lists = format!("[{}[]]", "[],".repeat(10_000));
        assert!(weight(lists.as_bytes()) > 10_000 * VALUE_WEIGHT);
        let text = format!("[\"{}\"]", "x".repeat(30_000));
        assert!(weight(text.as_bytes()) < 33_000);
    }
}
