//! A budget of bytes that clients share while their bodies are in memory.
//!
//! A client may hold as much as is still free (a dynamic threshold, as switches share the memory of
//! their ports). So one client alone gets half of the budget, two that fill it together a third each; whatever the
//! others hold, something is left for a client that holds nothing.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Client, TurnedAway};

/// Bytes that are shared.
#[derive(Debug)]
pub(crate) struct Budget {
    total: usize,
    used: Mutex<Used>,
}

#[derive(Debug, Default)]
struct Used {
    bytes: usize,
    clients: BTreeMap<Client, usize>,
}

/// Bytes that a request holds. They are free again when this is dropped.
#[derive(Debug)]
pub(crate) struct Charge {
    budget: Arc<Budget>,
    client: Client,
    bytes: usize,
}

impl Budget {
    pub(crate) fn new(total: usize) -> Arc<Self> {
        Arc::new(Self {
            total,
            used: Mutex::default(),
        })
    }

    /// A charge of nothing, which can grow.
    pub(crate) fn charge(self: &Arc<Self>, client: Client) -> Charge {
        Charge {
            budget: Arc::clone(self),
            client,
            bytes: 0,
        }
    }

    fn used(&self) -> MutexGuard<'_, Used> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Charge {
    /// Takes `more` bytes.
    pub(crate) fn grow(&mut self, more: usize) -> Result<(), TurnedAway> {
        let mut used = self.budget.used();
        let held = used.clients.get(&self.client).copied().unwrap_or_default() + more;
        if held > self.budget.total.saturating_sub(used.bytes + more) {
            return Err(TurnedAway::Memory);
        }
        used.bytes += more;
        used.clients.insert(self.client, held);
        self.bytes += more;
        Ok(())
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        if self.bytes == 0 {
            return;
        }
        let mut used = self.budget.used();
        used.bytes -= self.bytes;
        let left = used
            .clients
            .get(&self.client)
            .map_or(0, |held| held - self.bytes);
        if left == 0 {
            used.clients.remove(&self.client);
        } else {
            used.clients.insert(self.client, left);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How much a client gets, asking for ten bytes again and again.
    fn fill(budget: &Arc<Budget>, client: u64) -> (usize, Charge) {
        let mut charge = budget.charge(Client(client));
        while charge.grow(10).is_ok() {}
        (charge.bytes, charge)
    }

    #[test]
    fn one_client_gets_half_and_the_next_half_of_the_rest() {
        let budget = Budget::new(1_000);
        let (first, of_first) = fill(&budget, 1);
        let (second, of_second) = fill(&budget, 2);
        let (third, _of_third) = fill(&budget, 3);
        assert_eq!((first, second, third), (500, 250, 120));
        let mut more = budget.charge(Client(1));
        assert_eq!(
            more.grow(1),
            Err(TurnedAway::Memory),
            "another request of the same client"
        );
        drop((of_first, of_second));
        assert!(more.grow(400).is_ok());
    }

    #[test]
    fn all_that_was_taken_is_free_again() {
        let budget = Budget::new(100);
        for _ in 0..10 {
            let charges: Vec<_> = (0..5).map(|client| fill(&budget, client).1).collect();
            drop(charges);
            let used = budget.used();
            assert_eq!((used.bytes, used.clients.len()), (0, 0));
        }
    }
}
