//! Habits of HTTP APIs: keys of requests, preferences, moments as texts, webhooks, one client's excess.

use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};

use crate::answer::Answer;
use crate::bodies::headed;
use crate::event::{by, moved, start, stop, with, without};
use crate::world::{EVENTS, HOUR, NOW, START, STOP, UPDATE, World, request};

impl World {
    async fn post_with(&self, path: &str, headers: &[(&str, &str)], event: &Value) -> Answer {
        let mut request = request(path, event.to_string());
        for (name, value) in headers {
            let name = axum::http::HeaderName::try_from(*name).unwrap();
            request.headers_mut().append(name, value.parse().unwrap());
        }
        self.send(request).await
    }

    /// An event is kept, and known when it comes again.
    async fn keeps_once(&self, path: &str, headers: &[(&str, &str)], event: &Value) {
        self.post_with(path, headers, event).await.is_created();
        self.post_with(path, headers, event).await.is_replayed();
    }

    /// Refuses a start that comes with this header.
    async fn refuses_key(&self, keys: &[(&str, &str)], event: &Value) {
        let answer = self.post_with(START, keys, event).await;
        let problem = answer.problem(400, "invalid-event");
        assert_eq!(problem["errors"][0]["header"], keys[0].0, "{keys:?}");
    }
}

#[tokio::test]
async fn a_key_is_another_name_of_the_id() {
    let world = World::new();
    let (event, bare) = (with(&start(NOW), "id", "a b"), start(NOW));
    let key = [("Idempotency-Key", "\"a b\"")];
    world.keeps_once(START, &key, &bare).await;
    for same in [&event, &with(&bare, "id", "")] {
        world.post_with(START, &key, same).await.is_replayed();
    }
    world.start(&event).await.is_replayed();
    world.assert_kept(&[(&event, None)]);
    let one_word = [("Idempotency-Key", "8e03978e-40d5-43e8-bc93-6894a57f9324")];
    world.keeps_once(STOP, &one_word, &stop(NOW + HOUR)).await;
}

#[tokio::test]
async fn a_key_is_that_of_updates_and_cloud_events_too() {
    let world = World::new();
    world.start(&start(NOW)).await.is_created();
    let key = [("Idempotency-Key", "key")];
    let update = without(&moved(NOW + HOUR), "id");
    world.keeps_once(UPDATE, &key, &update).await;
    let data = without(&stop(NOW), "timestamp");
    let data = with(&data, "plan_id", "larger");
    let headers = [
        ("Idempotency-Key", "key"),
        ("ce-specversion", "1.0"),
        ("ce-type", "usage.stop"),
        ("ce-source", "/brokers/a"),
        ("ce-time", "2018-08-03T02:00:00Z"),
    ];
    world.keeps_once(EVENTS, &headers, &data).await;
    let other = [&headers[..], &[("ce-id", "other")]].concat();
    let answer = world.post_with(EVENTS, &other, &data).await;
    answer.problem(400, "invalid-event");
}

/// Headers of what a client would like are no way to what it may not have.
#[tokio::test]
async fn hostile_keys_and_preferences_are_refused_or_mean_nothing() {
    let world = World::new();
    let long = "k".repeat(8_000);
    for key in [
        long.as_bytes(),
        b"\"\xc2\x9b31m\"",
        b"\xe2\x80\xae",
        b"\"\t\"",
        b"\"$ne\" , \"x\"",
    ] {
        let request = request(START, start(NOW).to_string());
        let request = headed(request, "idempotency-key", key);
        world.send(request).await.problem(400, "invalid-event");
    }
    world.assert_kept(&[]);
    let commas = ",;=\"".repeat(2_000);
    let mut preferences = vec![("Prefer", commas.as_str())];
    preferences.extend(vec![("Prefer", "return=representation;x"); 50]);
    let answer = world.post_with(START, &preferences, &start(NOW)).await;
    assert_eq!(answer.status, 201);
    assert_eq!(answer.json()["state"], "open");
}

#[tokio::test]
async fn a_key_that_is_another_id_or_no_key_is_refused() {
    let world = World::new();
    let event = with(&start(NOW), "id", "a");
    for key in [
        "b", "\"A\"", "", "\"\"", "a b", "\"a", "a\"", "\"a\" b", "\"a\\b\"", "a, a",
    ] {
        world.refuses_key(&[("Idempotency-Key", key)], &event).await;
    }
    world
        .refuses_key(&[("Idempotency-Key", "a"); 2], &event)
        .await;
    world.assert_kept(&[]);
    let with_parameter = [("Idempotency-Key", "\"a\";b=c")];
    let answer = world.post_with(START, &with_parameter, &event).await;
    answer.is_created();
}

#[tokio::test]
async fn moments_of_bodies_may_be_texts_with_an_offset() {
    let world = World::new();
    let plain = with(&start(NOW), "id", "a");
    let event = with(&plain, "timestamp", "2018-08-03T02:00:00+02:00");
    world.start(&event).await.is_created();
    world.start(&plain).await.is_replayed();
    world.assert_kept(&[(&plain, None)]);
}

