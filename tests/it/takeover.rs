//! Taking the place of an original Sampler in its own collection, while its receiver still writes.

use bson::{Bson, Document, doc, oid::ObjectId};
use mongodb::Collection;
use sampler_testkit::build::{start_event, stop_event};
use sampler_testkit::{now_millis, wait_until};

use crate::landscape::{DAY, HOUR, Landscape, PATIENCE, until_ready};

/// What the original's receiver does with a start: a document whose moments are doubles.
async fn original_start(spans: &Collection<Document>, target: u64, start: i64) {
    let event = start_event(target, start);
    let mut fields = Document::new();
    for name in [
        "organization_id",
        "space_id",
        "consumer_id",
        "resource_id",
        "plan_id",
        "resource_instance_id",
    ] {
        fields.insert(name, event[name].as_str().unwrap());
    }
    fields.insert("correlation_id", "00000000-0000-0000-0000-000000000000");
    #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
    let start = start as f64;
    let document = doc! {
        "_id": ObjectId::new(),
        "target": fields,
        "measured_usage": [{ "measure": "memory", "quantity": 512 }],
        "start": start,
        "end": Bson::Null,
        "processing": {
            "complete": false,
            "last_interval": { "start": start, "end": start },
            "planned_interval": Bson::Null,
            "last_change_at": start,
            "version": 1,
        },
    };
    spans.insert_one(document).await.unwrap();
}

/// What it does with a stop: it matches the whole target and leaves `processing` alone.
async fn original_stop(spans: &Collection<Document>, target: u64, end: i64) {
    let instance = format!("instance-{target}");
    let open = doc! {
        "target.resource_instance_id": instance,
        "target.correlation_id": "00000000-0000-0000-0000-000000000000",
        "end": Bson::Null,
    };
    #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
    let set = doc! { "$set": {
        "end": end as f64,
        "end_is_set": true,
        "target.correlation_id": format!("correlation of {}", ObjectId::new()),
    } };
    assert_eq!(spans.update_one(open, set).await.unwrap().modified_count, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collection_of_an_original_is_taken_over_while_its_receiver_still_writes() {
    let world = Landscape::new("takeover").await;
    let spans = world.spans().await;
    let start = now_millis() - 3 * DAY;
    for target in 0..20 {
        original_start(&spans, target, start).await;
    }
    for target in 0..5 {
        original_stop(&spans, target, start + DAY + 1).await;
    }
    // One had planned an interval, and died before it was executed.
    let in_hand = doc! { "target.resource_instance_id": "instance-7" };
    #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
    let plan = doc! { "$set": {
        "processing.planned_interval": {
            "start": start as f64, "end": (start + 2 * HOUR) as f64, "usage_guid": "of the original",
        },
        "processing.version": 2,
    } };
    spans.update_one(in_hand, plan).await.unwrap();

    let receiver = world.receiver().start().await.unwrap();
    until_ready(&world.http, &receiver).await;
    let worker = world.worker().start().await.unwrap();
    world.until_complete(5).await;
    let sampled = i128::from(3 * DAY - 2 * HOUR);
    wait_until("the open ones are sampled", PATIENCE, async || {
        (5..20).all(|target| world.billed(&format!("instance-{target}")) > sampled)
    })
    .await;
    // Both receivers write: stops of ours for its spans, its stops for ours, late ones all.
    for target in 5..10 {
        world
            .take(
                &receiver,
                "/v1/events/stop",
                &stop_event(target, start + DAY + 1),
            )
            .await;
    }
    for target in 10..15 {
        original_stop(&spans, target, start + DAY + 1).await;
    }
    for target in 20..25 {
        world
            .take(&receiver, "/v1/events/start", &start_event(target, start))
            .await;
    }
    wait_until("those are sampled, too", PATIENCE, async || {
        (20..25).all(|target| world.billed(&format!("instance-{target}")) > sampled)
    })
    .await;
    for target in (15..20).chain(20..25) {
        original_stop(&spans, target, start + DAY + 1).await;
    }
    world.until_complete(25).await;
    for target in 0..25 {
        assert_eq!(
            world.billed(&format!("instance-{target}")),
            i128::from(DAY + 1),
            "{target}"
        );
    }
    let guids = world.abacus.counted();
    assert!(
        guids
            .iter()
            .any(|counted| counted.usage.dedup_id == "of the original")
    );
    assert!(
        !worker
            .logs_of("took in what an original Sampler wrote")
            .is_empty()
    );
}

/// A span that was handled by us has all that a worker of the original looks for, should the
/// operator go back to it.
#[tokio::test(flavor = "multi_thread")]
async fn what_we_leave_behind_an_original_understands() {
    let world = Landscape::new("way_back").await;
    let receiver = world.receiver().start().await.unwrap();
    let worker = world.worker().start().await.unwrap();
    until_ready(&world.http, &receiver).await;
    let start = now_millis() - 3 * HOUR;
    world
        .take(&receiver, "/v1/events/start", &start_event(1, start))
        .await;
    world
        .take(&receiver, "/v1/events/stop", &stop_event(1, start + HOUR))
        .await;
    world.until_complete(1).await;
    drop(worker);
    let span = world
        .spans()
        .await
        .find_one(doc! {})
        .await
        .unwrap()
        .unwrap();
    assert!(span.get_bool("end_is_set").unwrap());
    let processing = span.get_document("processing").unwrap();
    assert_eq!(processing.get("planned_interval"), Some(&Bson::Null));
    assert!(matches!(processing.get("version"), Some(Bson::Int32(_))));
    let last = processing.get_document("last_interval").unwrap();
    assert!(last.get_str("usage_guid").is_ok());
}
