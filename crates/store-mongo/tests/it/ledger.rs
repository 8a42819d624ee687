//! The ledger in MongoDB: with documents that nobody can read, and what of it expires when.

use bson::{Bson, doc};
use sampler_domain::{Entry, Span, SpanId};
use sampler_store::{Ledger, Reading};
use sampler_store_mongo::MongoStore;
use sampler_store_testing::support::{NOW, acceptance, finished, must_plan, started};

use crate::support::{document, store_and_spans, usages_beside};

const HOUR: i64 = 3_600_000;
const DAY: i64 = 24 * HOUR;

async fn planned(store: &MongoStore, name: &str) -> Span {
    let span = started(store, name, name, -DAY).await;
    must_plan(store, &span, -HOUR).await
}

fn entry(span: &Span) -> Entry {
    let acceptance = acceptance(7, None);
    Entry::of_accepted(span, acceptance).unwrap()
}

/// What the design says of a document, and nothing that is null.
#[tokio::test(flavor = "multi_thread")]
async fn an_entry_is_one_document() {
    let (store, spans) = store_and_spans("ledger_document").await;
    let span = planned(&store, "a").await;
    let entry = entry(&span);
    store.write_entry(entry.clone(), 5 * DAY).await.unwrap();
    let document = document(&usages_beside(&spans), &entry).await;
    let SpanId::ObjectId(id) = span.id else {
        panic!("an ObjectId");
    };
    let id = bson::oid::ObjectId::from_bytes(id);
    assert_eq!(document.get_object_id("span").unwrap(), id);
    let number = |name: &str| document.get_i64(name).unwrap();
    assert_eq!(number("duration"), 23 * HOUR);
    assert_eq!(number("timestamp"), NOW - 25 * HOUR / 2);
    assert_eq!(number("accepted_at"), NOW + 7);
    assert_eq!(number("lifetime"), 5 * DAY);
    assert_eq!(document.get_str("state").unwrap(), "accepted");
    for absent in [
        "expires_at",
        "refused_at",
        "skipped_at",
        "location",
        "error",
        "ask_again",
        "cause",
    ] {
        assert!(!document.contains_key(absent), "{absent}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn entries_expire_a_lifetime_after_their_answer_once_their_span_is_complete() {
    let (store, spans) = store_and_spans("ledger_expiry").await;
    let usages = usages_beside(&spans);
    let (ending, other) = (planned(&store, "a").await, planned(&store, "b").await);
    let lifetime = 4_000 * DAY;
    for span in [&ending, &other] {
        store.write_entry(entry(span), lifetime).await.unwrap();
    }
    store.expire(&[finished(&ending)]).await.unwrap();
    let expires_at = document(&usages, &entry(&ending)).await;
    let expires_at = expires_at.get_datetime("expires_at").unwrap();
    assert_eq!(expires_at.timestamp_millis(), NOW + 7 + lifetime);
    let open = document(&usages, &entry(&other)).await;
    assert!(!open.contains_key("expires_at"));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_entry_stands_in_nobodys_way() {
    let (store, spans) = store_and_spans("ledger_unreadable").await;
    let usages = usages_beside(&spans);
    let span = planned(&store, "a").await;
    let good = entry(&span);
    store.write_entry(good.clone(), 4_000 * DAY).await.unwrap();
    for (number, broken) in [
        doc! { "$set": { "_id": "no state" }, "$unset": { "state": "" } },
        doc! { "$set": { "_id": "odd state", "state": "lost" } },
        doc! { "$set": { "_id": "odd moment", "accepted_at": "yesterday", "version": 9_i64 } },
        doc! { "$set": { "_id": "no lifetime", "lifetime": Bson::Null, "interval": 7 } },
    ]
    .into_iter()
    .enumerate()
    {
        let mut document = document(&usages, &good).await;
        document.insert("version", i64::try_from(number).unwrap() + 10);
        document.extend(broken.get_document("$set").unwrap().clone());
        if broken.contains_key("$unset") {
            document.remove("state");
        }
        usages.insert_one(document).await.unwrap();
    }
    let page = store
        .usages(&span.id, &span.target, None, 10)
        .await
        .unwrap();
    assert_eq!(
        (page.entries.as_slice(), page.unreadable),
        (&[good.clone()][..], 4)
    );
    let first = store.usages(&span.id, &span.target, None, 2).await.unwrap();
    assert_eq!((first.entries.len(), first.unreadable), (1, 1));
    let rest = store.usages(&span.id, &span.target, first.next, 10);
    assert_eq!(rest.await.unwrap().unreadable, 3);
    // What says no moment stays, for somebody to look at; its span can be removed all the same.
    store.expire(&[finished(&span)]).await.unwrap();
    let with_expiry = doc! { "expires_at": { "$exists": true } };
    assert_eq!(usages.count_documents(with_expiry).await.unwrap(), 3);
    // A usage whose entry cannot be read is not written a second time.
    let again = Entry {
        usage_guid: "odd state".to_owned(),
        ..good
    };
    assert!(store.write_entry(again, DAY).await.is_err());
    assert_eq!(usages.count_documents(doc! {}).await.unwrap(), 5);
}
