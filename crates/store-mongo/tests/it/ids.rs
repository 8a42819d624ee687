//! Event ids across targets: while the original writes, and once it has gone.

use std::collections::BTreeSet;

use bson::{Bson, doc};
use sampler_domain::Refusal;
use sampler_store::{StartOutcome, StopOutcome, Work};
use sampler_store_mongo::Retired;
use sampler_store_testing::support::{
    LookingUp, at, id, kept, must_start, must_stop, start, stop, target,
};

use crate::original::{original, policy, stopped_by_original};
use crate::support::{beside, beside_original, database_of, index_names};

/// Its unique indexes allow each id once, so nothing else can be answered; but the answer tells
/// nothing of the other target.
#[tokio::test(flavor = "multi_thread")]
async fn beside_an_original_an_id_of_another_target_is_refused_and_nothing_is_told_of_it() {
    let (store, spans) = beside_original("ids_beside").await;
    spans.insert_one(original("theirs", -5.0)).await.unwrap();
    must_start(&store, Some("a"), "i", 0).await;
    must_start(&store, None, "j", 0).await;
    must_stop(&store, Some("z"), "i", 1).await;
    for taken in ["a", "theirs"] {
        let alone = start(&store, Some(taken), "k", 0).await;
        assert_eq!(alone, StartOutcome::Refused(Refusal::IdTakenElsewhere));
        // In one command with others, too.
        let together = tokio::join!(
            start(&store, Some(taken), "k", 0),
            start(&store, Some(taken), "l", 0),
            start(&store, Some("a"), "i", 0),
        );
        let elsewhere = StartOutcome::Refused(Refusal::IdTakenElsewhere);
        let (first, second, third) = together;
        assert_eq!((first, second), (elsewhere.clone(), elsewhere));
        assert!(matches!(third, StartOutcome::Repeated { .. }));
    }
    assert_eq!(
        stop(&store, Some("z"), "j", 1).await,
        StopOutcome::Refused(Refusal::IdTakenElsewhere)
    );
    assert_eq!(stop(&store, Some("z"), "i", 1).await, StopOutcome::Repeated);
    must_stop(&store, Some("y"), "j", 1).await;
    // What was not kept is not found on the target that asked.
    assert_eq!(
        store.started_by(&target("k"), &id("a")).await.unwrap(),
        None
    );
}

/// The victim of the attack: its stop has an id that somebody else has used first.
#[tokio::test(flavor = "multi_thread")]
async fn once_the_indexes_of_an_original_are_removed_nobody_can_block_the_ids_of_others() {
    let (store, spans) = beside_original("ids_retired").await;
    spans.insert_one(original("theirs", -5.0)).await.unwrap();
    let mut complete = original("complete", -9.0);
    complete
        .get_document_mut("processing")
        .unwrap()
        .insert("complete", true);
    spans.insert_one(complete).await.unwrap();
    let filter = doc! { "target.resource_instance_id": "complete" };
    spans
        .update_one(filter, stopped_by_original("complete", -8.0))
        .await
        .unwrap();
    must_start(&store, Some("attack"), "i", 0).await;
    must_stop(&store, Some("attack"), "i", 1).await;
    must_start(&store, Some("a"), "victim", 0).await;
    let blocked = stop(&store, Some("attack"), "victim", 5).await;
    assert_eq!(blocked, StopOutcome::Refused(Refusal::IdTakenElsewhere));

    // Not before each span has its partition.
    let retire = async || store.retire_original_indexes().await.unwrap();
    assert_eq!(retire().await, Retired::SpansWithoutPartition);
    assert_eq!(store.adopt(&policy(), at(0), 100).await.unwrap().starts, 2);
    // Nor while there are ids that no index tells from their texts.
    let uuid = "1f9b525c-6a15-4e73-b9ba-72963436334f";
    let binary: Bson = bson::Uuid::parse_str(uuid).unwrap().into();
    let theirs = doc! { "start_dedup_id": "theirs" };
    let update = doc! { "$set": { "start_dedup_id": binary } };
    spans.update_one(theirs, update).await.unwrap();
    assert_eq!(retire().await, Retired::BinaryIds);
    assert!(
        index_names(&spans).await.contains("unique_target"),
        "all or nothing"
    );
    let text = doc! { "$set": { "start_dedup_id": uuid } };
    let binaries = doc! { "start_dedup_id": { "$type": "binData" } };
    spans.update_one(binaries, text).await.unwrap();
    for _ in 0..2 {
        assert_eq!(retire().await, Retired::Done);
        assert_eq!(index_names(&spans).await, documented_indexes());
    }

    must_stop(&store, Some("attack"), "victim", 5).await;
    must_start(&store, Some("attack"), "k", 0).await;
    // What the original has kept is recognised as before, also what it had completed.
    assert_eq!(
        store
            .started_by(&target("theirs"), &id(uuid))
            .await
            .unwrap()
            .map(|span| span.end),
        Some(None)
    );
    let repeated = store
        .stopped_by(&target("complete"), &id("stop-complete"))
        .await;
    assert!(repeated.unwrap().is_some());
    assert_eq!(
        start(&store, Some("b"), "theirs", 0).await,
        StartOutcome::Refused(Refusal::AlreadyOpen)
    );
    must_stop(&store, None, "theirs", 0).await;
    assert_eq!(kept(&store, "a").await.end, Some(at(5)));
}

