//! A span that somebody broke by hand is named by the worker's log and its metrics.

use bson::doc;
use sampler_testkit::build::{start_event, stop_event};
use sampler_testkit::{Program, now_millis, wait_until};

use crate::landscape::{HOUR, Landscape, PATIENCE, until_ready};

async fn violations(world: &Landscape, worker: &Program) -> Option<u64> {
    let url = format!("{}/metrics", worker.base_url());
    let metrics = world.http.get(url).send().await.unwrap();
    let metrics = metrics.text().await.unwrap();
    let value = |line: &str| {
        let value = line.strip_prefix("sampler_conservation_violations_total ")?;
        value.parse().ok()
    };
    metrics.lines().find_map(value)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_span_that_is_broken_by_hand_is_named_within_a_minute() {
    let world = Landscape::new("auditor").await;
    let receiver = world.receiver().start().await.unwrap();
    until_ready(&world.http, &receiver).await;
    let start = now_millis() - 4 * HOUR;
    for target in 0..6 {
        let event = start_event(target, start);
        world.take(&receiver, "/v1/events/start", &event).await;
        let event = stop_event(target, start + 3 * HOUR);
        world.take(&receiver, "/v1/events/stop", &event).await;
    }
    let worker = world.worker().env("SAMPLER_AUDIT_RATE", "100");
    let worker = worker.start().await.unwrap();
    until_ready(&world.http, &worker).await;
    world.until_complete(6).await;
    assert_eq!(violations(&world, &worker).await, Some(0));

    let of = |target: u64| doc! { "target.resource_instance_id": format!("instance-{target}") };
    let more = doc! { "$inc": { "processing.totals.billed": 1_i64 } };
    world.spans().await.update_one(of(1), more).await.unwrap();
    let usages = world.usages().await;
    let last = usages.find_one(of(2)).sort(doc! { "version": -1 }).await;
    let last = last.unwrap().unwrap().get_str("_id").unwrap().to_owned();
    usages.delete_one(doc! { "_id": last }).await.unwrap();
    let shorter = doc! { "$inc": { "interval.end": -1_i64 } };
    let changed = usages.update_one(of(3), shorter).await.unwrap();
    assert_eq!(changed.modified_count, 1);

    wait_until("all three are counted", PATIENCE, async || {
        violations(&world, &worker).await == Some(3)
    })
    .await;
    // A difference is counted before it is logged, and a line takes a moment to arrive.
    let lines = || worker.logs_of("a span, its totals and its entries in the ledger do not agree");
    wait_until("all three are logged", PATIENCE, async || {
        lines().len() == 3
    })
    .await;
    let mut named: Vec<String> = Vec::new();
    for line in &lines() {
        assert_eq!(line["code"], "audit.difference");
        named.push(line["span.id"].as_str().unwrap().to_owned());
    }
    for target in 1..4 {
        let span = world.spans().await.find_one(of(target)).await;
        let id = span.unwrap().unwrap().get_object_id("_id").unwrap();
        assert!(named.contains(&id.to_hex()), "{target}");
    }
    assert_eq!(named.len(), 3);
}
