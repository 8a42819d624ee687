//! What a snapshot may take of memory and time.

use std::time::Duration;

use sampler_receiver::SnapshotLimits;
use serde_json::{Value, json};

use super::{AT, instance, instances, lines, lists, posted, proposals, snapshot};
use crate::world::{DAY, HOUR, World};

fn limited(change: impl FnOnce(&mut SnapshotLimits)) -> World {
    World::with(|options| change(&mut options.snapshots))
}

impl World {
    async fn start_many(&self, count: usize, plan: &str) {
        for number in 0..count {
            let name = format!("i-{number}");
            self.starts_one(&name, plan, AT - HOUR).await;
        }
    }

    /// How many are in each list, and whether there are more.
    async fn counts(&self, instances: &[Value]) -> ([usize; 3], bool) {
        let answer = self.compare(&snapshot(AT, instances)).await;
        let more = answer.get("more");
        assert!(more.is_none_or(|more| *more == json!(true)));
        (lists(&answer).map(|list| list.len()), more.is_some())
    }

    /// Applies proposals until there are none.
    async fn apply_in_turns(&self, instances: &[Value], most: usize) {
        for _ in 0..most {
            let answer = self.compare(&snapshot(AT, instances)).await;
            let proposals = proposals(&answer);
            if proposals.is_empty() {
                assert!(answer.get("more").is_none());
                return;
            }
            let answers = self.apply_all(&proposals).await;
            assert!(answers.iter().all(|status| *status == 201), "{answers:?}");
        }
        panic!("there are proposals after {most} snapshots");
    }
}

#[tokio::test]
async fn open_spans_without_an_instance_have_a_limit() {
    let world = limited(|limits| limits.open = 3);
    world.start_many(3, "large").await;
    assert_eq!(world.counts(&[]).await, ([3, 0, 0], false));
    world.starts_one("j", "large", AT - HOUR).await;
    assert_eq!(world.counts(&[]).await, ([3, 0, 0], true));
    world.apply_in_turns(&[], 3).await;
    assert!(world.spans().iter().all(|span| span.end.is_some()));
    // Memory is taken by the megabyte.
    let world = limited(|limits| limits.open_memory = 1 << 20);
    let id = |number: usize| {
        let mixed = |at: usize| (number * 64 + at).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let parts = (0..60).map(|at| format!("{:016x}", mixed(at)));
        parts.collect::<String>()
    };
    for number in 0..400 {
        world.starts_one(&id(number), "large", AT - HOUR).await;
    }
    let ([open, ..], more) = world.counts(&[]).await;
    assert!(more && (1..400).contains(&open), "{open}");
}

/// Where the stop of another plan is not shown, neither is the start that follows it.
#[tokio::test]
async fn a_start_is_not_shown_without_the_stop_before_it() {
    let world = limited(|limits| limits.open = 2);
    world.start_many(3, "small").await;
    let all = [instances(3, "large"), instances(3, "huge")].concat();
    assert_eq!(world.counts(&all).await, ([2, 4, 0], true));
    world.apply_in_turns(&all, 3).await;
}

#[tokio::test]
async fn spans_that_differ_have_a_limit() {
    for change in [
        (|limits| limits.differing = 3) as fn(&mut SnapshotLimits),
        |limits| limits.differing_memory = 2_500,
    ] {
        let world = limited(change);
        world.start_many(5, "small").await;
        let mut all = instances(5, "large");
        assert_eq!(world.counts(&all).await, ([0, 0, 3], true));
        world.apply_in_turns(&all, 3).await;
        for instance in &mut all {
            instance["measured_usage"] = json!([]);
        }
        assert_eq!(world.counts(&all).await, ([0, 0, 3], true));
        world.apply_in_turns(&all, 3).await;
    }
}

#[tokio::test]
async fn the_ends_that_are_remembered_have_a_limit() {
    let world = limited(|limits| limits.ends = 3);
    world.start_many(5, "small").await;
    for number in 0..5 {
        let name = format!("i-{number}");
        world.stops_one(&name, "small", AT - HOUR / 2).await;
    }
    let mut all = instances(5, "large");
    for instance in &mut all {
        instance["since"] = json!(AT - DAY);
    }
    assert_eq!(world.counts(&all).await, ([0, 3, 0], true));
    world.apply_in_turns(&all, 3).await;
}

#[tokio::test]
async fn the_memory_for_instances_has_a_limit() {
    let world = limited(|limits| limits.instances_memory = (1 << 20) + 48 * 10);
    let all = instances(10, "large");
    assert_eq!(world.counts(&all).await, ([0, 10, 0], false));
    let more = [&all[..], &[instance("j", "large")]].concat();
    let beyond = world.compare_once(&snapshot(AT, &more)).await;
    beyond.names(413, "payload-too-large", &[]);
}

#[tokio::test]
async fn the_time_to_read_the_spans_has_a_limit() {
    let world = limited(|limits| limits.compare_time = Duration::ZERO);
    let late = world.compare_once(&snapshot(AT, &[])).await;
    late.names(503, "overloaded", &[]);
    assert!(late.header("retry-after").is_some());
}

/// The usual limits, as docs/api.md and deploy/README.md have them.
#[test]
fn the_parts_of_a_snapshot_fit_into_the_memory_that_is_named() {
    let usual = SnapshotLimits::default();
    let counts = (usual.instances, usual.open, usual.differing);
    assert_eq!(counts, (1_000_000, 100_000, 20_000));
    let memory = usual.instances_memory + usual.open_memory + usual.differing_memory;
    assert_eq!(memory, 104 << 20);
}

#[tokio::test]
async fn the_number_of_instances_has_a_limit() {
    let world = World::with(|options| options.snapshots.instances = 5);
    let at_the_limit = world.send(posted(lines(5).into())).await;
    assert_eq!(at_the_limit.status, 200, "{at_the_limit:?}");
    let beyond = world.send(posted(lines(6).into())).await;
    beyond.tells(413, "payload-too-large", &["more than 5 instances"]);
}
