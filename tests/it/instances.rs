//! Instances of real programs, as they report themselves.

use sampler_testkit::{Program, wait_until};
use serde_json::Value;

use crate::landscape::{Landscape, PATIENCE, until_ready};

/// The partitions that spans are divided into.
const PARTITIONS: i64 = 64;

async fn instances(world: &Landscape, receiver: &Program) -> Vec<Value> {
    let list = world.json(receiver, "/v1/instances").await;
    list["items"].as_array().cloned().unwrap_or_default()
}

/// Whether there are a receiver and so many workers, all up, that own all partitions together.
async fn are_up(world: &Landscape, receiver: &Program, workers: usize) -> bool {
    let all = instances(world, receiver).await;
    let owned = all.iter().filter_map(|it| it["partitions"].as_i64());
    all.len() == workers + 1
        && all.iter().all(|it| it["state"] == "up")
        && owned.sum::<i64>() == PARTITIONS
}

#[tokio::test(flavor = "multi_thread")]
async fn instances_are_listed_while_they_run() {
    let world = Landscape::new("instances").await;
    let receiver = world.receiver().env("CF_INSTANCE_INDEX", "7");
    let receiver = receiver.env("SAMPLER_SLACK_PAST_INTERVAL", "2160h");
    let receiver = receiver.start().await.unwrap();
    until_ready(&world.http, &receiver).await;
    let kept = world.worker().start().await.unwrap();
    let stopped = world.worker().start().await.unwrap();
    wait_until("all are up", PATIENCE, async || {
        are_up(&world, &receiver, 2).await
    })
    .await;
    let all = instances(&world, &receiver).await;
    let programs: Vec<_> = all
        .iter()
        .map(|it| it["program"].as_str().unwrap())
        .collect();
    assert_eq!(programs, ["receiver", "worker", "worker"]);
    assert_eq!(all[0]["index"], "7");
    assert_eq!(all[0]["slack"], 7_776_000_000_i64);
    assert_eq!(all[1]["upstream"], "abacus at 127.0.0.1");
    for instance in &all {
        assert_eq!(instance["version"], env!("CARGO_PKG_VERSION"));
        assert!(instance["started_at"].as_i64() > Some(0), "{instance}");
    }
    // Each program's settings fit each other; those of the two together do not.
    let told = |line: &String| line.contains("SAMPLER_RETENTION") && line.contains("kept_ms");
    wait_until("it is told", PATIENCE, async || {
        kept.lines().iter().any(told)
    })
    .await;
    stopped.sigterm().unwrap();
    assert_eq!(stopped.wait_exit(PATIENCE).await.unwrap(), 0);
    wait_until("the other one owns all", PATIENCE, async || {
        are_up(&world, &receiver, 1).await
    })
    .await;
}
