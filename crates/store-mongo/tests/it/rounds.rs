//! Earlier times that a usage was set aside, in documents: a value that is not a round harms nothing, and a
//! list and the sums agree about it.

use bson::{Bson, bson, doc};
use sampler_domain::{Entry, EntryState, Id, Timestamp, WindowLength};
use sampler_store::{Confirmation, EntryKey, Ledger, Reading, SumQuery, TargetFilter, Unconfirmed};
use sampler_store_mongo::MongoStore;
use sampler_store_testing::support::{NOW, acceptance, at, must_plan, question, resend, started};

use crate::support::{document, store_and_spans, usages_beside};

const HOUR: i64 = 3_600_000;
const DAY: i64 = 24 * HOUR;

const LOCATION: Option<&str> = Some("https://abacus/usage/1");

/// Accepted at 10, and to be asked for.
async fn accepted(store: &MongoStore) -> Entry {
    let span = started(store, "a", "a", -DAY).await;
    let span = must_plan(store, &span, -HOUR).await;
    let entry = Entry {
        question: Some(question(DAY, 2 * DAY)),
        ..Entry::of_accepted(&span, acceptance(10, LOCATION)).unwrap()
    };
    store.write_entry(entry.clone(), 4_000 * DAY).await.unwrap();
    entry
}

async fn set_aside(store: &MongoStore, entry: &Entry, millis: i64) {
    let aside = Confirmation::SetAside {
        at: at(millis),
        error: "closed".to_owned(),
        cause: "7d0e4b52-93c1-5f0a-8a6b-1f2c60d59e37".parse().unwrap(),
    };
    let read = Unconfirmed::of(entry).unwrap();
    assert_eq!(store.confirm(&[(read, aside)]).await.unwrap(), 1);
}

async fn send_again(store: &MongoStore, entry: &Entry, millis: i64) {
    let resend = resend(7, EntryState::SetAside, millis);
    let key = EntryKey::of(entry);
    assert!(store.mark_resend(&key, &resend).await.unwrap());
    let read = Entry {
        question: entry.question,
        ..store.usage(&entry.usage_guid).await.unwrap().unwrap()
    };
    let accepted = store
        .accept_resent(&read, &acceptance(millis, LOCATION))
        .await;
    assert!(accepted.unwrap());
    store.end_resend(&key, resend.act, None).await.unwrap();
}

/// How many usages counted then, by the server and by the entry as it is read.
async fn counted(store: &MongoStore, entry: &Entry, as_of: Timestamp) -> (u64, u64) {
    let mut target = TargetFilter::default();
    assert!(target.set("resource_instance_id", Id::from_store("a")));
    let all = WindowLength::All.windows(Timestamp::MIN, Timestamp::MAX, 1);
    let query = SumQuery {
        states: SumQuery::BILLED.to_vec(),
        target,
        resources: None,
        length: WindowLength::All,
        windows: all.unwrap(),
        group_by: Vec::new(),
        as_of: Some(as_of),
        after: None,
        limit: 10,
    };
    let page = store.sums(&query).await.unwrap();
    let read = store.usage(&entry.usage_guid).await.unwrap().unwrap();
    let usages = page.rows.first().map_or(0, |row| row.usages);
    (usages, u64::from(query.counts(&read)))
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_round_counts_alike_in_lists_and_in_sums() {
    let (store, spans) = store_and_spans("rounds_odd").await;
    let usages = usages_beside(&spans);
    let entry = accepted(&store).await;
    let decimal: bson::Decimal128 = (NOW + 20).to_string().parse().unwrap();
    #[expect(clippy::cast_precision_loss, reason = "it is exact")]
    let double = (NOW + 20) as f64;
    let moments = [
        Bson::Null,
        Bson::Undefined,
        Bson::Double(f64::NAN),
        Bson::Double(f64::NEG_INFINITY),
        Bson::Double(double),
        Bson::Double(double + 0.5),
        Bson::Decimal128(decimal),
        Bson::DateTime(bson::DateTime::from_millis(NOW + 20)),
        Bson::Int32(5),
        Bson::Int32(-1),
        Bson::Int64(i64::MIN),
        Bson::Int64(i64::MAX),
        Bson::Int64(NOW + 20),
        bson!("then"),
        bson!([NOW + 20]),
        bson!({ "at": NOW + 20 }),
    ];
    let mut lists = vec![
        bson!({}),
        bson!({ "set_aside_at": NOW + 20 }),
        bson!([]),
        bson!([{}]),
        bson!([[{ "set_aside_at": NOW + 20 }]]),
        bson!([{ "set_aside_at": NOW + 20 }, { "resent_at": NOW + 30 }, null, 7]),
        bson!([{ "set_aside_at": NOW + 20, "resent_at": NOW + 30 }, "then"]),
    ];
    for moment in moments {
        let whole = NOW + 25;
        lists.push(bson!([{ "set_aside_at": moment.clone(), "resent_at": whole }]));
        lists.push(bson!([{ "set_aside_at": whole, "resent_at": moment.clone() }]));
        lists.push(bson!([moment.clone()]));
        lists.push(moment);
    }
    let (aside, again) = (NOW + 40, NOW + 50);
    for (state, list) in ["accepted", "set_aside", "counted"]
        .iter()
        .flat_map(|state| lists.iter().map(move |list| (*state, list)))
    {
        let set = doc! {
            "state": state, "earlier_rounds": list, "set_aside_at": aside, "resent_at": again,
        };
        let by_id = doc! { "_id": &entry.usage_guid };
        usages
            .update_one(by_id, doc! { "$set": set })
            .await
            .unwrap();
        for millis in [0, 10, 20, 21, 25, 30, 40, 50] {
            let (sums, read) = counted(&store, &entry, at(millis)).await;
            assert_eq!(sums, read, "{state} {list} at {millis}");
        }
    }
}

/// Only an entry that was set aside twice has the member, and what stood in its place is replaced.
#[tokio::test(flavor = "multi_thread")]
async fn an_entry_has_rounds_from_the_second_time_on() {
    let (store, spans) = store_and_spans("rounds_kept").await;
    let usages = usages_beside(&spans);
    let entry = accepted(&store).await;
    set_aside(&store, &entry, 20).await;
    send_again(&store, &entry, 30).await;
    let once = document(&usages, &entry).await;
    assert!(!once.contains_key("earlier_rounds"), "{once}");
    let odd = doc! { "$set": { "earlier_rounds": "none" } };
    let by_id = doc! { "_id": &entry.usage_guid };
    usages.update_one(by_id.clone(), odd).await.unwrap();
    set_aside(&store, &entry, 40).await;
    let twice = document(&usages, &entry).await;
    let rounds = bson!([{ "set_aside_at": NOW + 20, "resent_at": NOW + 30 }]);
    assert_eq!(twice.get("earlier_rounds"), Some(&rounds));
    // The time before cannot be read: there is no round to keep.
    send_again(&store, &entry, 50).await;
    let odd = doc! { "$set": { "set_aside_at": Bson::Null } };
    usages.update_one(by_id, odd).await.unwrap();
    set_aside(&store, &entry, 60).await;
    let third = store.usage(&entry.usage_guid).await.unwrap().unwrap();
    assert_eq!(third.state, EntryState::SetAside);
    assert_eq!(third.earlier_rounds.len(), 1);
}
