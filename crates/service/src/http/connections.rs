//! The connections that are open, and which of them ends when there is no room for another.
//!
//! For a new connection another one ends, in the order of [`Rank`]: one whose client is slow with a request
//! or in taking an answer, then one that is idle for long, one with a request or an answer under way, one that
//! is idle for a short time, and last one whose answer takes long to make. Where all have just begun to be
//! served, a few reserved connections are for health checks alone.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Bytes that all connections together keep for requests that have not arrived completely, or that were
/// sent ahead: the part of a head that has arrived, and what a request takes beside its body. A
/// connection beyond this limit ends another.
const KEPT_BYTES: usize = 16 << 20;

/// A request that takes longer to arrive, or an answer that takes longer to be taken, is slow.
const SLOW_AFTER: Duration = Duration::from_secs(1);

/// A client does not need a connection now that is idle for longer.
const IDLE_AFTER: Duration = Duration::from_secs(10);

/// A connection whose answer takes longer can end for another. Otherwise a client with slow requests
/// could hold all connections.
const SERVED_LONG_AFTER: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// It is new, and has sent nothing.
    New,
    /// It has sent nothing of a further request.
    Idle,
    /// It has not taken all of an answer.
    Writing,
    /// It has sent a part of a head, or of what precedes a head.
    Head,
    /// It has sent a part of a body.
    Body,
    /// A whole request is being served.
    Served,
}

const PHASES: [Phase; 6] = [
    Phase::New,
    Phase::Idle,
    Phase::Writing,
    Phase::Head,
    Phase::Body,
    Phase::Served,
];

/// Which connections end first to make room for others. Among connections of one rank, the one that has
/// been in its phase for the longest ends first.
///
/// Attackers open many connections at once. Their requests are older than a request that an honest
/// client has just begun, and a connection that was recently active ends last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Slow,
    /// It was not recently active.
    Unused,
    /// A request is on its way, or an answer.
    UnderWay,
    /// It is idle, and was recently active.
    Active,
    /// Its request has been served for long.
    ServedLong,
}

/// The phase of one connection, and its beginning.
#[derive(Debug)]
pub(super) struct Activity {
    began: Instant,
    /// The phase, and when it began (ms), in one number.
    state: AtomicU64,
    ended: CancellationToken,
}

impl Activity {
    fn new(began: Instant) -> Arc<Self> {
        let activity = Self {
            began,
            state: AtomicU64::new(0),
            ended: CancellationToken::new(),
        };
        activity.enter(Phase::New);
        Arc::new(activity)
    }

    /// Sets the phase of the connection. Its duration starts when the phase changes.
    pub(super) fn enter(&self, phase: Phase) {
        if self.phase() == phase && self.state.load(Ordering::Relaxed) != 0 {
            return;
        }
        let state = (self.now() + 1) << 3 | phase as u64;
        self.state.store(state, Ordering::Relaxed);
    }

    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX >> 8)
    }

    /// When it ends for others; nothing where it has just begun to be served, and does not.
    fn rank(&self) -> Option<Rank> {
        let lasts = Duration::from_millis((self.now() + 1).saturating_sub(self.since()));
        match self.phase() {
            Phase::Served => (lasts >= SERVED_LONG_AFTER).then_some(Rank::ServedLong),
            Phase::Idle if lasts >= IDLE_AFTER => Some(Rank::Unused),
            Phase::Idle => Some(Rank::Active),
            Phase::New | Phase::Writing | Phase::Head | Phase::Body if lasts >= SLOW_AFTER => {
                Some(Rank::Slow)
            }
            Phase::New | Phase::Writing | Phase::Head | Phase::Body => Some(Rank::UnderWay),
        }
    }

    /// Whether a connection that ends for another serves one request before: the one that has
    /// just arrived.
    pub(super) fn serves_a_last_one(&self) -> bool {
        match self.rank() {
            None | Some(Rank::Unused | Rank::Active) => true,
            Some(Rank::UnderWay | Rank::Slow) => self.phase() == Phase::New,
            Some(Rank::ServedLong) => false,
        }
    }

    pub(super) fn phase(&self) -> Phase {
        let number = self.state.load(Ordering::Relaxed) & 7;
        PHASES[usize::try_from(number).expect("three bits")]
    }

    fn since(&self) -> u64 {
        self.state.load(Ordering::Relaxed) >> 3
    }

    /// Ends when the connection is to end for another one.
    pub(super) async fn ended(&self) {
        self.ended.cancelled().await;
    }
}

