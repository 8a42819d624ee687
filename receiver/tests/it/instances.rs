//! Which instances run, as it is shown.

use sampler_domain::Timestamp;
use sampler_store::{Instance, InstanceProgram, Intake, Operating, Work};
use serde_json::{Value, json};

use crate::world::{HOUR, NOW, World};

impl World {
    async fn report(&self, instance: Instance) {
        self.store.memory.report_instance(&instance).await.unwrap();
    }

    async fn states(&self) -> Vec<(String, String)> {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let shown = self.items("/v1/instances").await.into_iter();
        let states = shown.map(|it| (text(&it["instance"]), text(&it["state"])));
        states.collect()
    }
}

fn instance(name: &str, program: InstanceProgram) -> Instance {
    Instance {
        version: Some("1.2.3".to_owned()),
        started_at: Some(Timestamp::clamped(NOW - HOUR)),
        ..Instance::new(name.to_owned(), program)
    }
}

fn pair(name: &str, state: &str) -> (String, String) {
    (name.to_owned(), state.to_owned())
}

#[tokio::test]
async fn an_instance_is_shown_as_it_describes_itself() {
    let world = World::new();
    assert_eq!(world.items("/v1/instances").await, [] as [Value; 0]);
    world
        .report(Instance {
            index: Some("2".to_owned()),
            failing: vec!["processing".to_owned()],
            warnings: vec!["clock".to_owned()],
            partitions: Some(32),
            paused_by: vec!["replication-lag".to_owned()],
            upstream: Some("abacus at localhost".to_owned()),
            usages_today: Some(12_345),
            ..instance("w", InstanceProgram::Worker)
        })
        .await;
    world
        .report(Instance {
            slack: Some(5_270_400_000),
            intake: Some(Intake {
                kept: 240,
                refused: 3,
                last_at: Some(Timestamp::clamped(NOW - 1)),
            }),
            ..instance("r", InstanceProgram::Receiver)
        })
        .await;
    world.store.memory.heartbeat("old").await.unwrap();
    let expected = [
        json!({
            "program": "receiver", "instance": "r", "index": null, "version": "1.2.3",
            "started_at": NOW - HOUR, "seen_at": NOW, "state": "up", "failing": [], "warnings": [],
            "partitions": null, "paused_by": [], "upstream": null,
            "usages_today": null, "slack": 5_270_400_000_i64,
            "intake": { "kept": 240, "refused": 3, "last_at": NOW - 1 },
        }),
        json!({
            "program": "worker", "instance": "old", "index": null, "version": null,
            "started_at": null, "seen_at": NOW, "state": "up", "failing": [], "warnings": [],
            "partitions": null, "paused_by": [], "upstream": null,
            "usages_today": null, "slack": null, "intake": null,
        }),
        json!({
            "program": "worker", "instance": "w", "index": "2", "version": "1.2.3",
            "started_at": NOW - HOUR, "seen_at": NOW, "state": "unhealthy",
            "failing": ["processing"], "warnings": ["clock"], "partitions": 32,
            "paused_by": ["replication-lag"], "upstream": "abacus at localhost",
            "usages_today": 12_345, "slack": null,
            "intake": null,
        }),
    ];
    assert_eq!(world.items("/v1/instances").await, expected);
}

#[tokio::test]
async fn an_instance_that_is_not_seen_is_stale_for_an_hour_and_then_gone() {
    let world = World::new();
    world.report(instance("a", InstanceProgram::Worker)).await;
    world.clock.set(NOW + 20_000);
    assert_eq!(world.states().await, [pair("a", "up")]);
    world.clock.set(NOW + 20_001);
    assert_eq!(world.states().await, [pair("a", "stale")]);
    world
        .report(Instance {
            is_stopping: true,
            failing: vec!["database".to_owned()],
            ..instance("b", InstanceProgram::Worker)
        })
        .await;
    let expected = [pair("a", "stale"), pair("b", "stopping")];
    assert_eq!(world.states().await, expected);
    world.clock.set(NOW + HOUR);
    assert_eq!(world.states().await[0], pair("a", "stale"));
    world.clock.set(NOW + HOUR + 1);
    assert_eq!(world.states().await, [pair("b", "stale")]);
}
