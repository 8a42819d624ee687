//! The moments from which proposed starts are dated: never one that is billed already, and never one
//! that is refused.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{AT, assert_agrees, assert_lists, instance, lists, proposals, snapshot};
use crate::event::with;
use crate::store::Behaviour;
use crate::world::{DAY, HOUR, NOW, PAST, World};

fn since(name: &str, plan: &str, since: i64) -> Value {
    with(&instance(name, plan), "since", since)
}

/// The plans and the moments of the proposed starts.
fn starts(answer: &Value) -> BTreeSet<(String, i64)> {
    let items = answer["instance_without_span"].as_array().unwrap().iter();
    let start = |item: &Value| {
        let proposal = &item["proposal"];
        let plan = proposal["plan_id"].as_str().unwrap().to_owned();
        (plan, proposal["timestamp"].as_i64().unwrap())
    };
    items.map(start).collect()
}

fn of<const N: usize>(starts: [(&str, i64); N]) -> BTreeSet<(String, i64)> {
    starts.map(|(plan, at)| (plan.to_owned(), at)).into()
}

impl World {
    /// These starts are proposed, and nothing else, and are taken.
    async fn starts_from<const N: usize>(&self, truth: &Value, expected: [(&str, i64); N]) {
        let answer = self.compare(truth).await;
        assert_eq!(starts(&answer), of(expected));
        let statuses = self.apply_all(&proposals(&answer)).await;
        assert_eq!(statuses, [201; N]);
    }

    /// How many spans of the instance run at each of these moments.
    fn run_at(&self, name: &str, moments: &[i64]) -> Vec<usize> {
        let spans = self.spans();
        let count = |at: &i64| {
            let runs = spans.iter().filter(|span| {
                span.target.resource_instance_id.as_str() == name
                    && span.start.as_millis() <= *at
                    && span.end.is_none_or(|end| end.as_millis() > *at)
            });
            runs.count()
        };
        moments.iter().map(count).collect()
    }
}

#[tokio::test]
async fn a_plan_whose_start_was_lost_begins_where_the_one_before_it_ended() {
    let world = World::new();
    let (began, changed) = (AT - 3 * DAY, AT - DAY);
    world.starts_one("i", "small", began).await;
    world.stops_one("i", "small", changed).await;
    let truth = snapshot(AT, &[since("i", "large", began)]);
    world.starts_from(&truth, [("large", changed)]).await;
    let moments = [began, changed - 1, changed, AT];
    assert_eq!(world.run_at("i", &moments), [1; 4]);
    assert_agrees(&world.compare(&truth).await);
}

#[tokio::test]
async fn a_usage_that_was_stopped_by_mistake_goes_on_where_it_ended() {
    let world = World::new();
    let at = NOW - 2 * HOUR;
    let began = at - 3 * DAY;
    // The start came out of such a proposal itself.
    let first = snapshot(began + 1, &[since("i", "large", began)]);
    world.starts_from(&first, [("large", began)]).await;
    for ended in [at - DAY, at + HOUR / 2] {
        world.stops_one("i", "large", ended).await;
        let truth = snapshot(ended + HOUR, &[since("i", "large", began)]);
        world.starts_from(&truth, [("large", ended)]).await;
        let moments = [began, ended - 1, ended, ended + HOUR];
        assert_eq!(world.run_at("i", &moments), [1; 4]);
    }
}

/// Its start was that very proposal: sent again, it would be a repeat, and nothing would run.
#[tokio::test]
async fn a_usage_that_was_stopped_as_it_began_starts_a_moment_later() {
    let world = World::new();
    let began = AT - DAY;
    let truth = snapshot(AT, &[since("i", "large", began)]);
    world.starts_from(&truth, [("large", began)]).await;
    world.stops_one("i", "large", began).await;
    world.starts_from(&truth, [("large", began + 1)]).await;
    assert_eq!(world.run_at("i", &[AT]), [1]);
}

#[tokio::test]
async fn a_start_is_never_dated_so_far_back_that_it_is_refused() {
    let world = World::new();
    let oldest = NOW - PAST + DAY;
    let long_ago = NOW - 10 * PAST;
    let all = [
        since("i", "large", long_ago),
        since("j", "large", oldest + 7),
    ];
    let answer = world.compare(&snapshot(AT, &all)).await;
    let expected = of([("large", oldest), ("large", oldest + 7)]);
    assert_eq!(starts(&answer), expected);
    // There is a day to apply it.
    world.clock.set(NOW + DAY);
    assert_eq!(world.apply_all(&proposals(&answer)).await, [201, 201]);
    // It is not dated behind the snapshot for that.
    let then = NOW - PAST + 2 * DAY - HOUR;
    let old = snapshot(then, &[since("k", "large", long_ago)]);
    let answer = world.compare(&old).await;
    assert_eq!(starts(&answer), of([("large", then)]));
}

