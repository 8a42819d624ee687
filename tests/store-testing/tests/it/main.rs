//! The store in memory keeps the contract of stores.

#![allow(clippy::unwrap_used, reason = "a test may end with a panic")]

use std::sync::Arc;

use sampler_store_testing::memory::MemoryStore;
use sampler_store_testing::support::{Shared, at};

fn store() -> Shared {
    Arc::new(MemoryStore::new(|| at(0)))
}

sampler_store_testing::store_contract_tests!(std::future::ready(store()));