/// The names in the check of the step in docs/migration.md.
fn documented_indexes() -> BTreeSet<String> {
    let document = include_str!("../../../../docs/migration.md");
    let line = document
        .lines()
        .find(|line| line.starts_with("names `_id_`"));
    let names = line.unwrap().split('`').skip(1).step_by(2);
    names.map(str::to_owned).collect()
}

/// The way back: the indexes of the original can be made again as long as no id was used twice, and
/// count from then on.
#[tokio::test(flavor = "multi_thread")]
async fn the_indexes_of_an_original_can_be_made_again() {
    let (store, spans) = beside_original("ids_back").await;
    assert_eq!(
        store.retire_original_indexes().await.unwrap(),
        Retired::Done
    );
    must_start(&store, Some("a"), "i", 0).await;
    must_start(&store, Some("a"), "j", 0).await;
    // The check of docs/migration.md.
    let check = vec![
        doc! { "$match": { "start_dedup_id": { "$exists": true } } },
        doc! { "$group": { "_id": "$start_dedup_id", "spans": { "$sum": 1 } } },
        doc! { "$match": { "spans": { "$gt": 1 } } },
    ];
    let twice = async || {
        let mut cursor = spans.aggregate(check.clone()).await.unwrap();
        let mut ids = Vec::new();
        while cursor.advance().await.unwrap() {
            ids.push(
                cursor
                    .deserialize_current()
                    .unwrap()
                    .get_str("_id")
                    .unwrap()
                    .to_owned(),
            );
        }
        ids
    };
    assert_eq!(twice().await, ["a"]);
    let filter = doc! { "target.resource_instance_id": "j" };
    spans
        .update_one(filter, doc! { "$unset": { "start_dedup_id": "" } })
        .await
        .unwrap();
    assert_eq!(twice().await, Vec::<String>::new());
    let unique_sparse = doc! { "unique": true, "sparse": true };
    for (name, field) in [
        ("unique_start_dedup_id", "start_dedup_id"),
        ("unique_end_dedup_id", "end_dedup_id"),
    ] {
        let mut index = doc! { "name": name, "key": { field: 1 } };
        index.extend(unique_sparse.clone());
        let database = database_of(&spans);
        let command = doc! { "createIndexes": "spans", "indexes": [index] };
        database.run_command(command).await.unwrap();
    }
    store.observe_original().await.unwrap();
    assert_eq!(
        start(&store, Some("a"), "k", 0).await,
        StartOutcome::Refused(Refusal::IdTakenElsewhere)
    );
}

/// A receiver notices only every few seconds that the indexes of the original are gone.
#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_that_has_not_noticed_the_step_yet_goes_on_keeping_events() {
    let (worker, spans) = beside_original("ids_unnoticed").await;
    let uuid = "1f9b525c-6a15-4e73-b9ba-72963436334f";
    let binary: Bson = bson::Uuid::parse_str(uuid).unwrap().into();
    must_start(&worker, Some("a"), "i", 0).await;
    let by_a = doc! { "start_dedup_id": "a" };
    let to_binary = doc! { "$set": { "start_dedup_id": &binary } };
    spans.update_one(by_a, to_binary).await.unwrap();
    let receiver = beside(&spans).await;
    // It knows that there are binaries, and looks each id up that may be one.
    assert!(matches!(
        start(&receiver, Some(uuid), "i", 0).await,
        StartOutcome::Repeated { .. }
    ));
    let to_text = doc! { "$set": { "start_dedup_id": uuid } };
    let binary = doc! { "start_dedup_id": binary };
    spans.update_one(binary, to_text).await.unwrap();
    assert_eq!(
        worker.retire_original_indexes().await.unwrap(),
        Retired::Done
    );
    assert!(matches!(
        start(&receiver, Some(uuid), "i", 0).await,
        StartOutcome::Repeated { .. }
    ));
    must_start(&receiver, Some(uuid), "j", 0).await;
    must_stop(&receiver, Some(uuid), "j", 1).await;
    assert_eq!(
        stop(&receiver, Some(uuid), "j", 1).await,
        StopOutcome::Repeated
    );
}