#[tokio::test]
async fn a_start_begins_at_the_snapshot_where_another_plan_ran_until_then() {
    let world = World::new();
    let began = AT - 3 * DAY;
    world.starts_one("i", "small", began).await;
    let truth = snapshot(AT, &[since("i", "large", began), since("i", "huge", began)]);
    let answer = world.compare(&truth).await;
    // What ran is stopped at the moment of the snapshot.
    assert_eq!(lists(&answer)[0], ["i"]);
    assert_eq!(starts(&answer), of([("large", AT), ("huge", AT)]));
    assert_eq!(world.apply_all(&proposals(&answer)).await, [201; 3]);
    assert_eq!(world.run_at("i", &[began, AT - 1, AT]), [1, 1, 2]);
    // Beside a plan that agrees, too.
    let three = ["large", "huge", "third"].map(|plan| since("i", plan, began));
    let answer = world.compare(&snapshot(AT, &three)).await;
    assert_eq!(starts(&answer), of([("third", AT)]));
}

/// Only spans of the same instance and customer count, whenever they ended.
#[tokio::test]
async fn the_spans_of_other_instances_move_no_start() {
    let world = World::new();
    let began = AT - 3 * DAY;
    for (name, plan, start, end) in [
        ("other", "large", began - DAY, AT - 5),
        ("i", "small", began - 2 * DAY, began - DAY),
        ("i", "large", began - DAY, began - 1),
        ("j", "large", began - DAY, began + 3),
        ("j", "small", began + 2, began + 9),
        ("j", "large", began + 4, began + 5),
        ("up-to-at", "small", began, AT),
    ] {
        world.starts_one(name, plan, start).await;
        world.stops_one(name, plan, end).await;
    }
    let all = ["i", "j", "up-to-at"].map(|name| since(name, "large", began));
    let all = [&all[..], &[instance("without", "large")]].concat();
    let answer = world.compare(&snapshot(AT, &all)).await;
    assert_eq!(lists(&answer)[1], ["i", "j", "up-to-at", "without"]);
    let proposed = proposals(&answer).into_iter();
    let moments = proposed.map(|it| it["timestamp"].as_i64().unwrap());
    assert!(moments.eq([began, began + 9, AT, AT]), "{answer:#}");
    assert_eq!(world.apply_all(&proposals(&answer)).await, [201; 4]);
}

/// What the world has overtaken is refused.
#[tokio::test]
async fn a_start_behind_an_end_is_refused_once_the_usage_has_gone_on() {
    let world = World::new();
    let (began, ended) = (AT - 3 * DAY, AT - DAY);
    for name in ["runs", "ran"] {
        world.starts_one(name, "large", began).await;
        world.stops_one(name, "large", ended).await;
    }
    let all = ["runs", "ran"].map(|name| since(name, "large", began));
    let late = proposals(&world.compare(&snapshot(AT, &all)).await);
    world.starts_one("runs", "large", ended + 1).await;
    world.starts_one("ran", "large", ended + 1).await;
    world.stops_one("ran", "large", AT + 1).await;
    let before = world.kept();
    assert_eq!(world.apply_all(&late).await, [409, 422]);
    assert_eq!(world.kept(), before);
}

/// Between the two readings of the spans.
#[tokio::test]
async fn an_instance_whose_start_comes_meanwhile_is_left_alone() {
    let world = World::new();
    let began = AT - 3 * DAY;
    world.starts_one("old", "small", began).await;
    world.stops_one("old", "small", AT - DAY).await;
    world.store.set_behaviour_after_next_page(Behaviour::Held);
    world.starts_one("after", "small", AT + 1).await;
    world.starts_one("again", "large", AT + 1).await;
    world.stops_one("again", "large", AT + 2).await;
    world.starts_one("third", "small", began).await;
    world.starts_one("third", "medium", AT + 1).await;
    let new = ["new", "moved", "meanwhile"];
    let all = ["old", "after", "again", "third"].iter().chain(&new);
    let all: Vec<Value> = all.map(|name| since(name, "large", began)).collect();
    let truth = snapshot(AT, &all);
    let events = async {
        world.store.wait_until_held(1).await;
        world.store.set_behaviour(Behaviour::Served);
        world.starts_one("new", "large", began).await;
        world.starts_one("moved", "small", began).await;
        world.starts_one("meanwhile", "small", AT + 1).await;
        world.store.release();
    };
    let (answer, ()) = tokio::join!(world.compare_once(&truth), events);
    let answer = answer.json();
    assert_lists(&answer, [&["third"], &["old", "meanwhile"], &[]]);
    assert_eq!(starts(&answer), of([("large", AT - DAY), ("large", began)]));
}
