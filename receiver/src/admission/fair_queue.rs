//! A fair queue: one queue for each client, drawn in turn. Pure: the time is an argument.
//!
//! Turns are those of deficit round robin: at its turn a client may take entries worth a quantum, and
//! what it could not use counts at its next turn. So a client with one entry waits for one turn of
//! the others, however many entries they have.
//!
//! If the queues weigh too much in all, or if entries keep waiting longer than they should, the
//! heaviest queue loses its oldest entry, as in FQ-CoDel (RFC 8290). So only the client that causes
//! the wait is refused.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use tokio::time::Instant;

/// The longest turn that an entry can take, in quanta. It bounds the work of one draw.
const TURNS_MAX: usize = 64;

/// The client of an entry, as a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Client(pub u64);

/// How much a queue holds, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct QueueLimits {
    /// The weight of all entries, at the most.
    pub weight: usize,
    /// The weight that a client may take at one turn.
    pub quantum: usize,
    /// How long an entry should wait at the most.
    pub target: Duration,
    /// For how long entries of one client have to wait longer than that before one is given up.
    pub interval: Duration,
}

/// The entries of all clients.
#[derive(Debug)]
pub struct FairQueue<T> {
    limits: QueueLimits,
    clients: BTreeMap<Client, ClientQueue<T>>,
    /// The clients that have entries. The first has its turn now.
    turns: VecDeque<Client>,
    weight: usize,
    length: usize,
    next_number: u64,
}

#[derive(Debug)]
struct ClientQueue<T> {
    entries: VecDeque<Entry<T>>,
    weight: usize,
    /// The weight that the client may still take at this turn.
    credit: usize,
    /// Set while entries are late: when the next entry is given up, and how many have been given up
    /// since they became late. Cleared as soon as an entry is drawn in time.
    late: Option<(Instant, u32)>,
}

#[derive(Debug)]
struct Entry<T> {
    number: u64,
    weight: usize,
    since: Instant,
    item: T,
}

/// Names one entry.
#[derive(Clone, Copy, Debug)]
pub struct Ticket {
    client: Client,
    number: u64,
}

impl<T> FairQueue<T> {
    pub fn new(limits: QueueLimits) -> Self {
        Self {
            limits,
            clients: BTreeMap::new(),
            turns: VecDeque::new(),
            weight: 0,
            length: 0,
            next_number: 0,
        }
    }

    pub fn len(&self) -> usize {
        self.length
    }

    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Adds an entry. Returns the entries that were given up to make room, perhaps the new one itself.
    pub fn push(
        &mut self,
        client: Client,
        weight: usize,
        now: Instant,
        item: T,
    ) -> (Ticket, Vec<T>) {
        let number = self.next_number;
        self.next_number += 1;
        let quantum = self.limits.quantum;
        let queue = self.clients.entry(client).or_insert_with(|| {
            self.turns.push_back(client);
            ClientQueue {
                entries: VecDeque::new(),
                weight: 0,
                credit: quantum,
                late: None,
            }
        });
        queue.entries.push_back(Entry {
            number,
            weight,
            since: now,
            item,
        });
        queue.weight += weight;
        self.weight += weight;
        self.length += 1;
        let mut shed = Vec::new();
        // An entry that is heavier than the limit waits alone. Otherwise it could never be served.
        while self.weight > self.limits.weight && self.length > 1 {
            shed.extend(self.shed());
        }
        (Ticket { client, number }, shed)
    }

    /// Takes the entry whose turn it is, if its weight `fits`. Gives up another entry where entries
    /// have been late for too long.
    pub fn pop(&mut self, now: Instant, fits: impl Fn(usize) -> bool) -> (Option<T>, Option<T>) {
        let Some(client) = self.turn() else {
            return (None, None);
        };
        let limits = self.limits;
        let Some(queue) = self.clients.get_mut(&client) else {
            return (None, None);
        };
        let Some(entry) = queue.entries.pop_front_if(|entry| fits(entry.weight)) else {
            return (None, None);
        };
        queue.credit -= limits.turn(entry.weight);
        let is_late = queue.is_late(now.duration_since(entry.since), now, &limits);
        self.taken(client, entry.weight);
        (Some(entry.item), is_late.then(|| self.shed()).flatten())
    }

    /// Gives the next turn to the client that has `spent` the least; among equals, to the one whose
    /// turn comes first.
    pub fn prefer_least(&mut self, spent: impl Fn(Client) -> u64) {
        let clients = self.turns.iter().enumerate();
        let least = clients.min_by_key(|(_, client)| spent(**client));
        let Some(position) = least.map(|(position, _)| position) else {
            return;
        };
        let Some(client) = self.turns.remove(position) else {
            return;
        };
        self.turns.push_front(client);
        if let Some(queue) = self.clients.get_mut(&client) {
            queue.credit = queue.credit.max(self.limits.quantum);
        }
    }

