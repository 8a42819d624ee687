//! The usages of a span.

use sampler_domain::{Entry, Usage};
use serde_json::json;

use crate::event::{on, stop};
use crate::world::{DAY, HOUR, NOW, World};

/// A span with three usages that were accepted an hour after they were due, and a fourth that takes back all but
/// an hour; a fifth is planned again.
async fn with_usages(world: &World) -> (String, Vec<Entry>) {
    let location = world.starts("i", NOW).await;
    let mut entries = Vec::new();
    for day in 1..=3 {
        world.goes_on(&location, NOW + day * DAY).await;
        entries.push(world.accepts(&location, NOW + day * DAY + HOUR).await);
    }
    world.clock.set(NOW + 3 * DAY);
    world
        .stop(&on("i", &stop(NOW + 2 * DAY + HOUR)))
        .await
        .is_created();
    world.goes_on(&location, NOW + 4 * DAY).await;
    entries.push(world.accepts(&location, NOW + 4 * DAY + HOUR).await);
    (location, entries)
}

#[tokio::test]
async fn usages_come_in_the_order_in_which_they_were_accepted() {
    let world = World::new();
    let (location, entries) = with_usages(&world).await;
    let path = format!("{location}/usages");
    let id = location.strip_prefix("/v1/spans/").unwrap();
    let usage = |number: usize| {
        let (entry, interval) = (&entries[number], entries[number].interval);
        json!({
            "id": entry.usage_guid, "span": id, "interval": interval,
            "timestamp": interval.midpoint(), "duration": interval.duration(),
            // As it is posted.
            "measured_usage": Usage::of_entry(entry).measured_usage,
            "accepted_at": entry.acceptance.at, "status": 202, "location": "https://abacus/1",
        })
    };
    let all = [usage(0), usage(1), usage(2), usage(3)];
    assert_eq!(all[3]["duration"], HOUR - DAY);
    let posted = all[3]["measured_usage"].as_array().unwrap();
    let duration = json!({ "measure": "duration", "quantity": HOUR - DAY });
    assert_eq!((posted.len(), posted.last()), (3, Some(&duration)));
    let mut newest = all.to_vec();
    newest.reverse();
    for (limit, count) in [(1, 4), (2, 2), (3, 2), (4, 1)] {
        let (items, pages) = world.pages(&format!("{path}?limit={limit}")).await;
        assert_eq!((items, pages), (all.to_vec(), count), "{limit}");
        let (items, pages) = world
            .pages(&format!("{path}?order=newest&limit={limit}"))
            .await;
        assert_eq!((items, pages), (newest.clone(), count), "{limit}");
    }
    // By their timestamps: the middle of a day each.
    let half = NOW + DAY / 2;
    let first = format!("{path}?from={half}&to={}", half + DAY);
    assert_eq!(world.items(&first).await, all[..1]);
    let others = format!("{path}?from={}&limit=1", half + 1);
    assert_eq!(world.items(&others).await, all[1..]);
    // By their acceptance.
    let accepted = NOW + 2 * DAY + HOUR;
    for (accepted_to, count) in [(accepted - 1, 1), (accepted, 2)] {
        let early = format!("{path}?accepted_to={accepted_to}");
        assert_eq!(world.items(&early).await, all[..count]);
        let early = format!("{path}?accepted_to={accepted_to}&order=newest&limit=1");
        assert_eq!(world.items(&early).await, newest[4 - count..]);
    }
}

#[tokio::test]
async fn a_page_links_to_the_next_alone() {
    let world = World::new();
    let (location, _) = with_usages(&world).await;
    let first = world
        .get(&format!("{location}/usages?order=newest&limit=1"))
        .await;
    let second = world.get(&first.linked("next").unwrap()).await;
    assert_eq!(second.header("link").unwrap().matches("rel=").count(), 1);
}
