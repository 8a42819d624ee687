//! How many requests are served at a time, and whose turn it is.
//!
//! In front of the store's group commit stand fair queues ([`fair_queue`]): waiting happens there,
//! where clients are told apart, and not behind, where all are alike. An event waits for its turn
//! when its body has arrived and is valid, so a slow body holds nothing. Stops and starts have permits
//! of their own: a start that is turned away bills too little for a moment, a stop that is turned
//! away bills too much. Each range of a sharded collection ([`ShardRange`]) has permits of its own,
//! too: a range that does not answer holds up no other.

mod budget;
pub mod fair_queue;
mod permits;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use budget::Budget;
pub(crate) use budget::{Charge, OverBudget};
use fair_queue::{Client, QueueLimits};
use permits::{FairPermit, FairPermits, NoPermit, PermitLimits};

use crate::reading;

/// Events of one kind that wait for an answer of the store, in each shard range; and as many stops that
/// came in batches. They keep all commands of a group busy while the next ones gather; more would only
/// wait in the group.
const STORE_PERMITS: usize = 384;

/// The same of starts in batches, so many that commands are as large as they may be. The server takes
/// large commands of inserts for less, and nobody waits for one start of a batch alone. A stop costs
/// the server so much by itself that larger commands would save little.
const BATCH_START_PERMITS: usize = 1_024;

/// The weight of all starts in batches that hold a permit, at the most: no more than of the others.
const BATCH_START_WEIGHT: usize = STORE_PERMITS * LARGE_REQUEST;

/// Requests with large bodies that are served at a time, and what they may weigh together. Until such
/// an event is kept, it is there several times: as a body, parsed, as a document, in the command, and
/// in what the driver sends. So this is far less than what a program has.
const LARGE_PERMITS: usize = 64;
const LARGE_WEIGHT: usize = 4 << 20;

/// Mappings that are served at a time: each is three calls to another service.
const MAPPING_PERMITS: usize = 32;

/// Acts of operators that are served at a time.
const ACT_PERMITS: usize = 8;

/// For requests that read: the longest wait for a turn, the wait that is aimed at, and what all
/// that wait may weigh together. Each weighs [`REQUEST_WEIGHT`].
const READ_WAIT_MAX: Duration = Duration::from_secs(1);
const READ_WAIT_TARGET: Duration = Duration::from_millis(500);
const READ_QUEUE_WEIGHT: usize = 64 << 10;

/// Snapshots that are in memory at a time, until they are answered.
const SNAPSHOTS_AT_ONCE: usize = 1;

/// The longest wait for a turn.
const WAIT_MAX: Duration = Duration::from_secs(5);

/// The wait that is aimed at. If a client's events wait longer than this for [`WAIT_INTERVAL`], the
/// heaviest queue loses its oldest event.
const WAIT_TARGET: Duration = Duration::from_secs(1);
const WAIT_INTERVAL: Duration = Duration::from_secs(2);

/// The weight of all events that wait for one kind of permit, at the most.
const QUEUE_WEIGHT: usize = 12 << 20;

/// Bytes of bodies that are in memory at a time, but for small ones. A client alone may have half of
/// that: a batch of the largest size, and what it was decompressed from.
const BODY_BYTES: usize = 12 << 20;

/// A body up to this size is not charged to the budget: what connections take bounds those.
pub(crate) const SMALL_BODY: usize = 2 << 10;

/// The weight of a request at least, and of each value in its JSON: about what they take of memory.
const REQUEST_WEIGHT: usize = 1 << 10;
const VALUE_WEIGHT: usize = 160;

/// A request that weighs more is large.
const LARGE_REQUEST: usize = 32 << 10;

/// Clients without tokens are told apart by the resource of their events. They share this many
/// queues, so a client that invents resources cannot fill more.
const QUEUES_WITHOUT_TOKENS: u64 = 64;