    /// Removes an entry at any position.
    pub fn remove(&mut self, ticket: Ticket) -> Option<T> {
        let queue = self.clients.get_mut(&ticket.client)?;
        let position = queue
            .entries
            .binary_search_by_key(&ticket.number, |entry| entry.number);
        let entry = queue.entries.remove(position.ok()?)?;
        self.taken(ticket.client, entry.weight);
        Some(entry.item)
    }

    /// Passes the turn on to the next client that may take its first entry.
    fn turn(&mut self) -> Option<Client> {
        loop {
            let client = *self.turns.front()?;
            let queue = self.clients.get_mut(&client)?;
            if self.limits.turn(queue.entries.front()?.weight) <= queue.credit {
                return Some(client);
            }
            queue.credit += self.limits.quantum;
            self.turns.rotate_left(1);
        }
    }

    /// Gives up the oldest entry of the heaviest queue.
    fn shed(&mut self) -> Option<T> {
        let heaviest = self.clients.iter().max_by_key(|(_, queue)| queue.weight);
        let client = *heaviest?.0;
        let entry = self.clients.get_mut(&client)?.entries.pop_front()?;
        self.taken(client, entry.weight);
        Some(entry.item)
    }

    /// Notes that an entry of this weight is gone. A client without entries is forgotten.
    fn taken(&mut self, client: Client, weight: usize) {
        self.weight -= weight;
        self.length -= 1;
        let Some(queue) = self.clients.get_mut(&client) else {
            return;
        };
        queue.weight -= weight;
        if queue.entries.is_empty() {
            self.clients.remove(&client);
            if self.turns.front() == Some(&client) {
                self.turns.pop_front();
            } else {
                self.turns.retain(|other| *other != client);
            }
        }
    }
}

impl QueueLimits {
    /// The part of its client's turn that an entry takes.
    fn turn(&self, weight: usize) -> usize {
        weight.min(self.quantum * TURNS_MAX)
    }
}

