//! Each kind of problem that an event can meet is answered alike, alone and in a batch; and each kind
//! there is, is one of those or cannot be about one event.

use std::collections::BTreeSet;
use std::sync::Arc;

use sampler_oauth::Algorithm;
use sampler_service::environment::{Clock, SystemClock};
use sampler_store_testing::memory::MemoryStore;
use sampler_testkit::uaa::SigningKey;
use serde_json::{Value, json};

use crate::auth_fixture::{ask, claims, configured, router_to, token};
use crate::batches::{NDJSON, Typed, alone, comparable, lines, results, table};
use crate::event::{by, start};
use crate::store::Behaviour;
use crate::world::{EVENTS, NOW, START, World, request, request_as};

/// What an event can be answered with.
const OF_EVENTS: [&str; 15] = [
    "database-unavailable",
    "forbidden",
    "id-taken",
    "internal",
    "invalid-event",
    "malformed-json",
    "no-open-span",
    "open-span",
    "outside-slack",
    "overlapping-start",
    "overloaded",
    "payload-too-large",
    "stop-before-start",
    "throttled",
    "update-incomplete",
];

/// What is about the request that carries events, and meets all of them alike: its head, its token, its
/// body as a whole. A dry run is one, too.
const OF_REQUESTS: [&str; 9] = [
    "dry-run-unavailable",
    "invalid-query",
    "method-not-allowed",
    "not-found",
    "misdirected",
    "request-timeout",
    "token-server-unavailable",
    "unauthorized",
    "unsupported-media-type",
];

/// What no address of events answers.
fn is_about_something_else(slug: &str) -> bool {
    [
        "mapping-",
        "provisioning-",
        "no-such-",
        "not-",
        "precondition-",
        "invalid-body",
        "invalid-snapshot",
        "query-too-wide",
        "unhealthy",
        "shutting-down",
    ]
    .iter()
    .any(|beginning| slug.starts_with(beginning))
}

/// The name of a kind of problem.
fn slug(problem: &Value) -> Option<String> {
    let kind = problem["type"].as_str()?;
    Some(kind.trim_start_matches("/problems/").to_owned())
}

/// Sends events alone and in a batch, each to a world of its own, and says with what problems they are
/// answered.
async fn both(world: impl AsyncFn() -> World, events: &[Typed]) -> BTreeSet<String> {
    let expected = alone(&world().await, events).await;
    let together = world().await;
    let answer = together
        .send(request_as(NDJSON, EVENTS, lines(events)))
        .await;
    let results = results(&answer).into_iter();
    let mut slugs = BTreeSet::new();
    for (mut result, expected) in results.map(comparable).zip(expected) {
        let waits = result.as_object_mut().unwrap().shift_remove("retry_after");
        assert_eq!(result, expected);
        assert_eq!(waits.is_some(), result["status"] == 503, "{result}");
        slugs.extend(slug(&result["problem"]));
    }
    slugs
}

/// The same for what is no JSON.
async fn both_malformed() -> BTreeSet<String> {
    let world = World::new();
    let text = "{\"id\": 1,}";
    let one = world.send(request(START, text)).await.any_problem();
    let answer = world.send(request_as(NDJSON, EVENTS, text)).await;
    let problem = &results(&answer)[0]["problem"];
    assert_eq!(*problem, serde_json::to_value(one).unwrap());
    slug(problem).into_iter().collect()
}

/// The same for a token that does not allow the resource.
async fn both_forbidden() -> BTreeSet<String> {
    let key = SigningKey::rsa("key-1").unwrap();
    let store = Arc::new(MemoryStore::new(|| SystemClock.now()));
    let authenticator = configured(&key.public_pem(), Algorithm::Rs256);
    let router = router_to(store, authenticator);
    let claims = claims(|claims| claims["scope"] = json!(["abacus.sampler.redis.write"]));
    let bearer = format!("Bearer {}", token(&key, &claims));
    let mut event = crate::auth_fixture::start();
    let one = ask(&router, START, &[&bearer], &event).await;
    assert_eq!(one.status, 403);
    event["type"] = json!("start");
    let all = ask(&router, EVENTS, &[&bearer], &json!([event])).await;
    assert_eq!(all.status, 200, "{}", all.text);
    let all: Value = serde_json::from_str(&all.text).unwrap();
    let one: Value = serde_json::from_str(&one.text).unwrap();
    assert_eq!(all["results"][0]["status"], 403);
    assert_eq!(all["results"][0]["problem"], one);
    slug(&one).into_iter().collect()
}

#[tokio::test]
async fn each_kind_of_problem_is_the_same_alone_and_in_a_batch() {
    let mut met = both(async || World::new(), &table()).await;
    let event = ("start", by("a", &start(NOW)));
    for behaviour in [
        Behaviour::Unavailable,
        Behaviour::Unknown,
        Behaviour::Lost,
        Behaviour::Overloaded,
        Behaviour::Refused,
        Behaviour::TakenElsewhere,
    ] {
        let world = async || {
            let world = World::new();
            world.store.set_behaviour(behaviour);
            world
        };
        met.extend(both(world, std::slice::from_ref(&event)).await);
    }
    let drained = async || {
        let world = World::new();
        world.let_in(0.0).await;
        world
    };
    met.extend(both(drained, &[event]).await);
    met.extend(both_malformed().await);
    met.extend(both_forbidden().await);
    let expected = BTreeSet::from(OF_EVENTS.map(ToOwned::to_owned));
    assert_eq!(met, expected);
}

#[test]
fn each_kind_of_problem_is_about_events_or_about_something_else() {
    for kind in sampler_receiver::problems::all() {
        let is_listed = OF_EVENTS.contains(&kind.slug) || OF_REQUESTS.contains(&kind.slug);
        let is_other = is_about_something_else(kind.slug) && !is_listed;
        assert!(is_listed || is_other, "{} can an event meet it?", kind.slug);
    }
}
