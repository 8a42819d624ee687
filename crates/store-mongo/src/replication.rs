//! How far a majority is behind the primary, as the primary sees it.

use async_trait::async_trait;
use bson::{Document, doc};
use sampler_store::{Replication, StoreError};

use crate::MongoStore;

#[async_trait]
impl Replication for MongoStore {
    async fn commit_lag(&self) -> Result<Option<i64>, StoreError> {
        let database = self.link.database.clone();
        let call = async move { database.run_command(doc! { "hello": 1 }).await };
        let hello = self.link.run(call).await?;
        Ok(lag_in(&hello))
    }
}

/// The primary dates its last write, and the last one that a majority has. Both are in whole seconds.
/// On an idle set, the last write is one of its own from seconds ago, which all have.
fn lag_in(hello: &Document) -> Option<i64> {
    let last = hello.get_document("lastWrite").ok()?;
    let of_all = last.get_datetime("lastWriteDate").ok()?;
    let of_majority = last.get_datetime("majorityWriteDate").ok()?;
    let lag = of_all.timestamp_millis() - of_majority.timestamp_millis();
    Some(lag.max(0))
}

#[cfg(test)]
mod tests {
    use bson::DateTime;

    use super::*;

    #[test]
    fn the_lag_is_between_the_last_write_and_that_of_the_majority() {
        let hello = |last: i64, majority: i64| {
            doc! { "lastWrite": {
                "lastWriteDate": DateTime::from_millis(last),
                "majorityWriteDate": DateTime::from_millis(majority),
            } }
        };
        assert_eq!(lag_in(&hello(30_000, 5_000)), Some(25_000));
        assert_eq!(lag_in(&hello(30_000, 30_000)), Some(0));
        assert_eq!(lag_in(&doc! { "msg": "isdbgrid" }), None);
    }
}
