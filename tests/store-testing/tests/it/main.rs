//! The store in memory keeps the contract of stores.

#![allow(clippy::unwrap_used, reason = "a test may end with a panic")]

use std::sync::{Arc, Mutex};

use sampler_store::{Events, Work};
use sampler_store_testing::memory::MemoryStore;
use sampler_store_testing::support::{Shared, at};

#[tokio::test]
async fn a_slack_that_is_not_announced_again_counts_for_a_week() {
    let now = Arc::new(Mutex::new(at(0)));
    let clock = Arc::clone(&now);
    let store = MemoryStore::new(move || *clock.lock().unwrap());
    let week = 7 * 24 * 3_600_000;
    store.announce_slack(9).await.unwrap();
    store.announce_slack(5).await.unwrap();
    *now.lock().unwrap() = at(week);
    store.announce_slack(5).await.unwrap();
    assert_eq!(store.largest_slack().await.unwrap(), Some(9));
    *now.lock().unwrap() = at(week + 1);
    assert_eq!(store.largest_slack().await.unwrap(), Some(5));
    *now.lock().unwrap() = at(2 * week + 1);
    assert_eq!(store.largest_slack().await.unwrap(), None);
}

fn store() -> Shared {
    Arc::new(MemoryStore::new(|| at(0)))
}

sampler_store_testing::store_contract_tests!(std::future::ready(store()));
