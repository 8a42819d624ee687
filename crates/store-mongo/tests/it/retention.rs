//! What the server removes by itself, and what is never removed.

use bson::{Bson, DateTime, doc};
use sampler_store::{Ledger, Work};
use sampler_store_testing::support::{at, completed, entry, finished, started};

use crate::support::{store_and_spans, usages_beside};

#[tokio::test(flavor = "multi_thread")]
async fn an_entry_is_removed_by_the_server_once_it_has_expired() {
    let (store, spans) = store_and_spans("retention").await;
    let span = started(&store, "a", "a", 0).await;
    let entry = entry(&span, 0, 1_000);
    store.write_entry(&entry, at(5_000), None).await.unwrap();
    // Written again, it expires as it was to.
    store.write_entry(&entry, at(9_000), None).await.unwrap();
    let usages = usages_beside(&spans);
    let kept = usages.find_one(doc! {}).await.unwrap().unwrap();
    let expires_at = DateTime::from_millis(at(5_000).as_millis());
    assert_eq!(kept.get("expires_at"), Some(&Bson::DateTime(expires_at)));
    let mut indexes = usages.list_indexes().await.unwrap();
    let mut expiries = Vec::new();
    while indexes.advance().await.unwrap() {
        let index = indexes.deserialize_current().unwrap();
        let after = index.options.and_then(|options| options.expire_after);
        expiries.extend(after.map(|after| (index.keys, after.as_secs())));
    }
    assert_eq!(expiries, [(doc! { "expires_at": 1 }, 0)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_span_that_is_no_longer_complete_is_not_removed() {
    let (store, spans) = store_and_spans("removal").await;
    let span = completed(&store, "a", -1_000).await;
    let found = store.completed_before(at(0), 10).await.unwrap();
    assert_eq!(found, [finished(&span)]);
    // An operator has something sent again meanwhile.
    let again = doc! { "$set": { "processing.complete": false } };
    spans.update_one(doc! {}, again).await.unwrap();
    assert_eq!(store.remove(&found).await.unwrap(), 0);
    let complete = doc! { "$set": { "processing.complete": true } };
    spans.update_one(doc! {}, complete).await.unwrap();
    assert_eq!(store.remove(&found).await.unwrap(), 1);
    assert_eq!(spans.count_documents(doc! {}).await.unwrap(), 0);
}
