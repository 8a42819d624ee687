//! The store in memory: the confirmation of accepted usages.

use async_trait::async_trait;

use super::MemoryStore;
use crate::{Confirmation, Confirmations, StoreError, Unconfirmed, UnconfirmedQuery};

#[async_trait]
impl Confirmations for MemoryStore {
    async fn unconfirmed(&self, query: &UnconfirmedQuery) -> Result<Vec<Unconfirmed>, StoreError> {
        Ok(self.lock().table.unconfirmed(query))
    }

    async fn confirm(&self, confirmed: &[(Unconfirmed, Confirmation)]) -> Result<u64, StoreError> {
        let mut state = self.lock();
        let noted = confirmed
            .iter()
            .filter(|(read, confirmation)| state.table.confirm(read, confirmation));
        Ok(noted.count() as u64)
    }
}
