//! What usages add up to, as those see it who ask.

use std::sync::Arc;
use std::time::Duration;

use sampler_domain::{
    Entry, Granularity, Id, Interval, Measure, Measures, Quantity, Span, SpanId, StartEvent,
    Target, Timestamp,
};
use serde_json::{Value, json};
use tokio::task::yield_now;
use tokio::time::timeout;

use crate::auth::{bearer_of, secured};
use crate::reading_scopes::billed;
use crate::store::Behaviour;
use crate::world::{DAY, HOUR, NOW, SUMS, World, at};

impl World {
    /// Keeps an accepted usage of a resource and plan, of an hour that begins so late after [`NOW`].
    async fn billed(&self, resource: &str, plan: &str, hour: i64, quantity: Value) {
        let times = (hour * HOUR, (hour + 1) * HOUR);
        let entry = self.entry(resource, plan, times, quantity);
        self.store.keep(&entry).await;
    }

    /// An entry of some time after [`NOW`], which was accepted at its end.
    fn entry(&self, resource: &str, plan: &str, times: (i64, i64), quantity: Value) -> Entry {
        let measure = Measure {
            measure: Id::from_store("memory"),
            quantity: Quantity::from_store(quantity),
        };
        let (start, end) = (at(NOW + times.0), at(NOW + times.1));
        let event = StartEvent {
            id: None,
            timestamp: start,
            target: Target::from_store(["o", "s", "c", resource, plan, "i"]),
            measures: Measures::from_store(vec![measure]),
        };
        let memory = &self.store.memory;
        let number = memory.with(|table| table.entries().count() as u64);
        let mut entry = billed(&Span::open(SpanId::new(start, number), event, start));
        entry.interval = Interval { start, end };
        entry.acceptance.at = end;
        entry
    }
}

#[tokio::test]
async fn sums_are_shown_by_window_and_group() {
    let world = World::new();
    for hour in 20..28 {
        world.billed("postgres", "large", hour, json!(512)).await;
    }
    world.billed("redis", "small", 20, json!(0.5)).await;
    world.billed("redis", "small", 20, json!("much")).await;
    let row = |(start, end): (i64, i64), group: Value, usages: i64, amount: Value| {
        json!({
            "window": { "start": start, "end": end }, "group": group,
            "usages": usages, "duration": usages * HOUR,
            "measures": [{ "measure": "memory", "amount": amount }],
        })
    };
    let (first, second) = ((NOW, NOW + DAY), (NOW + DAY, NOW + 2 * DAY));
    let postgres = json!({ "plan_id": "large", "resource_id": "postgres" });
    let redis = json!({ "plan_id": "small", "resource_id": "redis" });
    let expected = [
        row(first, postgres.clone(), 4, json!(4 * 512 * HOUR)),
        row(first, redis, 2, Value::Null),
        row(second, postgres, 4, json!(4 * 512 * HOUR)),
    ];
    let range = format!("from={NOW}&to={}", NOW + 2 * DAY);
    let path = format!("{SUMS}&window=day&group_by=plan_id,resource_id&{range}");
    for (limit, pages) in [(1, 3), (2, 2), (3, 1), (1_000, 1)] {
        let (items, count) = world.pages(&format!("{path}&limit={limit}")).await;
        assert_eq!((items, count), (expected.to_vec(), pages), "{limit}");
    }
    // All at once, for which no moments need be given.
    let all = format!("{SUMS}&resource_id=postgres");
    let ever = (0, Timestamp::MAX.as_millis());
    let expected = row(ever, json!({}), 8, json!(8 * 512 * HOUR));
    assert_eq!(world.items(&all).await, [expected]);
    let none = world.pages("/v1/usages?organization_id=p").await;
    assert_eq!(none, (Vec::new(), 1));
}

#[tokio::test]
async fn the_unit_of_a_measure_is_named_where_it_is_set() {
    let world =
        World::with(|options| options.settings.reading.units = "memory = \"MB\"".parse().ok());
    world.billed("postgres", "large", 20, json!(512)).await;
    let items = world.items(SUMS).await;
    let expected = json!([{ "measure": "memory", "amount": 512 * HOUR, "unit": "MB" }]);
    assert_eq!(items[0]["measures"], expected);
}

#[tokio::test]
async fn a_cursor_is_one_of_the_same_sums() {
    let world = World::new();
    world.billed("a", "x", 1, json!(1)).await;
    world.billed("b", "x", 1, json!(1)).await;
    let range = format!("window=day&from={NOW}&to={}", NOW + DAY);
    let sums = format!("{SUMS}&{range}&group_by=resource_id");
    let page = world.get(&format!("{sums}&limit=1")).await;
    let next = page.linked("next").unwrap();
    let cursor = next.split("cursor=").nth(1).unwrap();
    let rest = world.items(&format!("{sums}&cursor={cursor}")).await;
    assert_eq!(rest.len(), 1);
    let others = [
        format!("{SUMS}&{range}&cursor={cursor}"),
        format!("{SUMS}&{range}&group_by=resource_id,plan_id&cursor={cursor}"),
        format!("{SUMS}&group_by=resource_id&cursor={cursor}"),
        format!("/v1/spans?organization_id=o&cursor={cursor}"),
    ];
    for other in others {
        let answer = world.get(&other).await;
        answer.names(400, "invalid-query", &["cursor"]);
    }
}

