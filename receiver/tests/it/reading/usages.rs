//! The usages of a span.

use sampler_domain::{Span, Usage};
use sampler_store_testing::support::{Changing, done, refusal};
use serde_json::{Value, json};

use super::{at, executed, planned};
use crate::world::{DAY, HOUR, MINUTE, NOW, World};

/// A span with three usages that were accepted, and a fourth that is refused.
async fn with_usages(world: &World) -> (String, Vec<Span>) {
    let location = world.starts("i", NOW).await;
    let mut span = planned(world, &location, NOW + DAY).await;
    let mut plans = vec![span.clone()];
    for end in [NOW + 2 * DAY, NOW + 3 * DAY, NOW + HOUR] {
        span = executed(world, &span, Some(end)).await;
        plans.push(span.clone());
    }
    let mut failure = refusal("no-plan", 0, at(NOW));
    failure.at = at(NOW + 3 * DAY + HOUR);
    done(world.store.memory.failed(&span, failure).await);
    (location, plans)
}

#[tokio::test]
async fn usages_come_in_the_order_in_which_they_were_planned_and_what_is_not_answered_last() {
    let world = World::new();
    let (location, plans) = with_usages(&world).await;
    let path = format!("{location}/usages");
    let id = location.strip_prefix("/v1/spans/").unwrap();
    let usage = |number: usize| {
        let planned = plans[number].processing.planned.as_ref().unwrap();
        let interval = planned.interval;
        json!({
            "id": planned.usage_guid, "span": id, "interval": interval,
            "timestamp": interval.midpoint(), "duration": interval.duration(),
            "state": "accepted", "attempts": 1, "planned_at": planned.planned_at,
            "accepted_at": planned.planned_at.plus(MINUTE), "status": 202,
            "location": "https://abacus/1", "error": null, "unanswered": false, "withheld": false,
            // As it is posted.
            "measured_usage": Usage::new(&plans[number], planned).measured_usage,
        })
    };
    let mut refused = usage(3);
    assert_eq!(refused["duration"], HOUR - 3 * DAY);
    let posted = refused["measured_usage"].as_array().unwrap();
    let duration = json!({ "measure": "duration", "quantity": HOUR - 3 * DAY });
    assert_eq!((posted.len(), posted.last()), (3, Some(&duration)));
    refused["state"] = json!("refused");
    refused["accepted_at"] = Value::Null;
    refused["status"] = json!(400);
    refused["location"] = Value::Null;
    refused["error"] = json!("no-plan");
    let all = [usage(0), usage(1), usage(2), refused];
    for (limit, count) in [(1, 4), (2, 2), (3, 2), (4, 1)] {
        let (items, pages) = world.pages(&format!("{path}?limit={limit}")).await;
        assert_eq!(items, all, "{limit}");
        assert_eq!(pages, count, "{limit}");
    }
    // By their timestamps: the middle of a day each, and the fourth's of the first three but an hour.
    let half = NOW + DAY / 2;
    let first = format!("{path}?from={half}&to={}", half + DAY);
    assert_eq!(world.items(&first).await, all[..1]);
    let others = format!("{path}?from={}&limit=1", half + 1);
    assert_eq!(world.items(&others).await, all[1..]);
}

/// A dispute is about the end: the list can begin there.
#[tokio::test]
async fn usages_come_from_the_end_too() {
    let world = World::new();
    let (location, _) = with_usages(&world).await;
    let path = format!("{location}/usages");
    let mut expected = world.items(&path).await;
    expected.reverse();
    assert_eq!(expected.len(), 4);
    for limit in 1..=5 {
        let newest = format!("{path}?order=newest&limit={limit}");
        assert_eq!(world.items(&newest).await, expected, "{limit}");
    }
    let first = world.get(&format!("{path}?order=newest&limit=1")).await;
    let second = world.get(&first.linked("next").unwrap()).await;
    assert_eq!(second.header("link").unwrap().matches("rel=").count(), 1);
}