impl<T> ClientQueue<T> {
    /// Whether an entry must be given up now, after one was drawn that had `waited` this long. The
    /// longer entries are late, the more often one is given up.
    fn is_late(&mut self, waited: Duration, now: Instant, limits: &QueueLimits) -> bool {
        if waited < limits.target {
            self.late = None;
            return false;
        }
        let (next, count) = self.late.get_or_insert((now + limits.interval, 0));
        if now < *next {
            return false;
        }
        *count += 1;
        *next = now + limits.interval.div_f64(f64::from(*count + 1).sqrt());
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: QueueLimits = QueueLimits {
        weight: 1_000,
        quantum: 10,
        target: Duration::from_millis(500),
        interval: Duration::from_secs(1),
    };

    fn after(begin: Instant, millis: u64) -> Instant {
        begin + Duration::from_millis(millis)
    }

    /// Draws all that is there, in its order.
    fn drain(queue: &mut FairQueue<&'static str>, now: Instant) -> Vec<&'static str> {
        std::iter::from_fn(|| queue.pop(now, |_| true).0).collect()
    }

    #[test]
    fn a_client_with_one_entry_waits_for_one_turn_of_the_others() {
        let (mut queue, now) = (FairQueue::new(LIMITS), Instant::now());
        for _ in 0..50 {
            queue.push(Client(1), 10, now, "flood");
        }
        queue.push(Client(2), 10, now, "quiet");
        let drawn = drain(&mut queue, now);
        assert_eq!(drawn[..3], ["flood", "quiet", "flood"]);
        assert_eq!(drawn.len(), 51);
        assert!(queue.is_empty() && queue.turns.is_empty() && queue.clients.is_empty());
    }

    #[test]
    fn who_has_spent_least_is_next_whatever_the_others_wait_for() {
        let (mut queue, now) = (FairQueue::new(LIMITS), Instant::now());
        for client in [1, 2, 3, 4] {
            queue.push(Client(client), 10, now, "first");
            queue.push(
                Client(client),
                10,
                now,
                if client == 3 { "quiet" } else { "flood" },
            );
        }
        let spent = |client: Client| if client == Client(3) { 0 } else { 5_000 };
        let mut drawn = Vec::new();
        while !queue.is_empty() {
            queue.prefer_least(spent);
            drawn.extend(queue.pop(now, |_| true).0);
        }
        assert_eq!(drawn[..2], ["first", "quiet"]);
        assert_eq!(drawn.len(), 8);
    }

    #[test]
    fn shares_are_of_weight_and_not_of_entries() {
        let (mut queue, now) = (FairQueue::new(LIMITS), Instant::now());
        for _ in 0..10 {
            queue.push(Client(1), 40, now, "heavy");
        }
        for _ in 0..40 {
            queue.push(Client(2), 10, now, "light");
        }
        let drawn = drain(&mut queue, now);
        let heavy = drawn[..25].iter().filter(|&&item| item == "heavy").count();
        assert!((4..=6).contains(&heavy), "{drawn:?}");
    }

    #[test]
    fn an_entry_heavier_than_many_turns_is_drawn_all_the_same() {
        let limits = QueueLimits {
            weight: usize::MAX,
            ..LIMITS
        };
        let (mut queue, now) = (FairQueue::new(limits), Instant::now());
        queue.push(Client(1), 1_000_000, now, "huge");
        queue.push(Client(2), 10, now, "light");
        assert_eq!(drain(&mut queue, now), ["light", "huge"]);
    }

    #[test]
    fn what_does_not_fit_keeps_its_turn() {
        let (mut queue, now) = (FairQueue::new(LIMITS), Instant::now());
        queue.push(Client(1), 9, now, "heavy");
        queue.push(Client(2), 1, now, "light");
        for _ in 0..5 {
            assert_eq!(queue.pop(now, |weight| weight < 5), (None, None));
        }
        assert_eq!(drain(&mut queue, now), ["heavy", "light"]);
    }

    #[test]
    fn too_much_weight_costs_the_heaviest_client_its_oldest_entries() {
        let (mut queue, now) = (FairQueue::new(LIMITS), Instant::now());
        queue.push(Client(1), 300, now, "quiet");
        queue.push(Client(2), 100, now, "first of the flood");
        for _ in 0..6 {
            assert_eq!(queue.push(Client(2), 100, now, "flood").1, [""; 0]);
        }
        assert_eq!(
            queue.push(Client(2), 1, now, "one more").1,
            ["first of the flood"]
        );
        assert_eq!(queue.push(Client(3), 95, now, "another").1, [""; 0]);
        assert_eq!(queue.push(Client(3), 100, now, "and another").1, ["flood"]);
        assert_eq!(queue.len(), 9);
        assert_eq!(
            queue.push(Client(4), 2_000, now, "too heavy").1,
            ["too heavy"]
        );
        let mut queue = FairQueue::new(LIMITS);
        assert_eq!(queue.push(Client(4), 2_000, now, "heavy alone").1, [""; 0]);
        assert_eq!(queue.push(Client(1), 1, now, "one").1, ["heavy alone"]);
        assert_eq!(drain(&mut queue, now), ["one"]);
    }

    #[test]
    fn entries_that_are_late_for_too_long_cost_the_heaviest_client_one_each_interval_and_more_often()
     {
        let (mut queue, begin) = (FairQueue::new(LIMITS), Instant::now());
        for _ in 0..90 {
            queue.push(Client(1), 10, begin, "flood");
        }
        let mut shed_at = Vec::new();
        for tick in 0..60 {
            let now = after(begin, tick * 100);
            let (drawn, shed) = queue.pop(now, |_| true);
            assert_eq!(drawn, Some("flood"));
            shed_at.extend(shed.map(|_| tick));
        }
        // Late from 500 ms on; the first after an interval, then ever more often.
        assert_eq!(shed_at[0], 15);
        let gaps: Vec<_> = shed_at.windows(2).map(|two| two[1] - two[0]).collect();
        assert!(gaps.windows(2).all(|two| two[1] <= two[0]), "{shed_at:?}");
        assert!(shed_at.len() > 5, "{shed_at:?}");
    }

    #[test]
    fn nobody_loses_an_entry_to_a_wait_that_another_client_causes() {
        let (mut queue, begin) = (FairQueue::new(LIMITS), Instant::now());
        for _ in 0..80 {
            queue.push(Client(1), 10, begin, "flood");
        }
        for tick in 0..40 {
            let now = after(begin, tick * 200);
            queue.push(Client(2), 10, now, "quiet");
            for _ in 0..2 {
                let (_, shed) = queue.pop(now, |_| true);
                assert!(shed.is_none_or(|item| item == "flood"));
            }
        }
    }

    #[test]
    fn a_wait_that_was_long_for_a_moment_costs_nobody_anything() {
        let (mut queue, begin) = (FairQueue::new(LIMITS), Instant::now());
        for round in 0..20 {
            let pushed = after(begin, round * 1_000);
            for _ in 0..3 {
                queue.push(Client(1), 10, pushed, "burst");
            }
            for wait in [100, 600, 900] {
                let now = after(pushed, wait);
                assert_eq!(queue.pop(now, |_| true), (Some("burst"), None));
            }
        }
    }

    #[test]
    fn an_entry_that_is_removed_is_gone_and_the_others_keep_their_order() {
        let (mut queue, now) = (FairQueue::new(LIMITS), Instant::now());
        queue.push(Client(1), 10, now, "a");
        let (ticket, _) = queue.push(Client(1), 10, now, "b");
        queue.push(Client(1), 10, now, "c");
        let (alone, _) = queue.push(Client(2), 10, now, "d");
        assert_eq!(queue.remove(ticket), Some("b"));
        assert_eq!(queue.remove(ticket), None);
        assert_eq!(queue.remove(alone), Some("d"));
        assert_eq!(drain(&mut queue, now), ["a", "c"]);
        assert_eq!((queue.weight, queue.len()), (0, 0));
    }
}
