//! Which instances run, and how each is.

use sampler_store::{Instance, InstanceProgram, Intake, SeenInstance};

use crate::support::{Shared, at};

async fn seen(store: &Shared) -> Vec<SeenInstance> {
    store.instances().await.unwrap()
}

async fn names(store: &Shared) -> Vec<String> {
    let seen = seen(store).await.into_iter();
    seen.map(|seen| seen.instance.name).collect()
}

fn worker(name: &str, started_at: i64) -> Instance {
    Instance {
        index: Some("0".to_owned()),
        version: Some("1.2.3-$x".to_owned()),
        started_at: Some(at(started_at)),
        is_stopping: true,
        failing: vec!["database".to_owned(), "$NOW".to_owned()],
        warnings: vec!["clock".to_owned()],
        partitions: Some(64),
        paused_by: vec!["operator".to_owned()],
        upstream: Some("abacus at localhost".to_owned()),
        usages_today: Some(5_000_000_000),
        ..Instance::new(name.to_owned(), InstanceProgram::Worker)
    }
}

pub async fn instances_are_shown_as_they_reported_last(store: &Shared) {
    assert_eq!(seen(store).await, []);
    let receiver = Instance {
        slack: Some(5_270_400_000),
        intake: Some(Intake {
            kept: 240,
            refused: 3,
            last_at: Some(at(8)),
        }),
        started_at: Some(at(9)),
        version: Some("1.2.3".to_owned()),
        ..Instance::new("r".to_owned(), InstanceProgram::Receiver)
    };
    for instance in [worker("b", 2), worker("a", 3), receiver.clone()] {
        store.report_instance(&instance).await.unwrap();
    }
    let all = seen(store).await;
    let shown: Vec<_> = all.iter().map(|seen| &seen.instance).collect();
    assert_eq!(shown, [&receiver, &worker("b", 2), &worker("a", 3)]);
    for seen in &all {
        assert!((0..60_000).contains(&seen.age), "{seen:?}");
    }
    let well = Instance {
        started_at: Some(at(2)),
        ..Instance::new("b".to_owned(), InstanceProgram::Worker)
    };
    store.report_instance(&well).await.unwrap();
    let all = seen(store).await;
    assert_eq!(all[1].instance, well, "nothing of the report before stays");
    for name in ["a", "nobody"] {
        store.withdraw_instance(name).await.unwrap();
    }
    assert_eq!(names(store).await, ["r", "b"]);
}

pub async fn workers_of_an_earlier_release_are_shown_while_they_are_alive(store: &Shared) {
    for worker in ["old", "new"] {
        store.heartbeat(worker).await.unwrap();
    }
    store.report_instance(&worker("new", 0)).await.unwrap();
    let all = seen(store).await;
    let shown: Vec<_> = all.iter().map(|seen| &seen.instance).collect();
    let old = Instance::new("old".to_owned(), InstanceProgram::Worker);
    assert_eq!(shown, [&old, &worker("new", 0)]);
    assert!(!all[0].is_stale() && all[0].seen_at > at(-1_000_000_000));
    store.leave("old").await.unwrap();
    assert_eq!(names(store).await, ["new"]);
}