/// All that are open.
#[derive(Debug)]
pub(super) struct Connections {
    limit: usize,
    for_health: usize,
    began: Instant,
    open: Mutex<Open>,
    closed: Notify,
    kept: AtomicUsize,
}

#[derive(Debug)]
pub(super) struct KeptBytes {
    connections: Arc<Connections>,
    bytes: usize,
}

#[derive(Debug, Default)]
struct Open {
    next: u64,
    connections: BTreeMap<u64, Arc<Activity>>,
}

/// A connection that is open. It is closed when this is dropped.
#[derive(Debug)]
pub(super) struct Connection {
    connections: Arc<Connections>,
    number: u64,
    pub(super) activity: Arc<Activity>,
    /// Whether it is for health checks alone.
    pub(super) is_for_health: bool,
}

impl Connections {
    pub(super) fn new(limit: usize, for_health: usize) -> Arc<Self> {
        Arc::new(Self {
            limit,
            for_health,
            began: Instant::now(),
            open: Mutex::default(),
            closed: Notify::new(),
            kept: AtomicUsize::new(0),
        })
    }

    /// Waits until there is room for a connection: not at all, as long as another connection can end.
    pub(super) async fn open(self: &Arc<Self>) -> Connection {
        loop {
            let closed = self.closed.notified();
            if let Some(connection) = self.try_open() {
                return connection;
            }
            closed.await;
        }
    }

    /// A connection, if there is room for one, or one can end for it.
    pub(super) fn try_open(self: &Arc<Self>) -> Option<Connection> {
        let mut open = self.lock();
        if open.connections.len() >= self.limit {
            open.end_one(|_| true);
        }
        let is_for_health = open.connections.len() >= self.limit;
        if open.connections.len() >= self.limit + self.for_health {
            return None;
        }
        let number = open.next;
        open.next += 1;
        let activity = Activity::new(self.began);
        open.connections.insert(number, Arc::clone(&activity));
        drop(open);
        Some(Connection {
            connections: Arc::clone(self),
            number,
            activity,
            is_for_health,
        })
    }

