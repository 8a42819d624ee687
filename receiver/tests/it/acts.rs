//! Acts of operators on suspended spans and their causes.

use axum::body::Body;
use axum::http::Request;
use sampler_domain::{CauseId, EXCLUDED_MAX, Excluded, Interval};
use serde_json::{Value, json};

use crate::answer::Answer;
use crate::event::{on, start, stop, with};
use crate::store::Behaviour;
use crate::world::{DAY, HOUR, NOW, World, at};

pub(crate) const REASON: &str = "The plan has its mapping.";

/// The body of an act that says nothing but why.
pub(crate) fn because() -> Value {
    json!({ "reason": REASON })
}

impl World {
    /// A span whose first day is refused, and its cause. A day has gone.
    pub(crate) async fn suspended(&self, instance: &str, resource: &str) -> (String, CauseId) {
        let event = on(instance, &start(NOW));
        let answer = self.start(&with(&event, "resource_id", resource)).await;
        let location = answer.header("location").unwrap().to_owned();
        self.clock.set(NOW + DAY);
        self.goes_on(&location, NOW + DAY).await;
        let span = self.refuses(&location, NOW + DAY).await;
        (location, span.suspension().unwrap().cause)
    }

    /// Acts on a span as it is now.
    pub(crate) async fn act_on(&self, location: &str, act: &str, body: &Value) -> Answer {
        let seen = tag_of(&self.get(location).await);
        let path = format!("{location}/{act}");
        self.act(&path, Some(&seen), body).await
    }

    pub(crate) async fn act(&self, path: &str, tag: Option<&str>, body: &Value) -> Answer {
        self.change("POST", path, tag, body).await
    }

    /// Changes what was seen with this tag.
    pub(crate) async fn change(
        &self,
        method: &str,
        path: &str,
        tag: Option<&str>,
        body: &Value,
    ) -> Answer {
        let request = Request::builder().method(method).uri(path);
        let mut request = request.header("content-type", "application/json");
        if let Some(tag) = tag {
            request = request.header("if-match", tag);
        }
        let body = Body::from(body.to_string());
        self.send(request.body(body).unwrap()).await
    }

    /// The acts in the trail, the newest first: what, how it ended, and about what.
    pub(crate) async fn trail_of_acts(&self) -> Vec<[String; 3]> {
        let trail = self.items("/v1/audit").await;
        let text = |item: &Value, name: &str| item[name].as_str().unwrap().to_owned();
        let act = |item: &Value| ["act", "outcome", "subject"].map(|name| text(item, name));
        trail.iter().map(act).collect()
    }
}

pub(crate) fn tag_of(answer: &Answer) -> String {
    answer.header("etag").unwrap().to_owned()
}

#[tokio::test]
async fn a_span_is_resumed_as_it_was_seen() {
    let world = World::new();
    let (location, cause) = world.suspended("1", "postgres").await;
    let shown = world.get(&location).await;
    let due_at = shown.json()["due_at"].clone();
    assert_eq!(due_at, Value::Null, "it waits for its cause");
    let seen = tag_of(&shown);
    let path = format!("{location}/resume");
    let body = because();
    let unseen = world.act(&path, None, &body).await;
    unseen.problem(428, "precondition-required");
    let stale = world.act(&path, Some("\"stale\""), &body).await;
    stale.problem(412, "precondition-failed");
    assert_eq!(world.trail_of_acts().await, [[""; 3]; 0]);
    // A proxy that compresses weakens the tag.
    let answer = world.act(&path, Some(&format!("W/{seen}")), &body).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    // It is as it will be read from now on, and due at once.
    let again = world.get(&location).await;
    assert_eq!(answer.json(), again.json());
    assert_eq!(tag_of(&answer), tag_of(&again));
    assert_eq!(answer.json()["state"], "open");
    assert_eq!(answer.json()["due_at"], NOW + DAY);
    let failure = world.span_at(&location).processing.failure.unwrap();
    assert_eq!((failure.suspension, failure.refusals), (None, 0));
    let act = &world.items("/v1/audit").await[0];
    for (pointer, expected) in [
        ("/reason", REASON),
        ("/act", "span.resume"),
        ("/outcome", "done"),
        ("/subject", &location),
        ("/before/state", "suspended"),
        ("/after/state", "open"),
        ("/before/cause", &cause.to_string()),
    ] {
        assert_eq!(act.pointer(pointer).unwrap(), expected, "{pointer}");
    }
    // Once is enough.
    let twice = world.act(&path, Some(&tag_of(&again)), &body).await;
    twice.problem(409, "not-suspended");
    let stale = world.act(&path, Some(&seen), &body).await;
    stale.problem(412, "precondition-failed");
    assert_eq!(world.trail_of_acts().await.len(), 1);
}

