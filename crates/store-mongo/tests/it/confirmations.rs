//! What is still to be confirmed in MongoDB: when entries expire.

use bson::{Document, doc};
use sampler_domain::{Entry, EntryState, Span};
use sampler_store::{Confirmation, EntryKey, Ledger, Unconfirmed, UnconfirmedQuery};
use sampler_store_mongo::MongoStore;
use sampler_store_testing::support::{
    NOW, acceptance, at, everything, finished, must_plan, question, resend, started,
};

use crate::support::{document, store_and_spans, usages_beside};

const HOUR: i64 = 3_600_000;
const DAY: i64 = 24 * HOUR;

/// So long that no test sees anything expire.
const LIFETIME: i64 = 4_000 * DAY;

/// A span with an accepted usage that is to be asked for.
async fn accepted(store: &MongoStore, name: &str) -> (Span, Entry) {
    let span = started(store, name, name, -DAY).await;
    let span = must_plan(store, &span, -HOUR).await;
    let acceptance = acceptance(7, Some("https://abacus/usage/1"));
    let entry = Entry {
        question: Some(question(0, DAY)),
        ..Entry::of_accepted(&span, acceptance).unwrap()
    };
    store.write_entry(entry.clone(), LIFETIME).await.unwrap();
    (span, entry)
}

async fn note(store: &MongoStore, entry: &Entry, confirmation: Confirmation) {
    let read = Unconfirmed::of(entry).unwrap();
    assert_eq!(store.confirm(&[(read, confirmation)]).await.unwrap(), 1);
}

fn expires_at(document: &Document) -> Option<i64> {
    let expires_at = document.get_datetime("expires_at").ok()?;
    Some(expires_at.timestamp_millis())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_entry_expires_only_once_its_usage_is_confirmed() {
    let (store, spans) = store_and_spans("confirm_expiry").await;
    let usages = usages_beside(&spans);
    let counted = Confirmation::Counted { at: at(9) };
    let aside = Confirmation::SetAside {
        at: at(9),
        error: "closed".to_owned(),
        cause: "7d0e4b52-93c1-5f0a-8a6b-1f2c60d59e37".parse().unwrap(),
    };
    for (name, confirmation, from) in [
        ("a", counted, 9),
        ("b", aside, 9),
        ("c", Confirmation::GivenUp, 7),
    ] {
        let (span, entry) = accepted(&store, name).await;
        for _ in 0..2 {
            store.expire(&[finished(&span)]).await.unwrap();
        }
        let before = document(&usages, &entry).await;
        assert_eq!(expires_at(&before), None, "{before}");
        note(&store, &entry, confirmation).await;
        let after = document(&usages, &entry).await;
        assert_eq!(expires_at(&after), Some(NOW + from + LIFETIME), "{after}");
        assert!(!after.contains_key("ask_again"), "{after}");
    }
}

/// Its span is gone long since: what was sent again expires only once it is confirmed.
#[tokio::test(flavor = "multi_thread")]
async fn an_entry_that_was_sent_again_expires_only_once_it_is_confirmed() {
    let (store, spans) = store_and_spans("confirm_resent").await;
    let usages = usages_beside(&spans);
    let (span, entry) = accepted(&store, "a").await;
    store.expire(&[finished(&span)]).await.unwrap();
    let aside = Confirmation::SetAside {
        at: at(9),
        error: "closed".to_owned(),
        cause: "7d0e4b52-93c1-5f0a-8a6b-1f2c60d59e37".parse().unwrap(),
    };
    note(&store, &entry, aside).await;
    let resend = resend(7, EntryState::SetAside, 10);
    let key = EntryKey::of(&entry);
    assert!(store.mark_resend(&key, &resend).await.unwrap());
    let mut due = store.due_resends(at(10), 10).await.unwrap();
    let read = Entry {
        question: entry.question,
        ..due.remove(0)
    };
    let acceptance = acceptance(11, Some("$again"));
    assert!(store.accept_resent(&read, &acceptance).await.unwrap());
    store.end_resend(&key, resend.act, None).await.unwrap();
    let again = document(&usages, &entry).await;
    assert_eq!(expires_at(&again), None, "{again}");
    assert!(!again.contains_key("cause"), "{again}");
    note(&store, &entry, Confirmation::Counted { at: at(20) }).await;
    let counted = document(&usages, &entry).await;
    assert_eq!(expires_at(&counted), Some(NOW + 20 + LIFETIME));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_entry_of_an_open_span_does_not_expire_when_it_is_confirmed() {
    let (store, spans) = store_and_spans("confirm_open").await;
    let usages = usages_beside(&spans);
    let (span, entry) = accepted(&store, "a").await;
    note(&store, &entry, Confirmation::AskAgain { at: at(5) }).await;
    let again = document(&usages, &entry).await;
    let again = again.get_document("ask_again").unwrap();
    assert_eq!(again.get_i64("at").unwrap(), NOW + 5);
    // The first of March, 2026.
    assert_eq!(again.get_i64("month").unwrap(), 1_772_323_200_000);
    let mut entry = entry;
    entry.question.as_mut().unwrap().at = at(5);
    note(&store, &entry, Confirmation::Counted { at: at(9) }).await;
    let confirmed = document(&usages, &entry).await;
    assert_eq!(expires_at(&confirmed), None);
    store.expire(&[finished(&span)]).await.unwrap();
    let confirmed = document(&usages, &entry).await;
    assert_eq!(expires_at(&confirmed), Some(NOW + 9 + LIFETIME));
}

/// A document that is not an entry is reported, and stops nothing.
#[tokio::test(flavor = "multi_thread")]
async fn an_entry_that_cannot_be_read_hides_no_other() {
    let (store, spans) = store_and_spans("confirm_unreadable").await;
    let usages = usages_beside(&spans);
    let (_, bad) = accepted(&store, "a").await;
    let (_, good) = accepted(&store, "b").await;
    let broken = doc! { "$set": { "target.plan_id": 7, "ask_again.at": NOW - 1 } };
    let by_id = doc! { "_id": &bad.usage_guid };
    usages.update_one(by_id, broken).await.unwrap();
    let found = store.unconfirmed(&query(0)).await.unwrap();
    assert_eq!(found, [Unconfirmed::of(&good).unwrap()]);
}

fn query(now: i64) -> UnconfirmedQuery {
    UnconfirmedQuery {
        partitions: everything(),
        now: at(now),
        month: None,
        limit: 100,
    }
}
