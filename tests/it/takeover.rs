//! Taking the place of the original Sampler in its own collection, while it still runs: the steps
//! of `docs/migration.md`, each with its check, and the way back.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bson::{Bson, Document, doc};
use futures_util::TryStreamExt;
use sampler_testkit::abacus::Fault;
use sampler_testkit::build::{start_event, stop_event};
use sampler_testkit::{Program, now_millis, wait_until};
use serde_json::Value;

use crate::landscape::{DAY, HOUR, Landscape, MINUTE, PATIENCE, until_ready};
use crate::original::Original;

/// What is known of a collection from the outside: its documents, its indexes, its neighbours.
#[derive(Debug, PartialEq)]
struct Sight {
    documents: BTreeMap<String, Document>,
    indexes: Vec<String>,
    collections: Vec<String>,
}

async fn sight(world: &Landscape) -> Sight {
    let spans = world.spans().await;
    let documents: Vec<Document> = spans
        .find(doc! {})
        .await
        .unwrap()
        .try_collect()
        .await
        .unwrap();
    let key = |document: &Document| document.get("_id").unwrap().to_string();
    let mut collections = world
        .database
        .database()
        .await
        .list_collection_names()
        .await
        .unwrap();
    collections.sort();
    Sight {
        documents: documents.into_iter().map(|it| (key(&it), it)).collect(),
        indexes: spans.list_index_names().await.unwrap(),
        collections,
    }
}

/// A worker that only looks.
async fn shadow(world: &Landscape, dimension: &str) -> Program {
    let shadow = world
        .worker()
        .env("SAMPLER_SHADOW", "true")
        .env("SAMPLER_SHADOW_INTERVAL", "50ms")
        .env("SAMPLER_DIMENSION", dimension);
    let shadow = shadow.start().await.unwrap();
    until_ready(&world.http, &shadow).await;
    shadow
}

/// What the rounds of a shadow found, from its second on: the first may have begun before.
fn rounds(shadow: &Program) -> Vec<Value> {
    let mut rounds = shadow.logs_of("compared with what the original Sampler decided");
    rounds.drain(..rounds.len().min(1));
    rounds
}

async fn until_looked(shadow: &Program, enough: impl Fn(&Value) -> bool) -> Value {
    let found = || rounds(shadow).into_iter().rfind(&enough);
    wait_until("the shadow has seen it", PATIENCE, async || {
        found().is_some()
    })
    .await;
    found().unwrap()
}