#[tokio::test]
async fn what_is_refused_is_skipped_at_once() {
    let world = World::new();
    let (location, _) = world.suspended("1", "postgres").await;
    let body = because();
    let answer = world.act_on(&location, "skip", &body).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let shown = answer.json();
    assert_eq!(shown, world.read(&location).await);
    let range =
        json!({ "start": NOW, "end": NOW + DAY, "unanswered": false, "error": "no mapping" });
    assert_eq!(shown["excluded"], json!([range]));
    assert_eq!(
        (&shown["state"], &shown["planned"]),
        (&json!("open"), &Value::Null)
    );
    assert_eq!([&shown["sampled_to"], &shown["due_at"]], [NOW + DAY; 2]);
    let proof = json!({
        "used": DAY, "billed": 0, "skipped": DAY, "unanswered": 0, "unsampled": 0,
        "usages": 0, "ledger": 0, "difference": 0,
    });
    assert_eq!(shown["proof"], proof);
    let expected = ["span.skip".to_owned(), "done".to_owned(), location.clone()];
    assert_eq!(world.trail_of_acts().await, [expected]);
    let act = &world.items("/v1/audit").await[0];
    assert_eq!(act["before"]["planned"]["end"], NOW + DAY);
    assert_eq!(act["after"]["target"], shown["target"]);
    let range = json!({ "start": NOW, "end": NOW + DAY, "duration": DAY });
    assert_eq!(act["after"]["ranges"], json!([range]));
    let twice = world.act_on(&location, "skip", &body).await;
    twice.problem(409, "not-suspended");
}

/// Only the usage that is planned may have been posted.
#[tokio::test]
async fn one_action_skips_up_to_a_later_boundary() {
    let world = World::new();
    let (location, _) = world.suspended("1", "postgres").await;
    world.alter(&location, |span| {
        span.processing.planned.as_mut().unwrap().unanswered = true;
    });
    world.clock.set(NOW + 40 * DAY);
    let body = json!({ "reason": REASON, "until": "2018-09-02T02:00:00+02:00" });
    let answer = world.act_on(&location, "skip", &body).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let until = NOW + 30 * DAY;
    let range = |start: i64, end: i64, unanswered: bool| json!({ "start": start, "end": end, "unanswered": unanswered, "error": "no mapping" });
    let shown = answer.json();
    let expected = [range(NOW, NOW + DAY, true), range(NOW + DAY, until, false)];
    assert_eq!(shown["excluded"], json!(expected));
    assert_eq!(shown["sampled_to"], until);
    let proof = &shown["proof"];
    assert_eq!([&proof["skipped"], &proof["unanswered"]], [30 * DAY, DAY]);
    let act = &world.items("/v1/audit").await[0];
    let range = json!({ "start": NOW, "end": until, "duration": 30 * DAY });
    assert_eq!(act["after"]["ranges"], json!([range]));
}

