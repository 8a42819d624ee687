//! How many requests are served at a time, and whose turn it is.
//!
//! Fair queues ([`fair_queue`]) precede the store's group commit: events wait there, where clients
//! are distinguished, and not in the store, where all are alike. An event waits for its turn once it is
//! valid, a large one once its body has arrived, so a slow body holds nothing. Stops and starts have permits of
//! their own, but for large ones: a refused start bills too little for a short time, a refused stop bills too
//! much.

mod budget;
pub mod fair_queue;
mod in_flight;
mod limits;
mod permits;
mod spent;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use memchr::memchr3_iter;

use budget::Budget;
pub(crate) use budget::Charge;
use fair_queue::Client;
use in_flight::InFlightLimit;
pub use in_flight::InFlightPermit;
pub(crate) use limits::SMALL_BODY;
use limits::{LARGE_REQUEST, QUEUES_WITHOUT_TOKENS, REQUEST_WEIGHT, STORE_PERMITS, VALUE_WEIGHT};
use permits::FairPermits;
pub use permits::ServingPermit;

/// The kind of a request, each with permits of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestKind {
    Stop,
    Start,
    BatchStop,
    BatchStart,
    Mapping,
}

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TurnedAway {
    /// `MAX_INFLIGHT` requests are in flight.
    Limit,
    /// There was no permit in time, or the client's queue was shortened.
    Queue,
    /// Bodies of this client take all the memory that one client may have.
    Memory,
}

#[derive(Debug)]
pub struct Admission {
    limit: Option<InFlightLimit>,
    stops: Arc<FairPermits>,
    starts: Arc<FairPermits>,
    batch_stops: Arc<FairPermits>,
    batch_starts: Arc<FairPermits>,
    mappings: Arc<FairPermits>,
    large: Arc<FairPermits>,
    reads: Arc<FairPermits>,
    sums: Arc<FairPermits>,
    snapshots: Arc<FairPermits>,
    acts: Arc<FairPermits>,
    pub(crate) bodies: Arc<Budget>,
}

fn store_permits() -> Arc<FairPermits> {
    FairPermits::new(limits::at_once(STORE_PERMITS))
}

impl Admission {
    /// Admission with a hard limit, if there is to be one.
    pub fn new(limit: Option<usize>) -> Self {
        Self {
            limit: limit.map(InFlightLimit::new),
            stops: store_permits(),
            starts: store_permits(),
            batch_stops: store_permits(),
            batch_starts: FairPermits::new(limits::BATCH_STARTS),
            mappings: FairPermits::new(limits::at_once(limits::MAPPING_PERMITS)),
            large: FairPermits::new(limits::LARGE),
            reads: FairPermits::new(limits::READS),
            sums: FairPermits::new(limits::SUMS),
            snapshots: FairPermits::new(limits::SNAPSHOTS),
            acts: FairPermits::new(limits::at_once(limits::ACT_PERMITS)),
            bodies: Budget::new(limits::BODY_BYTES),
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
    pub fn acquire_in_flight(
        &self,
        kind: RequestKind,
    ) -> Result<Option<InFlightPermit>, TurnedAway> {
        let limit = self.limit.as_ref();
        limit.map(|limit| limit.acquire(kind)).transpose()
    }

    /// Waits until a large request may be parsed and served; nothing where it is not large.
    pub(crate) async fn acquire_large(
        &self,
        client: Client,
        weight: usize,
    ) -> Result<Option<ServingPermit>, TurnedAway> {
        if weight <= LARGE_REQUEST {
            return Ok(None);
        }
        self.large.acquire(client, weight).await.map(Some)
    }

    /// Waits until a request may be served.
    pub(crate) async fn acquire_turn(
        &self,
        kind: RequestKind,
        client: Client,
        weight: usize,
    ) -> Result<ServingPermit, TurnedAway> {
        let permits = match kind {
            RequestKind::Stop => &self.stops,
            RequestKind::Start => &self.starts,
            RequestKind::BatchStop => &self.batch_stops,
            RequestKind::BatchStart => &self.batch_starts,
            RequestKind::Mapping => &self.mappings,
        };
        permits.acquire(client, weight).await
    }

    /// Waits until a request that only reads may be served.
    pub(crate) async fn read(&self, client: Client) -> Result<ServingPermit, TurnedAway> {
        self.reads.acquire(client, REQUEST_WEIGHT).await
    }

    /// Waits until a request may add up usages. It needs a permit of [`read`](Self::read) besides.
    pub(crate) async fn sum(&self, client: Client) -> Result<ServingPermit, TurnedAway> {
        self.sums.acquire(client, REQUEST_WEIGHT).await
    }

    /// Waits until a snapshot may arrive.
    pub(crate) async fn snapshot(&self, client: Client) -> Result<ServingPermit, TurnedAway> {
        self.snapshots.acquire(client, REQUEST_WEIGHT).await
    }

    /// Waits until an operator's action may be parsed and served.
    pub(crate) async fn act(
        &self,
        client: Client,
        weight: usize,
    ) -> Result<ServingPermit, TurnedAway> {
        self.acts.acquire(client, weight).await
    }

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
        self.stops.waiting()
            + self.starts.waiting()
            + self.batch_stops.waiting()
            + self.batch_starts.waiting()
            + self.large.waiting()
    }
}

fn hash(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

/// The weight of a request with this body: about the memory that it takes until it is answered.
pub(crate) fn weight(body: &[u8]) -> usize {
    // Each value but the first follows a comma, or is the first of a container that is not
    // empty. Texts may hold these, too: the weight is no less than it should be.
    let values = memchr3_iter(b',', b'[', b'{', body)
        .filter(|at| !matches!(body[*at..], [b'[', b']', ..] | [b'{', b'}', ..]))
        .count();
    REQUEST_WEIGHT + body.len() + VALUE_WEIGHT * values
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn without_a_limit_nothing_is_counted() {
        let admission = Admission::new(None);
        assert!(
            admission
                .acquire_in_flight(RequestKind::Start)
                .unwrap()
                .is_none()
        );
    }

    #[test]
    fn clients_with_tokens_have_queues_of_their_own_and_invented_resources_share_a_few() {
        let admission = Admission::new(None);
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
        let admission = Admission::new(None);
        let client = admission.client("one");
        let serve = |kind| admission.acquire_turn(kind, client, 1_000);
        let mut held = Vec::new();
        for (in_batch, permits, alone) in [
            (
                RequestKind::BatchStart,
                limits::BATCH_START_PERMITS,
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

    #[tokio::test(start_paused = true)]
    async fn starts_hold_up_no_stops() {
        let admission = Admission::new(None);
        let client = admission.client("one");
        let serve = |kind| admission.acquire_turn(kind, client, 1_000);
        let mut held = Vec::new();
        for _ in 0..STORE_PERMITS {
            held.push(serve(RequestKind::Start).await.unwrap());
        }
        assert_eq!(
            serve(RequestKind::Start).await.unwrap_err(),
            TurnedAway::Queue
        );
        held.push(serve(RequestKind::Stop).await.unwrap());
        assert_eq!(admission.waiting(), 0);
    }
}