fn count(round: &Value, field: &str) -> u64 {
    round[field].as_u64().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shadow_knows_the_faults_of_an_original_by_name_and_tells_of_the_rest() {
    let world = Landscape::new("shadow_faults").await;
    let original = Original::install(&world).await;
    let now = now_millis();
    let start = now - 5 * HOUR - 7;
    for target in 0..4 {
        original.start(target, start).await;
    }
    original.stop(0, start).await;
    original.stop(1, now + 2 * HOUR).await;
    // Its check of a stop is not part of the update: a race leaves an end before the start.
    original.stop(2, start - MINUTE).await;
    original.poll().await;
    let here = shadow(&world, "hour").await;
    let round = until_looked(&here, |round| count(round, "no_length") == 1).await;
    assert_eq!(count(&round, "ends_before_start"), 1, "{round}");
    assert_eq!(count(&round, "differences"), 0, "{round}");
    original.poll_until_done().await;
    let round = until_looked(&here, |round| count(round, "ahead_of_time") == 1).await;
    assert_eq!(count(&round, "differences"), 0, "{round}");
    assert!(
        here.logs_of("the original Sampler decided differently")
            .is_empty()
    );
    // A wrong plan: it leaves out a minute.
    original
        .leave_plan(3, (now - HOUR, now - HOUR + MINUTE), "odd")
        .await;
    until_looked(&here, |round| count(round, "differences") > 0).await;
    let told = here.logs_of("the original Sampler decided differently");
    assert_eq!(told.len(), 1, "each is told once: {told:?}");
    drop(here);

    // A dimension that is not the original's is what most likely is set wrongly. A finer one is told
    // from it at any time of the day; a day's window ends where the last hour of the day does.
    let wrong = shadow(&world, "minute").await;
    until_looked(&wrong, |round| count(round, "differences") > 1).await;
    let told = wrong.logs_of("the original Sampler decided differently");
    let says = |line: &Value| {
        line["difference"]
            .as_str()
            .unwrap()
            .contains("SAMPLER_DIMENSION=hour")
    };
    assert!(told.iter().any(says), "{told:?}");
}

/// The steps of the document, one after the other, and all the way back.
#[tokio::test(flavor = "multi_thread")]
async fn a_landscape_moves_to_us_and_back_again_and_every_bill_is_right() {
    let world = Landscape::new("migration").await;
    let original = Arc::new(Original::install(&world).await);
    let start = now_millis() - 9 * HOUR - 7;
    let end = start + 3 * HOUR + MINUTE;
    for target in 0..30 {
        original.start(target, start).await;
    }
    let looking = shadow(&world, "hour").await;
    // It looks while the original works, and touches nothing.
    for _ in 0..5 {
        original.poll().await;
    }
    let (before, posts) = (sight(&world).await, world.abacus.post_count());
    let round = until_looked(&looking, |round| count(round, "same") == 30).await;
    assert_eq!(count(&round, "spans"), 30, "{round}");
    for round in rounds(&looking) {
        for field in [
            "differences",
            "ends_before_start",
            "no_length",
            "ahead_of_time",
            "unreadable",
        ] {
            assert_eq!(count(&round, field), 0, "{field}: {round}");
        }
    }
    looking.sigterm().unwrap();
    assert_eq!(looking.wait_exit(PATIENCE).await.unwrap(), 0);
    assert_eq!(sight(&world).await, before);
    assert_eq!(before.collections, ["spans"]);
    assert!(!before.indexes.contains(&"search_due".to_owned()));
    assert_eq!(world.abacus.post_count(), posts);

    // Both receivers write, the original's worker samples what both have written.
    let receiver = world.receiver().start().await.unwrap();
    until_ready(&world.http, &receiver).await;
    for target in 30..40 {
        world
            .take(&receiver, "/v1/events/start", &start_event(target, start))
            .await;
    }
    for target in 0..5 {
        world
            .take(&receiver, "/v1/events/stop", &stop_event(target, end))
            .await;
    }
    for target in (5..10).chain(30..35) {
        original.stop(target, end).await;
    }
    for _ in 0..5 {
        original.poll().await;
    }
    assert_eq!(
        world.spans().await.count_documents(doc! {}).await.unwrap(),
        40
    );

    // Both workers sample, until the original's is stopped.
    let over = Arc::new(AtomicBool::new(false));
    let polling = tokio::spawn({
        let (original, over) = (Arc::clone(&original), Arc::clone(&over));
        async move {
            while !over.load(Ordering::Relaxed) {
                original.poll().await;
            }
        }
    });
    let worker = world.worker().start().await.unwrap();
    until_taken_in(&world).await;
    over.store(true, Ordering::Relaxed);
    polling.await.unwrap();
    world.until_complete(15).await;
    for target in 10..15 {
        world
            .take(&receiver, "/v1/events/stop", &stop_event(target, end))
            .await;
    }
    world.until_complete(20).await;

    // The worker dies with usages that Abacus has and it does not know of; then all goes back.
    world.abacus.fault(Fault::lose_answer());
    for target in 15..20 {
        world
            .take(&receiver, "/v1/events/stop", &stop_event(target, end))
            .await;
    }
    wait_until("usages were sent in vain", PATIENCE, async || {
        let planned = doc! { "processing.attempts": { "$gt": 0 } };
        world.spans().await.count_documents(planned).await.unwrap() == 5
    })
    .await;
    worker.kill().unwrap();
    receiver.sigterm().unwrap();
    assert_eq!(receiver.wait_exit(PATIENCE).await.unwrap(), 0);
    world.abacus.clear_faults();
    for target in (20..30).chain(35..40) {
        original.stop(target, end).await;
    }
    original.start(40, end).await;
    original.stop(40, end + DAY / 24).await;
    original.poll_until_done().await;
    let complete = doc! { "processing.complete": true };
    assert_eq!(
        world.spans().await.count_documents(complete).await.unwrap(),
        41
    );
    for target in 0..40 {
        let billed = world.billed(&format!("instance-{target}"));
        assert_eq!(billed, i128::from(end - start), "{target}");
    }
    assert_eq!(world.billed("instance-40"), i128::from(HOUR));
    let entries = world.assert_ledger().await;
    assert!(entries > 0, "we have sampled some of it");
}

/// The check of the step in which the spans are taken in.
async fn until_taken_in(world: &Landscape) {
    let spans = world.spans().await;
    wait_until("all spans are taken in", PATIENCE, async || {
        let left = doc! { "processing.complete": false, "processing.partition": Bson::Null };
        let indexed = spans
            .list_index_names()
            .await
            .unwrap()
            .contains(&"search_due".to_owned());
        indexed
            && spans
                .count_documents(left)
                .hint(mongodb::options::Hint::Name("search_due".to_owned()))
                .await
                .unwrap()
                == 0
    })
    .await;
}
