//! The usages of a span.

use sampler_domain::{Acceptance, Entry, Span, Usage};
use sampler_store::Ledger;
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

/// A dispute is about the end: the list begins there, and leads back and forth.
#[tokio::test]
async fn usages_come_from_the_end_and_pages_lead_in_both_directions() {
    let world = World::new();
    let (location, _) = with_usages(&world).await;
    let path = format!("{location}/usages");
    let ids = |items: &[Value]| -> Vec<String> {
        let ids = items.iter().map(|item| item["id"].as_str().unwrap());
        ids.map(str::to_owned).collect()
    };
    let mut expected = ids(&world.items(&path).await);
    expected.reverse();
    assert_eq!(expected.len(), 4);
    for limit in 1..=5 {
        let newest = format!("{path}?order=newest&limit={limit}");
        let items = world.items(&newest).await;
        assert_eq!(ids(&items), expected, "{limit}");
    }
    for order in ["newest", "oldest"] {
        let mut pages = Vec::new();
        let mut address = Some(format!("{path}?order={order}&limit=1"));
        let mut links = Vec::new();
        while let Some(here) = address {
            let answer = world.get(&here).await;
            address = answer.linked("next");
            links.push(answer.linked("prev"));
            let page = answer.json();
            pages.push(ids(page["items"].as_array().unwrap()));
        }
        assert_eq!(pages.len(), 4, "{order}");
        assert_eq!(links[0], None, "{order}");
        for (page, link) in links.iter().enumerate().skip(1) {
            let before = world.read(link.as_deref().unwrap()).await;
            let before = ids(before["items"].as_array().unwrap());
            assert_eq!(before, pages[page - 1], "{order} {page}");
        }
    }
}

#[tokio::test]
async fn the_ledger_is_told_as_it_was() {
    let world = World::new();
    let (location, _) = with_usages(&world).await;
    let states = async |at: i64| {
        let then = format!("{location}/usages?as_of={at}&limit=1");
        let items = world.items(&then).await;
        let state = |item: &Value| {
            let is_answered = !item["accepted_at"].is_null();
            assert_eq!(is_answered, item["state"] == "accepted", "{item}");
            assert_eq!(is_answered, !item["location"].is_null(), "{item}");
            item["state"].as_str().unwrap().to_owned()
        };
        items.iter().map(state).collect::<Vec<_>>()
    };
    let (done, third) = ("accepted", NOW + 3 * DAY);
    for (at, expected) in [
        (NOW - 1, &[][..]),
        (NOW, &["planned"]),
        (NOW + MINUTE, &[done]),
        (NOW + DAY, &[done, "planned"]),
        (third, &[done, done, done, "planned"]),
        (third + HOUR, &[done, done, done, "refused"]),
    ] {
        assert_eq!(states(at).await, expected, "{at}");
    }
}

/// Abacus sets a usage aside twice. Of what it said later, nothing shows for earlier moments.
#[tokio::test]
async fn a_usage_that_was_put_aside_twice_is_told_as_it_was() {
    let world = World::new();
    let location = world.starts("i", NOW).await;
    let span = planned(&world, &location, NOW + HOUR).await;
    let later = |minutes: i64| at(NOW + HOUR + minutes * MINUTE);
    let acceptance = |number: i64| Acceptance {
        at: later(number),
        status: Some(202),
        location: Some(format!("https://abacus/{number}")),
    };
    let entry = Entry::of_accepted(&span, acceptance(10)).unwrap();
    let entry = entry.set_aside(later(20), "first");
    let entry = entry.resent(&acceptance(30)).set_aside(later(40), "second");
    let memory = &world.store.memory;
    memory.write_entry(entry, DAY).await.unwrap();
    let expected = [
        (10, "accepted", Value::Null, Value::Null),
        (20, "set_aside", Value::Null, Value::Null),
        (30, "accepted", json!("https://abacus/30"), Value::Null),
        (40, "set_aside", json!("https://abacus/30"), json!("second")),
    ];
    for (minutes, state, place, error) in expected {
        for as_of in [later(minutes), later(minutes).plus(10 * MINUTE - 1)] {
            let path = format!("{location}/usages?as_of={as_of}");
            let shown = &world.read(&path).await["items"][0];
            assert_eq!(shown["state"], state, "{shown}");
            assert_eq!(shown["accepted_at"], json!(later(10)), "{shown}");
            assert_eq!((&shown["location"], &shown["error"]), (&place, &error));
            assert_eq!(shown["status"].is_null(), place.is_null(), "{shown}");
            let sums = format!("/v1/usages?resource_instance_id=i&as_of={as_of}");
            let sums = world.read(&sums).await;
            let is_counted = sums["items"][0]["usages"] == 1;
            assert_eq!(is_counted, state == "accepted", "{sums}");
        }
    }
}