/// The kind of a request, each with permits of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestKind {
    /// A stop.
    Stop,
    /// A start.
    Start,
    /// A stop in a batch.
    BatchStop,
    /// A start in a batch.
    BatchStart,
    /// A mapping of a plan.
    Mapping,
}

/// A shard range: a range of the collection, by its number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShardRange(pub usize);

/// Why a request is turned away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TurnedAway {
    /// `MAX_INFLIGHT` requests are in flight.
    Limit,
    /// There was no permit in time, or the client's queue was shortened.
    Queue,
    /// Bodies of this client take all the memory that it may have.
    Memory,
}

/// All permits.
#[derive(Debug)]
pub struct Admission {
    limit: Option<InFlightLimit>,
    ranges: Vec<EventPermits>,
    mappings: Arc<FairPermits>,
    large: Arc<FairPermits>,
    reads: Arc<FairPermits>,
    sums: Arc<FairPermits>,
    snapshots: Arc<FairPermits>,
    acts: Arc<FairPermits>,
    bodies: Arc<Budget>,
}

/// The permits of one range.
#[derive(Debug)]
struct EventPermits {
    stops: Arc<FairPermits>,
    starts: Arc<FairPermits>,
    batch_stops: Arc<FairPermits>,
    batch_starts: Arc<FairPermits>,
    /// This range's part of what large events may take. Where there is one range, all of it.
    large: Option<Arc<FairPermits>>,
}

