//! Which instances run, as it is shown.

use sampler_domain::Timestamp;
use sampler_store::{Instance, InstanceProgram, Intake, Operating, Work};
use serde_json::{Value, json};

use crate::world::{HOUR, NOW, World};

impl World {
    async fn report(&self, instance: Instance) {
        self.store.memory.report_instance(&instance).await.unwrap();
    }
}

fn instance(name: &str, program: InstanceProgram) -> Instance {
    Instance {
        version: Some("1.2.3".to_owned()),
        started_at: Some(Timestamp::clamped(NOW - HOUR)),
        ..Instance::new(name.to_owned(), program)
    }
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
    let shown = |program: &str, name: &str, more: Value| {
        let mut shown = json!({
            "program": program, "instance": name, "index": null, "version": "1.2.3",
            "started_at": NOW - HOUR, "seen_at": NOW, "state": "up", "failing": [], "warnings": [],
            "partitions": null, "paused_by": [], "upstream": null, "usages_today": null,
            "slack": null, "intake": null,
        });
        let members = shown.as_object_mut().unwrap();
        members.extend(more.as_object().unwrap().clone());
        shown
    };
    let intake = json!({ "kept": 240, "refused": 3, "last_at": NOW - 1 });
    let receiver = json!({ "slack": 5_270_400_000_i64, "intake": intake });
    let unknown = json!({ "version": null, "started_at": null });
    let worker = json!({
        "index": "2", "state": "unhealthy", "failing": ["processing"], "warnings": ["clock"],
        "partitions": 32, "paused_by": ["replication-lag"], "upstream": "abacus at localhost",
        "usages_today": 12_345,
    });
    let expected = [
        shown("receiver", "r", receiver),
        shown("worker", "old", unknown),
        shown("worker", "w", worker),
    ];
    assert_eq!(world.items("/v1/instances").await, expected);
}

#[tokio::test]
async fn an_instance_that_is_not_seen_is_stale_for_an_hour_and_then_gone() {
    let world = World::new();
    world.report(instance("a", InstanceProgram::Worker)).await;
    let stopping = Instance {
        is_stopping: true,
        failing: vec!["database".to_owned()],
        ..instance("b", InstanceProgram::Worker)
    };
    for (after, is_new, expected) in [
        (20_000, false, &[("a", "up")][..]),
        (20_001, false, &[("a", "stale")]),
        (20_001, true, &[("a", "stale"), ("b", "stopping")]),
        (HOUR, false, &[("a", "stale"), ("b", "stale")]),
        (HOUR + 1, false, &[("b", "stale")]),
    ] {
        world.clock.set(NOW + after);
        if is_new {
            world.report(stopping.clone()).await;
        }
        let shown = world.items("/v1/instances").await;
        let text = |it: &Value, name: &str| it[name].as_str().unwrap().to_owned();
        let states = shown
            .iter()
            .map(|it| (text(it, "instance"), text(it, "state")));
        let expected = expected
            .iter()
            .map(|(name, state)| (name.to_string(), state.to_string()));
        assert!(states.eq(expected), "{after}: {shown:?}");
    }
}