#[tokio::test]
async fn sums_that_are_too_wide_are_told_what_to_add() {
    let world = World::new();
    for query in ["", "?space_id=a&plan_id=b&consumer_id=c&window=all"] {
        let answer = world.get(&format!("/v1/usages{query}")).await;
        let fields = ["organization_id", "resource_id", "resource_instance_id"];
        answer.tells(422, "query-too-wide", &fields);
    }
    let range = |days: i64, more: i64| format!("from={NOW}&to={}", NOW + days * DAY + more);
    for (query, is_fit) in [
        (format!("window=day&{}", range(366, 0)), true),
        (format!("window=day&{}", range(366, 1)), false),
        (format!("window=hour&{}", range(16, 0)), false),
        (format!("window=month&from={NOW}"), false),
        ("window=month".to_owned(), false),
        ("window=all".to_owned(), true),
    ] {
        let answer = world.get(&format!("{SUMS}&{query}")).await;
        if is_fit {
            assert_eq!(answer.status, 200, "{query}");
        } else {
            answer.tells(422, "query-too-wide", &["366"]);
        }
    }
    assert_eq!(world.store.calls(), 2);
}

/// Of all requests of a client, one alone stands in the queue of all.
#[tokio::test]
async fn one_client_that_adds_up_without_end_takes_no_sums_away_from_others() {
    let (key, world) = secured();
    let world = Arc::new(world);
    world.store.set_behaviour(Behaviour::Held);
    let ask = |client: &str| {
        let (world, bearer) = (Arc::clone(&world), bearer_of(&key, client));
        tokio::spawn(async move { world.ask("GET", SUMS, &[&bearer], &Value::Null).await })
    };
    let hostile: Vec<_> = (0..16).map(|_| ask("hostile")).collect();
    world.store.wait_until_held(1).await;
    let honest = ask("honest");
    for _ in 0..100 {
        yield_now().await;
    }
    for held in [2, 3] {
        world.store.release_one();
        world.store.wait_until_held(held).await;
    }
    assert_eq!(honest.await.unwrap().status(), 200);
    let answered = hostile.iter().filter(|it| it.is_finished()).count();
    assert!(answered <= 1, "{answered} of the other");
    world.store.release();
}

#[tokio::test(start_paused = true)]
async fn one_request_adds_up_at_a_time_and_a_client_that_goes_away_changes_nothing() {
    let world = World::new();
    world.billed("postgres", "large", 1, json!(1)).await;
    world.store.set_behaviour(Behaviour::Held);
    let soon = Duration::from_millis(10);
    assert!(timeout(soon, world.get(SUMS)).await.is_err());
    world.store.wait_until_held(1).await;
    world.store.set_behaviour(Behaviour::Served);
    // The store still works on what nobody waits for.
    let beyond = world.get(SUMS).await;
    beyond.names(503, "overloaded", &[]);
    beyond.may_come_again_after(1);
    // Others read all the while.
    assert_eq!(world.get("/v1/spans?organization_id=o").await.status, 200);
    world.store.release();
    assert_eq!(world.items(SUMS).await.len(), 1);
}

#[tokio::test]
async fn what_cannot_be_added_up_is_told() {
    let world = World::new();
    for (behaviour, status, slug) in [
        (Behaviour::Overloaded, 422, "query-too-wide"),
        (Behaviour::Unavailable, 503, "database-unavailable"),
        (Behaviour::Unknown, 503, "database-unavailable"),
        (Behaviour::Preparing, 503, "database-unavailable"),
        (Behaviour::Refused, 500, "internal"),
        (Behaviour::Panics, 503, "database-unavailable"),
    ] {
        world.store.set_behaviour(behaviour);
        let answer = world.get(SUMS).await;
        answer.names(status, slug, &[]);
        let text = answer.text();
        // Only here would asking again be of no use: the answer says what to ask instead.
        let is_told = ["window", "from and to", "fields of the target"].map(|it| text.contains(it));
        assert_eq!(is_told, [slug == "query-too-wide"; 3], "{text}");
    }
}

#[tokio::test]
async fn the_figures_of_an_invoice_can_be_had_again() {
    let world = World::new();
    world.billed("postgres", "large", 20, json!(512)).await;
    world.billed("postgres", "large", 30, json!(512)).await;
    let first = NOW + 21 * HOUR;
    for (accepted_to, usages) in [(first - 1, 0), (first, 1), (first + 10 * HOUR, 2)] {
        let path = format!("{SUMS}&accepted_to={accepted_to}");
        let items = world.items(&path).await;
        let count: i64 = items.iter().map(|it| it["usages"].as_i64().unwrap()).sum();
        assert_eq!(count, usages);
    }
}

/// A sum counts a usage wholly or not at all. Where that would be wrong, there is no sum.
#[tokio::test]
async fn times_that_cut_a_usage_are_refused_with_those_that_fit() {
    let world = World::new();
    let mut entry = world.entry("postgres", "large", (0, DAY), json!(1));
    entry.dimension = Granularity::Day;
    world.store.keep(&entry).await;
    let ask = async |query: &str| world.get(&format!("{SUMS}&{query}")).await;
    let noon = NOW + DAY / 2;
    for query in [format!("to={noon}"), format!("from={noon}")] {
        let answer = ask(&query).await;
        let fit = ["day", "2018-08-03T00:00:00", "2018-08-04T00:00:00"];
        answer.tells(422, "cut-usage", &fit);
    }
    let range = format!("from={NOW}&to={}", NOW + DAY);
    let answer = ask(&format!("window=hour&{range}")).await;
    answer.tells(422, "cut-usage", &["day", "window"]);
    for query in [
        range.clone(),
        format!("window=day&{range}"),
        format!("to={NOW}"),
    ] {
        assert_eq!(ask(&query).await.status, 200, "{query}");
    }
}
