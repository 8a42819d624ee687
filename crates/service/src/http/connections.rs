//! The connections that are open, and which of them ends when there is no room for another.
//!
//! A new connection always gets its turn: for it, an idle one ends, the longest first, or else one
//! whose client is slow with a request or in taking an answer. Where all are being served, the few
//! connections that are kept for the purpose are for health checks alone.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Bytes that all connections together keep of requests that have not arrived to the end of their
/// heads, or that were sent ahead. A connection beyond that ends another.
const KEPT_BYTES: usize = 16 << 20;

/// What a connection is at; those that come first end first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    /// It has sent nothing of a request.
    Idle,
    /// It has not taken all of an answer.
    Writing,
    /// It has sent a part of a head, or of what stands before one.
    Head,
    /// It has sent a part of a body.
    Body,
    /// A whole request is being served.
    Served,
}

const PHASES: [Phase; 5] = [
    Phase::Idle,
    Phase::Writing,
    Phase::Head,
    Phase::Body,
    Phase::Served,
];

/// What one connection is at, and since when.
#[derive(Debug)]
pub(super) struct Activity {
    began: Instant,
    /// The phase and the ms at which it began, in one number.
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
        activity.enter(Phase::Idle);
        Arc::new(activity)
    }

    /// Notes what the connection is at; it is at it since it came to it.
    pub(super) fn enter(&self, phase: Phase) {
        if self.phase() == phase && self.state.load(Ordering::Relaxed) != 0 {
            return;
        }
        let millis = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX >> 8);
        self.state
            .store((millis + 1) << 3 | phase as u64, Ordering::Relaxed);
    }

    /// What the connection is at.
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

/// Bytes that one connection keeps.
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

    /// Waits until there is room for a connection. As long as one can end for it, that is at once.
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
            open.end_one(Phase::Idle);
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
        self.lock().end_one(Phase::Idle);
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Open {
    /// Ends the one that is of least use: idle, or slow, for the longest. One that comes before `from`
    /// does not end.
    fn end_one(&mut self, from: Phase) {
        let waiting = self.connections.iter().filter_map(|(number, activity)| {
            let phase = activity.phase();
            (from..Phase::Served)
                .contains(&phase)
                .then(|| (phase, activity.since(), *number))
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
    /// The connection keeps so many from now on.
    pub(super) fn set(&mut self, bytes: usize) {
        let kept = &self.connections.kept;
        let before = std::mem::replace(&mut self.bytes, bytes);
        if bytes <= before {
            kept.fetch_sub(before - bytes, Ordering::Relaxed);
        } else if kept.fetch_add(bytes - before, Ordering::Relaxed) > KEPT_BYTES {
            self.connections.lock().end_one(Phase::Head);
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

    #[tokio::test(start_paused = true)]
    async fn the_longest_idle_ends_first_then_the_slow_and_never_one_that_is_served() {
        let connections = Connections::new(5, 0);
        let mut open = Vec::new();
        for phase in [
            Phase::Served,
            Phase::Body,
            Phase::Head,
            Phase::Writing,
            Phase::Idle,
        ] {
            let connection = connections.open().await;
            tokio::time::advance(Duration::from_secs(1)).await;
            connection.activity.enter(phase);
            open.push(connection);
        }
        let mut later = Vec::new();
        for expected in [4, 3, 2, 1] {
            assert!(!is_ended(&open[expected]));
            let connection = connections.open().await;
            connection.activity.enter(Phase::Served);
            assert!(is_ended(&open[expected]), "{expected}");
            later.push(connection);
        }
        assert!(!is_ended(&open[0]));
        assert!(connections.try_open().is_none());
        drop(later.pop());
        assert!(connections.try_open().is_some());
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