#[tokio::test]
async fn moments_of_answers_are_texts_where_they_are_asked_for() {
    let world = World::new();
    let event = with(&start(NOW), "organization_id", "o");
    world.start(&event).await.is_created();
    let list = "/v1/spans?organization_id=o";
    let plain = world.get_with(list, "accept", "application/json").await;
    let asked = "text/html, application/json; time=rfc3339;q=0.9";
    let request = Request::get(list).header("accept", asked);
    let text = world.answer(request.body(Body::empty()).unwrap()).await;
    let kind = "application/json;time=rfc3339";
    assert_eq!(text.header("content-type"), Some(kind));
    assert_eq!(text.header("vary"), Some("accept"));
    let (plain, text) = (plain.json(), text.json());
    let (plain, text) = (&plain["items"][0], &text["items"][0]);
    assert_eq!(plain["start"], NOW);
    assert_eq!(text["start"], "2018-08-03T00:00:00.000Z");
    for name in ["sampled_to", "due_at"] {
        let is_text = text[name].is_string() && plain[name].is_number();
        assert!(is_text, "{name}: {text}");
    }
    for name in ["id", "target", "measured_usage", "end", "state"] {
        assert_eq!(plain[name], text[name], "{name}");
    }
}

#[tokio::test]
async fn the_answer_has_the_span_where_that_is_preferred() {
    let world = World::new();
    let prefer = [("Prefer", "respond-async, return=representation")];
    let update = by("update", &moved(NOW + HOUR));
    let ended = by("stop", &with(&stop(NOW + 2 * HOUR), "plan_id", "larger"));
    let started = by("start", &start(NOW));
    for (path, event) in [(START, started), (UPDATE, update), (STOP, ended)] {
        for _ in 0..2 {
            let answer = world.post_with(path, &prefer, &event).await;
            assert_eq!(answer.status, 201, "{path}");
            let applied = answer.header("preference-applied");
            assert_eq!(applied, Some("return=representation"), "{path}");
            let span = answer.json();
            let address = format!("/v1/spans/{}", span["id"].as_str().unwrap());
            let read = world.get(&address).await;
            assert_eq!(read.json(), span, "{path}");
        }
    }
    // A usage of no length that follows ends at the same time.
    let larger = |event| with(&event, "plan_id", "larger");
    let ended = by("stop", &larger(stop(NOW + 2 * HOUR)));
    let before = world.post_with(STOP, &prefer, &ended).await.json();
    for (path, event) in [(START, start(NOW + 2 * HOUR)), (STOP, stop(NOW + 2 * HOUR))] {
        let event = by("none", &larger(event));
        world.post_with(path, &[], &event).await.is_created();
    }
    let again = world.post_with(STOP, &prefer, &ended).await.json();
    assert_eq!(again["id"], before["id"]);
    let minimal = [("Prefer", "return=minimal")];
    let again = start(NOW + 3 * HOUR);
    let answer = world.post_with(START, &minimal, &again).await;
    assert!(answer.body.is_empty() && answer.header("preference-applied").is_none());
}

type Handshake = (Option<&'static str>, Option<&'static [u8]>, u16);

/// The origins of the setting, the one that asks, and what it is answered. An end that is a comma names no origin, so
/// neither does what is no text.
#[rustfmt::skip]
const HANDSHAKES: [Handshake; 8] = [
    (Some("a.example, events.example.com"), Some(b"Events.example.com"), 200),
    (Some("a.example, events.example.com"), Some(b"example.com"), 403),
    (Some("a.example, events.example.com"), None, 405),
    (Some("a.example,"), Some(b""), 405),
    (Some("a.example,"), Some(b"\xff"), 405),
    (Some("a.example,"), Some(b"a.example\xff"), 405),
    (Some("*"), Some(b"x.example"), 200),
    (None, Some(b"a.example"), 405),
];

#[tokio::test]
async fn an_origin_that_is_named_may_send_webhooks() {
    for (named, origin, status) in HANDSHAKES {
        let world = World::with(|options| {
            options.settings.events.webhook_origins = named.map(str::to_owned);
        });
        let mut request = Request::builder().method("OPTIONS").uri(EVENTS);
        if let Some(origin) = origin {
            request = request.header("WebHook-Request-Origin", origin);
        }
        let request = request.header("WebHook-Request-Rate", "120");
        let answer = world.send(request.body(Body::empty()).unwrap()).await;
        assert_eq!(answer.status, status, "{named:?} {origin:?}");
        let allowed = answer.header("webhook-allowed-origin").map(str::as_bytes);
        assert_eq!(allowed, origin.filter(|_| status == 200));
        match status {
            200 => assert_eq!(answer.header("webhook-allowed-rate"), Some("*")),
            403 => answer.names(403, "forbidden", &[]),
            _ => {
                answer.names(405, "method-not-allowed", &[]);
                assert_eq!(answer.header("allow"), Some("POST"));
            }
        }
    }
}

#[tokio::test]
async fn the_description_has_a_server_and_what_cloud_events_carry() {
    let world = World::new();
    let document = world.get("/openapi.json").await.json();
    assert_eq!(document["servers"][0]["url"], "/");
    let data = &document["components"]["schemas"]["CloudEvent"]["properties"]["data"];
    assert_eq!(data["$ref"], "#/components/schemas/CloudEventData");
    let data = &document["components"]["schemas"]["CloudEventData"];
    let required = data["required"].as_array().unwrap();
    assert!(required.contains(&json!("resource_id")));
}