/// Permission to be served.
#[derive(Debug)]
pub struct ServingPermit(#[expect(dead_code, reason = "it is held")] FairPermit);

impl Admission {
    /// Admission to a store with so many ranges; with a hard limit, if there is to be one.
    pub fn new(limit: Option<usize>, ranges: usize) -> Self {
        let light = QueueLimits {
            weight: QUEUE_WEIGHT,
            quantum: 4 << 10,
            target: WAIT_TARGET,
            interval: WAIT_INTERVAL,
        };
        let weighed = |permits, weight| {
            FairPermits::new(PermitLimits {
                permits,
                weight,
                wait: WAIT_MAX,
                queue: light,
            })
        };
        let permits = |permits| weighed(permits, usize::MAX);
        let ranges = ranges.max(1);
        let large_of_range = || {
            FairPermits::new(PermitLimits {
                permits: (LARGE_PERMITS / ranges).max(1),
                weight: LARGE_WEIGHT / ranges,
                wait: WAIT_MAX,
                queue: QueueLimits {
                    quantum: 1 << 20,
                    ..light
                },
            })
        };
        let reads = |permits| {
            FairPermits::new(PermitLimits {
                permits,
                weight: usize::MAX,
                wait: READ_WAIT_MAX,
                queue: QueueLimits {
                    weight: READ_QUEUE_WEIGHT,
                    target: READ_WAIT_TARGET,
                    interval: READ_WAIT_MAX,
                    ..light
                },
            })
        };
        let events = || EventPermits {
            stops: permits(STORE_PERMITS),
            starts: permits(STORE_PERMITS),
            batch_stops: permits(STORE_PERMITS),
            batch_starts: weighed(BATCH_START_PERMITS, BATCH_START_WEIGHT),
            large: (ranges > 1).then(large_of_range),
        };
        Self {
            limit: limit.map(InFlightLimit::new),
            ranges: (0..ranges).map(|_| events()).collect(),
            mappings: permits(MAPPING_PERMITS),
            large: FairPermits::new(PermitLimits {
                permits: LARGE_PERMITS,
                weight: LARGE_WEIGHT,
                wait: WAIT_MAX,
                queue: QueueLimits {
                    // No limit here: what waits is not parsed yet, so it takes the memory of its
                    // bytes alone, and the budget for bodies bounds that.
                    weight: usize::MAX,
                    quantum: 1 << 20,
                    ..light
                },
            }),
            reads: reads(reading::AT_ONCE as usize),
            sums: reads(reading::SUMS_AT_ONCE),
            snapshots: reads(SNAPSHOTS_AT_ONCE),
            acts: permits(ACT_PERMITS),
            bodies: Budget::new(BODY_BYTES),
        }
    }

    /// The client whose token has this id.
    pub fn client(&self, id: &str) -> Client {
        Client(hash(id) | 1 << 63)
    }

    /// The client of events without a token: all that report the same resource count as one.
    pub fn client_of_resource(&self, resource_id: &str) -> Client {
        Client(hash(resource_id) % QUEUES_WITHOUT_TOKENS)
    }

    /// Counts a request against the hard limit, if there is one.
    ///
    /// # Errors
    /// Where the limit is reached.
    pub fn acquire_in_flight(
        &self,
        kind: RequestKind,
    ) -> Result<Option<InFlightPermit>, TurnedAway> {
        let limit = self.limit.as_ref();
        limit.map(|limit| limit.acquire(kind)).transpose()
    }

    /// A charge for the body of one request.
    pub(crate) fn charge_body(&self, client: Client) -> Charge {
        self.bodies.charge(client)
    }

    /// Waits until a large request may be parsed and served; nothing where it is not large.
    ///
    /// # Errors
    /// Where there is no permit in time, or the client's queue is shortened.
    pub(crate) async fn acquire_large(
        &self,
        client: Client,
        weight: usize,
    ) -> Result<Option<ServingPermit>, TurnedAway> {
        if weight <= LARGE_REQUEST {
            return Ok(None);
        }
        acquire(&self.large, client, weight).await.map(Some)
    }

    /// Waits until a request may be served.
    ///
    /// # Errors
    /// Where there is no permit in time, or the client's queue is shortened.
    pub(crate) async fn acquire_turn(
        &self,
        kind: RequestKind,
        range: ShardRange,
        client: Client,
        weight: usize,
    ) -> Result<ServingPermit, TurnedAway> {
        let range = self.range(range);
        let permits = match kind {
            RequestKind::Stop => &range.stops,
            RequestKind::Start => &range.starts,
            RequestKind::BatchStop => &range.batch_stops,
            RequestKind::BatchStart => &range.batch_starts,
            RequestKind::Mapping => &self.mappings,
        };
        acquire(permits, client, weight).await
    }

    /// Waits until a request that only reads may be served; `client` is as its token names it.
    ///
    /// # Errors
    /// Where too many read.
    pub(crate) async fn read(&self, client: Option<&str>) -> Result<ServingPermit, TurnedAway> {
        let client = client.map_or_else(|| self.client_of_resource(""), |id| self.client(id));
        acquire(&self.reads, client, REQUEST_WEIGHT).await
    }

    /// Waits until a request may add up usages. It needs a permit of [`read`](Self::read) besides.
    ///
    /// # Errors
    /// Where too many do.
    pub(crate) async fn sum(&self, client: Option<&str>) -> Result<ServingPermit, TurnedAway> {
        let client = client.map_or_else(|| self.client_of_resource(""), |id| self.client(id));
        acquire(&self.sums, client, REQUEST_WEIGHT).await
    }

    /// Waits until a snapshot may arrive.
    ///
    /// # Errors
    /// Where others are in memory for too long.
    pub(crate) async fn snapshot(&self, client: Option<&str>) -> Result<ServingPermit, TurnedAway> {
        let client = client.map_or_else(|| self.client_of_resource(""), |id| self.client(id));
        acquire(&self.snapshots, client, REQUEST_WEIGHT).await
    }

    /// Waits until an act of an operator may be parsed and served.
    ///
    /// # Errors
    /// Where there is no permit in time, or the client's queue is shortened.
    pub(crate) async fn act(
        &self,
        client: Client,
        weight: usize,
    ) -> Result<ServingPermit, TurnedAway> {
        acquire(&self.acts, client, weight).await
    }

    /// Waits until a large request that was parsed may be served, now that its range is known: a range
    /// that does not answer must not keep all the permits for what is large.
    ///
    /// # Errors
    /// Where there is no permit in time, or the client's queue is shortened.
    pub(crate) async fn acquire_large_turn(
        &self,
        parsed: ServingPermit,
        kind: RequestKind,
        range: ShardRange,
        client: Client,
        weight: usize,
    ) -> Result<ServingPermit, TurnedAway> {
        match (&self.range(range).large, kind) {
            (None, _) | (_, RequestKind::Mapping) => Ok(parsed),
            (Some(large), _) => {
                drop(parsed);
                acquire(large, client, weight).await
            }
        }
    }

    fn range(&self, range: ShardRange) -> &EventPermits {
        &self.ranges[range.0.min(self.ranges.len() - 1)]
    }

    /// How many requests wait for their turn.
    pub fn waiting(&self) -> usize {
        self.waiting_events()
            + self.mappings.waiting()
            + self.reads.waiting()
            + self.sums.waiting()
            + self.snapshots.waiting()
            + self.acts.waiting()
    }

    /// How many events wait for their turn. A large body counts, too, whatever it is.
    pub fn waiting_events(&self) -> usize {
        let events = self.ranges.iter();
        let events = events.map(|range| {
            let large = range.large.as_ref().map_or(0, |large| large.waiting());
            let batches = range.batch_stops.waiting() + range.batch_starts.waiting();
            range.stops.waiting() + range.starts.waiting() + batches + large
        });
        events.sum::<usize>() + self.large.waiting()
    }
}

fn hash(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

async fn acquire(
    permits: &Arc<FairPermits>,
    client: Client,
    weight: usize,
) -> Result<ServingPermit, TurnedAway> {
    let permit = permits.acquire(client, weight).await;
    permit
        .map(ServingPermit)
        .map_err(|NoPermit| TurnedAway::Queue)
}

/// The weight of a request with this body: about what it takes of memory until it is answered.
pub(crate) fn weight(body: &[u8]) -> usize {
    // Each value but the first stands behind a comma, or is the first of a container that is not
    // empty. Texts may hold these, too: the weight is no less than it should be.
    let next = body.iter().skip(1).chain([&0]);
    let is_value = |&(byte, next): &(&u8, &u8)| match byte {
        b',' => true,
        b'[' => *next != b']',
        b'{' => *next != b'}',
        _ => false,
    };
    let values = body.iter().zip(next).filter(is_value).count();
    REQUEST_WEIGHT + body.len() + VALUE_WEIGHT * values
}

/// So many requests at once. A quarter of them is for stops alone.
#[derive(Debug)]
struct InFlightLimit {
    all: Arc<Semaphore>,
    others: Arc<Semaphore>,
}

/// A request that counts against the limit, until this is dropped.
#[derive(Debug)]
pub struct InFlightPermit {
    _all: OwnedSemaphorePermit,
    _others: Option<OwnedSemaphorePermit>,
}

impl InFlightLimit {
    fn new(limit: usize) -> Self {
        let others = (limit - limit / 4).max(1);
        Self {
            all: Arc::new(Semaphore::new(limit)),
            others: Arc::new(Semaphore::new(others)),
        }
    }

    fn acquire(&self, kind: RequestKind) -> Result<InFlightPermit, TurnedAway> {
        let take = |permits: &Arc<Semaphore>| {
            let permit = Arc::clone(permits).try_acquire_owned();
            permit.map_err(|_| TurnedAway::Limit)
        };
        let others = match kind {
            RequestKind::Stop | RequestKind::BatchStop => None,
            RequestKind::Start | RequestKind::BatchStart | RequestKind::Mapping => {
                Some(take(&self.others)?)
            }
        };
        Ok(InFlightPermit {
            _all: take(&self.all)?,
            _others: others,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_quarter_of_the_limit_is_for_stops() {
        let limit = InFlightLimit::new(8);
        let take = |kind| limit.acquire(kind);
        let others: Vec<_> = (0..6).map(|_| take(RequestKind::Start).unwrap()).collect();
        assert_eq!(take(RequestKind::Mapping).unwrap_err(), TurnedAway::Limit);
        let stops: Vec<_> = (0..2).map(|_| take(RequestKind::Stop).unwrap()).collect();
        assert_eq!(take(RequestKind::Stop).unwrap_err(), TurnedAway::Limit);
        drop(others);
        take(RequestKind::Stop).unwrap();
        drop(stops);
    }

    #[test]
    fn the_lowest_limit_still_lets_one_in() {
        let limit = InFlightLimit::new(1);
        let permit = limit.acquire(RequestKind::Start).unwrap();
        assert!(limit.acquire(RequestKind::Stop).is_err());
        drop(permit);
        assert!(limit.acquire(RequestKind::Stop).is_ok());
    }

    #[test]
    fn without_a_limit_nothing_is_counted() {
        let admission = Admission::new(None, 1);
        assert!(
            admission
                .acquire_in_flight(RequestKind::Start)
                .unwrap()
                .is_none()
        );
    }

    #[test]
    fn clients_with_tokens_have_queues_of_their_own_and_invented_resources_share_a_few() {
        let admission = Admission::new(None, 1);
        let names: Vec<_> = (0..10_000).map(|number| format!("name {number}")).collect();
        let clients: BTreeSet<_> = names.iter().map(|name| admission.client(name)).collect();
        assert_eq!(clients.len(), names.len());
        let resources = names.iter().map(|name| admission.client_of_resource(name));
        let resources: BTreeSet<_> = resources.collect();
        assert_eq!(resources.len() as u64, QUEUES_WITHOUT_TOKENS);
        assert!(resources.is_disjoint(&clients));
    }

    #[test]
    fn a_body_of_many_values_weighs_what_they_take_of_memory() {
        let lists = format!("[{}[]]", "[],".repeat(10_000));
        assert!(weight(lists.as_bytes()) > 10_000 * VALUE_WEIGHT);
        let text = format!("[\"{}\"]", "x".repeat(30_000));
        assert!(weight(text.as_bytes()) < 33_000);
    }

    #[tokio::test(start_paused = true)]
    async fn events_of_batches_hold_up_none_that_come_alone() {
        let admission = Admission::new(None, 1);
        let client = admission.client("one");
        let range = ShardRange(0);
        let serve = |kind| admission.acquire_turn(kind, range, client, 1_000);
        let mut held = Vec::new();
        for (in_batch, permits, alone) in [
            (
                RequestKind::BatchStart,
                BATCH_START_PERMITS,
                RequestKind::Start,
            ),
            (RequestKind::BatchStop, STORE_PERMITS, RequestKind::Stop),
        ] {
            for _ in 0..permits {
                held.push(serve(in_batch).await.unwrap());
            }
            assert_eq!(serve(in_batch).await.unwrap_err(), TurnedAway::Queue);
            held.push(serve(alone).await.unwrap());
        }
    }

    /// A range of the collection that does not answer.
    #[tokio::test(start_paused = true)]
    async fn a_range_that_is_full_holds_up_no_other_and_starts_hold_up_no_stops() {
        let admission = Admission::new(None, 2);
        let client = admission.client("one");
        let serve = |kind, range| admission.acquire_turn(kind, ShardRange(range), client, 1_000);
        let mut held = Vec::new();
        for _ in 0..STORE_PERMITS {
            held.push(serve(RequestKind::Start, 0).await.unwrap());
        }
        assert_eq!(
            serve(RequestKind::Start, 0).await.unwrap_err(),
            TurnedAway::Queue
        );
        held.push(serve(RequestKind::Start, 1).await.unwrap());
        held.push(serve(RequestKind::Stop, 0).await.unwrap());
        assert_eq!(admission.waiting(), 0);
    }
}
