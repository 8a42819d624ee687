//! The time that clients have recently spent on long operations, so that clients who spent less come
//! first.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use super::fair_queue::Client;

/// After this time half of what was spent is forgotten.
const HALF_LIFE: Duration = Duration::from_secs(30);

/// Less than this is nothing.
const LEAST: Duration = Duration::from_millis(10);

/// The time that each client has spent, as far as it counts yet.
#[derive(Debug, Default)]
pub(super) struct Spent(BTreeMap<Client, (Duration, Instant)>);

impl Spent {
    /// Adds what a client has just spent.
    pub(super) fn add(&mut self, client: Client, spent: Duration, now: Instant) {
        let before = self.of(client, now);
        self.0.insert(client, (before + spent, now));
        self.0
            .retain(|_, (spent, since)| remaining(*spent, *since, now) >= LEAST);
    }

    pub(super) fn of(&self, client: Client, now: Instant) -> Duration {
        let spent = self.0.get(&client);
        spent.map_or(Duration::ZERO, |(spent, since)| {
            remaining(*spent, *since, now)
        })
    }
}

fn remaining(spent: Duration, since: Instant, now: Instant) -> Duration {
    let lives = now.duration_since(since).as_secs_f64() / HALF_LIFE.as_secs_f64();
    spent.mul_f64(0.5_f64.powf(lives))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_spent_is_forgotten_by_halves_and_in_the_end() {
        let (mut spent, now) = (Spent::default(), Instant::now());
        let second = Duration::from_secs(1);
        spent.add(Client(1), second, now);
        assert_eq!(spent.of(Client(1), now), second);
        assert_eq!(spent.of(Client(1), now + HALF_LIFE), second / 2);
        assert_eq!(spent.of(Client(2), now), Duration::ZERO);
        spent.add(Client(1), second, now + HALF_LIFE);
        assert_eq!(spent.of(Client(1), now + HALF_LIFE), second * 3 / 2);
        spent.add(Client(2), second, now + HALF_LIFE * 20);
        assert_eq!(spent.0.len(), 1);
    }
}
