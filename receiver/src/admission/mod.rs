//! How many requests are served at a time.
//!
//! Permits precede the store's group commit: events wait here, where clients are distinguished, and not in the
//! store, where all are alike. An event waits for its turn once it is valid, a large one once its body has
//! arrived, so a slow body holds nothing. Stops and starts have permits of their own, but for large ones: a refused
//! start bills too little for a short time, a refused stop bills too much.

mod budget;
mod in_flight;
mod limits;
mod permits;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use memchr::memchr3_iter;

use budget::Budget;
pub(crate) use budget::Charge;
use in_flight::InFlightLimit;
pub use in_flight::InFlightPermit;
pub(crate) use limits::SMALL_BODY;
use limits::{CLIENTS_WITHOUT_TOKENS, LARGE_REQUEST, REQUEST_WEIGHT, VALUE_WEIGHT};
use permits::Permits;
pub use permits::ServingPermit;

/// A client, as a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Client(pub u64);

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
    /// There was no permit in time.
    Queue,
    /// Bodies of this client take all the memory that one client may have.
    Memory,
}

#[derive(Debug)]
pub struct Admission {
    limit: Option<InFlightLimit>,
    stops: Arc<Permits>,
    starts: Arc<Permits>,
    batch_stops: Arc<Permits>,
    batch_starts: Arc<Permits>,
    mappings: Arc<Permits>,
    large: Arc<Permits>,
    reads: Arc<Permits>,
    sums: Arc<Permits>,
    acts: Arc<Permits>,
    pub(crate) bodies: Arc<Budget>,
}

impl Admission {
    /// Admission with a hard limit, if there is to be one.
    pub fn new(limit: Option<usize>) -> Self {
        Self {
            limit: limit.map(InFlightLimit::new),
            stops: Permits::new(limits::EVENTS),
            starts: Permits::new(limits::EVENTS),
            batch_stops: Permits::new(limits::EVENTS),
            batch_starts: Permits::new(limits::BATCH_STARTS),
            mappings: Permits::new(limits::MAPPINGS),
            large: Permits::new(limits::LARGE),
            reads: Permits::new(limits::READS),
            sums: Permits::new(limits::SUMS),
            acts: Permits::new(limits::ACTS),
            bodies: Budget::new(limits::BODY_BYTES),
        }
    }

    /// The client whose token has this id.
    pub fn client(&self, id: &str) -> Client {
        Client(hash(id) | 1 << 63)
    }

    /// The client of events without a token: all that report the same resource count as one.
    pub fn client_of_resource(&self, resource_id: &str) -> Client {
        Client(hash(resource_id) % CLIENTS_WITHOUT_TOKENS)
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

    /// Waits until an operator's action may be parsed and served.
    pub(crate) async fn act(&self, client: Client) -> Result<ServingPermit, TurnedAway> {
        self.acts.acquire(client, REQUEST_WEIGHT).await
    }

    /// How many events wait for their turn. A large body counts, too, whatever it is.
    pub fn waiting_events(&self) -> usize {
        let events = [
            &self.stops,
            &self.starts,
            &self.batch_stops,
            &self.batch_starts,
            &self.large,
        ];
        events.iter().map(|permits| permits.waiting()).sum()
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
    fn clients_with_tokens_are_told_apart_and_invented_resources_are_a_few() {
        let admission = Admission::new(None);
        let names: Vec<_> = (0..10_000).map(|number| format!("name {number}")).collect();
        let clients: BTreeSet<_> = names.iter().map(|name| admission.client(name)).collect();
        assert_eq!(clients.len(), names.len());
        let resources = names.iter().map(|name| admission.client_of_resource(name));
        let resources: BTreeSet<_> = resources.collect();
        assert_eq!(resources.len() as u64, CLIENTS_WITHOUT_TOKENS);
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
    async fn starts_hold_up_no_stops_and_batches_nothing_that_comes_alone() {
        let admission = Admission::new(None);
        let client = admission.client("one");
        let serve = |kind| admission.acquire_turn(kind, client, 1_000);
        let mut held = Vec::new();
        for kind in [
            RequestKind::BatchStart,
            RequestKind::BatchStop,
            RequestKind::Start,
            RequestKind::Stop,
        ] {
            held.push(serve(kind).await.unwrap());
            while let Ok(permit) = serve(kind).await {
                held.push(permit);
            }
        }
    }
}