/// The rules are the domain's. Each refusal has its problem.
#[tokio::test]
async fn what_cannot_be_skipped_is_told_why() {
    let world = World::new();
    let (location, _) = world.suspended("1", "postgres").await;
    world.clock.set(NOW + 9 * DAY);
    world.stop(&on("1", &stop(NOW + 8 * DAY + HOUR))).await;
    // Too early, no boundary, after the stop, and after now.
    for (until, now) in [
        (NOW, NOW + 9 * DAY),
        (NOW + 2 * DAY - 1, NOW + 9 * DAY),
        (NOW + 9 * DAY, NOW + 9 * DAY),
        (NOW + 2 * DAY, NOW + 2 * DAY - 1),
    ] {
        world.clock.set(now);
        let body = json!({ "reason": REASON, "until": until });
        let answer = world.act_on(&location, "skip", &body).await;
        answer.names(422, "invalid-until", &["#/until"]);
    }
    let range = |number: usize| {
        let start = NOW - i64::try_from(number + 1).unwrap() * 2 * DAY;
        let (start, end) = (at(start), at(start + DAY));
        Excluded {
            interval: Interval { start, end },
            back_to: None,
            unanswered: false,
            usage_guid: None,
            error: None,
        }
    };
    world.alter(&location, |span| {
        span.processing.excluded = (0..EXCLUDED_MAX).rev().map(range).collect();
    });
    let answer = world.act_on(&location, "skip", &because()).await;
    answer.problem(409, "too-many-ranges");
    // What a probe posts just now may be accepted.
    world.alter(&location, |span| {
        span.processing.excluded.clear();
        *span = span.resumed(0, true, at(NOW));
    });
    for act in ["skip", "resume"] {
        let answer = world.act_on(&location, act, &because()).await;
        answer.problem(409, "not-suspended");
    }
    assert_eq!(world.trail_of_acts().await, [[""; 3]; 0]);
}

#[tokio::test]
async fn all_spans_of_a_cause_are_resumed_together() {
    let world = World::new();
    let (one, cause) = world.suspended("1", "postgres").await;
    let (other, _) = world.suspended("2", "postgres").await;
    let (redis, _) = world.suspended("3", "redis").await;
    let path = format!("/v1/suspended/{cause}/resume");
    let body = because();
    let answer = world.act(&path, None, &body).await;
    assert_eq!(answer.status, 202, "{answer:?}");
    assert_eq!(answer.json(), json!({ "resumed": 2 }));
    for location in [&one, &other] {
        let shown = world.read(location).await;
        assert_eq!(
            (&shown["state"], &shown["due_at"]),
            (&json!("open"), &json!(NOW + DAY))
        );
        // One more refusal suspends it again, however many a worker allows.
        assert!(world.span_at(location).processing.failure.unwrap().refusals > 1_000);
    }
    assert_eq!(world.read(&redis).await["state"], "suspended");
    let expected = ["cause.resume", "done", &format!("/v1/suspended/{cause}")];
    assert_eq!(world.trail_of_acts().await, [expected.map(str::to_owned)]);
    let cause = cause.to_string();
    let unknown = cause.replace(|letter: char| letter.is_ascii_digit(), "0");
    for id in [&cause, unknown.as_str(), "x", "%ff", &cause.to_uppercase()] {
        let path = format!("/v1/suspended/{id}/resume");
        let answer = world.act(&path, None, &body).await;
        answer.problem(404, "no-such-cause");
    }
}