    /// Ends one, where the system has no room for another.
    pub(super) fn end_one(&self) {
        self.lock().end_one(|_| true);
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Open {
    /// Ends the first connection by [`Rank`] whose phase `is_meant`.
    fn end_one(&mut self, is_meant: impl Fn(Phase) -> bool) {
        let waiting = self.connections.iter().filter_map(|(number, activity)| {
            let rank = activity.rank().filter(|_| is_meant(activity.phase()))?;
            Some((rank, activity.since(), *number))
        });
        let number = waiting.min().map(|(_, _, number)| number);
        if let Some(activity) = number.and_then(|number| self.connections.remove(&number)) {
            activity.ended.cancel();
        }
    }
}

impl Connection {
    /// A count of what the connection keeps.
    pub(super) fn kept_bytes(&self) -> KeptBytes {
        KeptBytes {
            connections: Arc::clone(&self.connections),
            bytes: 0,
        }
    }
}

impl KeptBytes {
    /// Sets how many bytes the connection keeps.
    pub(super) fn set(&mut self, bytes: usize) {
        let kept = &self.connections.kept;
        let before = std::mem::replace(&mut self.bytes, bytes);
        if bytes <= before {
            kept.fetch_sub(before - bytes, Ordering::Relaxed);
        } else if kept.fetch_add(bytes - before, Ordering::Relaxed) > KEPT_BYTES {
            self.connections
                .lock()
                .end_one(|phase| matches!(phase, Phase::Head | Phase::Body));
        }
    }
}

impl Drop for KeptBytes {
    fn drop(&mut self) {
        self.set(0);
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.connections.lock().connections.remove(&self.number);
        self.connections.closed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn is_ended(connection: &Connection) -> bool {
        connection.activity.ended.is_cancelled()
    }

    /// Connections that came to their phases one after the other, and how long ago the last one did.
    async fn open_all(
        connections: &Arc<Connections>,
        phases: &[(Phase, Duration)],
    ) -> Vec<Connection> {
        let mut open = Vec::new();
        for (phase, then) in phases {
            let connection = connections.open().await;
            connection.activity.enter(*phase);
            tokio::time::advance(*then).await;
            open.push(connection);
        }
        open
    }

    /// In which order they end for new ones, which are all served at once.
    fn order_of_ends(connections: &Arc<Connections>, open: &[Connection]) -> Vec<usize> {
        let (mut order, mut later) = (Vec::new(), Vec::new());
        while let Some(connection) = connections.try_open() {
            connection.activity.enter(Phase::Served);
            later.push(connection);
            let ended = (0..open.len()).filter(|index| is_ended(&open[*index]));
            order.extend(
                ended
                    .filter(|index| !order.contains(index))
                    .collect::<Vec<_>>(),
            );
        }
        order
    }

    #[tokio::test(start_paused = true)]
    async fn the_slow_end_first_then_the_long_idle_and_last_those_that_are_served_for_long() {
        let connections = Connections::new(9, 0);
        let soon = Duration::from_millis(100);
        let phases = [
            (Phase::Served, soon),
            (Phase::Idle, IDLE_AFTER),
            (Phase::Body, soon),
            (Phase::New, soon),
            (Phase::Head, soon),
            (Phase::Writing, SLOW_AFTER),
            (Phase::Idle, soon),
            (Phase::Body, soon),
            (Phase::Served, soon),
        ];
        let open = open_all(&connections, &phases).await;
        let order = order_of_ends(&connections, &open);
        assert_eq!(order, [2, 3, 4, 5, 1, 7, 6, 0]);
        assert!(!is_ended(&open[8]));
        assert!(!open[0].activity.serves_a_last_one() && open[8].activity.serves_a_last_one());
    }

    /// A client that sends an event now and then over one connection, while others open as many as
    /// there are, at once or slowly.
    #[tokio::test(start_paused = true)]
    async fn a_connection_that_is_used_survives_those_that_never_finish_a_request() {
        for phase in [Phase::New, Phase::Head, Phase::Body, Phase::Writing] {
            for pause in [Duration::ZERO, Duration::from_millis(20)] {
                let connections = Connections::new(100, 0);
                let honest = connections.open().await;
                let mut hostile = Vec::new();
                for number in 0..1_000 {
                    let connection = connections.open().await;
                    connection.activity.enter(phase);
                    hostile.push(connection);
                    tokio::time::advance(pause).await;
                    if number % 20 == 0 {
                        honest.activity.enter(Phase::Served);
                        honest.activity.enter(Phase::Idle);
                    }
                }
                assert!(!is_ended(&honest), "{phase:?} {pause:?}");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_connection_is_at_counts_from_when_it_came_to_it() {
        let connections = Connections::new(2, 0);
        let (older, younger) = (connections.open().await, connections.open().await);
        for connection in [&younger, &older] {
            tokio::time::advance(Duration::from_secs(1)).await;
            connection.activity.enter(Phase::Head);
        }
        tokio::time::advance(Duration::from_secs(1)).await;
        younger.activity.enter(Phase::Head);
        drop(connections.open().await);
        assert!(is_ended(&younger) && !is_ended(&older));
    }

    #[tokio::test(start_paused = true)]
    async fn where_heads_take_too_much_memory_the_slowest_ends() {
        let connections = Connections::new(10, 0);
        let mut open = Vec::new();
        for phase in [Phase::Idle, Phase::Head, Phase::Head, Phase::Served] {
            let connection = connections.open().await;
            tokio::time::advance(Duration::from_secs(1)).await;
            connection.activity.enter(phase);
            open.push((connection.kept_bytes(), connection));
        }
        open[1].0.set(KEPT_BYTES);
        open[2].0.set(1);
        assert!(open.iter().all(|(_, connection)| !is_ended(connection)));
        open[2].0.set(2);
        let ended: Vec<_> = open.iter().map(|(_, one)| is_ended(one)).collect();
        assert_eq!(ended, [false, true, false, false]);
        open.clear();
        assert_eq!(connections.kept.load(Ordering::Relaxed), 0);
    }

    #[tokio::test]
    async fn health_has_connections_of_its_own_where_all_others_are_served() {
        let connections = Connections::new(2, 1);
        let mut served = Vec::new();
        for _ in 0..2 {
            let connection = connections.open().await;
            assert!(!connection.is_for_health);
            connection.activity.enter(Phase::Served);
            served.push(connection);
        }
        let health = connections.open().await;
        assert!(health.is_for_health);
        // One for health that has nothing to do ends like any other.
        let next = connections.open().await;
        assert!(is_ended(&health) && next.is_for_health);
        drop(served);
        assert!(!connections.open().await.is_for_health);
    }
}
