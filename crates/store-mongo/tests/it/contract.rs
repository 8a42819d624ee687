//! The contract that both stores pass.

use std::sync::Arc;

use sampler_store_testing::support::Shared;

use crate::support::store_and_spans;

async fn store() -> Shared {
    Arc::new(store_and_spans("contract").await.0)
}

sampler_store_testing::store_contract_tests!(store());