#[tokio::test]
async fn each_field_that_is_wrong_is_named() {
    let world = World::new();
    let (location, cause) = world.suspended("1", "postgres").await;
    let usage = world.unconfirmed("2", true).await;
    let seen = tag_of(&world.get(&location).await);
    let [skip, again] = ["skip", "resend"].map(|act| format!("{location}/{act}"));
    let resume = format!("/v1/suspended/{cause}/resume");
    let resend = format!("/v1/unconfirmed/{usage}/resend");
    let long = "x".repeat(1_001);
    #[rustfmt::skip]
    let rows: &[(&str, Value, &[&str])] = &[
        (&skip, json!({}), &["#/reason"]),
        (&skip, json!({ "reason": "", "until": 1 }), &["#/reason"]),
        (&skip, json!({ "reason": " \n" }), &["#/reason"]),
        (&skip, json!({ "reason": long }), &["#/reason"]),
        (&skip, json!({ "reason": [REASON] }), &["#/reason"]),
        (&skip, json!({ "reason": "", "until": "soon" }), &["#/until", "#/reason"]),
        (&skip, json!({ "reason": REASON, "until": -1 }), &["#/until"]),
        (&skip, json!({ "reason": REASON, "until": NOW.to_string() }), &["#/until"]),
        (&skip, json!({ "reason": REASON, "until": null }), &["#/until"]),
        (&skip, json!({ "reason": REASON, "usage_id": "u" }), &["#/usage_id"]),
        (&skip, json!([]), &["#"]),
        (&again, json!({ "reason": "", "from": 1, "to": 1 }), &["#/to", "#/reason"]),
        (&again, json!({ "reason": "", "from": "a", "to": -1 }), &["#/from", "#/to", "#/reason"]),
        (&again, json!({ "reason": REASON, "to": [] }), &["#/to"]),
        (&again, json!({ "reason": REASON, "until": 1 }), &["#/until"]),
        (&resume, json!({ "reason": REASON, "until": 1 }), &["#/until"]),
        (&resend, json!({}), &["#/reason"]),
        (&resend, json!({ "reason": " " }), &["#/reason"]),
        (&resend, json!({ "reason": "r", "from": 1 }), &["#/from"]),
        (&resend, json!([]), &["#"]),
    ];
    for (path, body, wrong) in rows {
        let tag = path.starts_with(&location).then_some(&*seen);
        let answer = world.act(path, tag, body).await;
        answer.names(400, "invalid-body", wrong);
    }
    let large = json!({ "reason": REASON, "x": "x".repeat(70_000) });
    let answer = world.act(&resume, None, &large).await;
    answer.problem(413, "payload-too-large");
    let body = because();
    for act in ["resume", "skip", "resend"] {
        let unknown = format!("/v1/spans/{}/{act}", "0".repeat(24));
        let answer = world.act(&unknown, Some("*"), &body).await;
        answer.problem(404, "no-such-span");
    }
    assert_eq!(world.trail_of_acts().await, [[""; 3]; 0]);
    // 1,000 characters are no 1,000 bytes.
    let body = json!({ "reason": "ä".repeat(1_000) });
    assert_eq!(world.act(&resume, None, &body).await.status, 202);
    assert_eq!(world.trail_of_acts().await.len(), 1);
}

/// What cannot be written down is not done; what is not known to be done says so.
#[tokio::test]
async fn nothing_is_done_that_is_not_in_the_trail() {
    let world = World::new();
    let (location, _) = world.suspended("1", "postgres").await;
    let (_, cause) = world.suspended("2", "redis").await;
    let usage = world.unconfirmed("3", true).await;
    let seen = tag_of(&world.get(&location).await);
    let body = because();
    let of_span = (format!("{location}/skip"), Some(&*seen));
    let of_cause = (format!("/v1/suspended/{cause}/resume"), None);
    let of_usage = (format!("/v1/unconfirmed/{usage}/resend"), None);
    let before = world.spans();
    for behaviour in [Behaviour::Unavailable, Behaviour::Unknown, Behaviour::Lost] {
        world.store.set_record_behaviour(behaviour);
        for (path, tag) in [&of_span, &of_cause, &of_usage] {
            let answer = world.act(path, *tag, &body).await;
            answer.tells(503, "database-unavailable", &["Nothing was done"]);
        }
    }
    assert_eq!(world.spans(), before);
    world.store.set_record_behaviour(Behaviour::Served);
    // The change is done, and its answer is lost. The repeat decides.
    world.store.set_change_behaviour(Behaviour::Lost);
    for (path, tag) in [&of_span, &of_cause, &of_usage] {
        let before = world.trail_of_acts().await.len();
        let answer = world.act(path, *tag, &body).await;
        answer.tells(503, "database-unavailable", &["may or may not be done"]);
        let trail = world.trail_of_acts().await;
        assert_eq!((trail.len(), trail[0][1].as_str()), (before + 1, "unknown"));
    }
    world.store.set_change_behaviour(Behaviour::Served);
    for ((path, tag), status) in [(&of_span, 412), (&of_cause, 404), (&of_usage, 202)] {
        let answer = world.act(path, *tag, &body).await;
        assert_eq!(answer.status, status, "{path}");
    }
    assert_eq!(world.read(&location).await["sampled_to"], NOW + DAY);
}
