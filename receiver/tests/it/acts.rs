//! Acts of operators on suspended spans.

use axum::body::Body;
use axum::http::Request;
use sampler_domain::{Cause, CauseId, EntryState, SKIP_DELAY, Span, Timestamp};
use sampler_store::Causes;
use sampler_store_testing::support::{Changing, at, done, last_refusal};
use serde_json::{Value, json};

use crate::answer::Answer;
use crate::event::{on, start, with};
use crate::reading::planned;
use crate::resend::path_of;
use crate::store::Behaviour;
use crate::world::{DAY, HOUR, NOW, World};

pub(crate) const REASON: &str = "The plan has its mapping.";

impl World {
    /// A span that is suspended, and the cause.
    pub(crate) async fn suspended(&self, instance: &str, resource: &str) -> (String, CauseId) {
        let event = on(instance, &start(NOW));
        let answer = self.start(&with(&event, "resource_id", resource)).await;
        let location = answer.header("location").unwrap().to_owned();
        let memory = &self.store.memory;
        let now = Timestamp::clamped(NOW);
        let span = planned(self, &location, NOW + DAY).await;
        let span = done(memory.failed(&span, last_refusal("no mapping", 0)).await);
        let processing = &span.processing;
        let cause = Cause::of(&span.target, processing.last_error.as_ref().unwrap());
        memory.register(&cause, now, now.plus(HOUR)).await.unwrap();
        (location, cause.id())
    }

    pub(crate) fn span_at(&self, location: &str) -> Span {
        let mut spans = self.spans().into_iter();
        let of = |span: &Span| location.ends_with(&span.id.to_string());
        spans.find(of).unwrap()
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
async fn causes_are_listed_the_largest_first_and_their_spans_by_them() {
    let world = World::new();
    let (small, other) = world.suspended("1", "redis").await;
    let (_, cause) = world.suspended("2", "postgres").await;
    world.suspended("3", "postgres").await;
    let list = world.read("/v1/suspended").await;
    let item = |cause: CauseId, resource: &str, spans: u64| {
        json!({
            "cause": cause.to_string(), "status": 400, "error": "no mapping",
            "resource_id": resource, "plan_id": "large", "spans": spans, "set_aside": 0,
            "since": NOW, "probe_at": NOW + HOUR,
        })
    };
    let expected = [item(cause, "postgres", 2), item(other, "redis", 1)];
    assert_eq!(list, json!({ "items": expected }));
    let path = format!("/v1/spans?state=suspended&cause={other}");
    let spans = world.read(&path).await;
    let items = spans["items"].as_array().unwrap();
    assert_eq!(items.len(), 1);
    assert!(small.ends_with(items[0]["id"].as_str().unwrap()));
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
    let body = json!({ "reason": REASON });
    let unseen = world.act(&path, None, &body).await;
    unseen.problem(428, "precondition-required");
    let stale = world.act(&path, Some("\"stale\""), &body).await;
    stale.problem(412, "precondition-failed");
    assert_eq!(world.trail_of_acts().await, [[""; 3]; 0]);
    let answer = world.act(&path, Some(&seen), &body).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    // It is as it will be read from now on, and due at once: since it was suspended, by the workers'
    // time. The clock of this receiver is years behind.
    let again = world.get(&location).await;
    assert_eq!(answer.json(), again.json());
    assert_eq!(tag_of(&answer), tag_of(&again));
    assert_eq!(answer.json()["state"], "open");
    assert_eq!(answer.json()["due_at"], at(0).as_millis());
    let processing = world.span_at(&location).processing;
    assert_eq!((processing.suspended, processing.refusals), (None, 0));
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
async fn what_is_planned_for_a_suspended_span_is_skipped() {
    let world = World::new();
    let (location, _) = world.suspended("1", "postgres").await;
    let path = format!("{location}/skip");
    let answer = world.get(&location).await;
    let seen = tag_of(&answer);
    let usage = answer.json()["planned"]["usage_id"].clone();
    for usage in ["another", ""] {
        let body = json!({ "reason": REASON, "usage_id": usage });
        let answer = world.act(&path, Some(&seen), &body).await;
        answer.problem(409, "not-planned");
    }
    let body = json!({ "reason": REASON, "usage_id": usage });
    let answer = world.act(&path, Some(&seen), &body).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(answer.json(), world.read(&location).await);
    // A worker carries it out.
    let span = world.span_at(&location);
    let skip = span.to_be_skipped().unwrap();
    assert_eq!(json!(skip.usage_guid), usage);
    // Counted from the suspension, by the workers' time. The clock of this receiver is years behind.
    assert_eq!(skip.not_before, at(SKIP_DELAY));
    assert_eq!(answer.json()["due_at"], at(SKIP_DELAY).as_millis());
    let subject = location.clone();
    let expected = ["span.skip".to_owned(), "done".to_owned(), subject];
    assert_eq!(world.trail_of_acts().await, [expected]);
    let act = &world.items("/v1/audit").await[0];
    assert_eq!(act["id"], skip.act.to_string());
    assert_eq!(act["after"]["skip"], usage);
    let seen = tag_of(&world.get(&location).await);
    let answer = world.act(&path, Some(&seen), &body).await;
    answer.problem(409, "not-suspended");
}

#[tokio::test]
async fn all_spans_of_a_cause_are_resumed_together() {
    let world = World::new();
    let (_, cause) = world.suspended("1", "postgres").await;
    world.suspended("2", "postgres").await;
    let path = format!("/v1/suspended/{cause}/resume");
    let answer = world.act(&path, None, &json!({ "reason": REASON })).await;
    assert_eq!(answer.status, 202, "{answer:?}");
    assert_eq!(answer.json(), json!({ "resumed": 2 }));
    let memory = &world.store.memory;
    let kept = memory.due_causes(Timestamp::clamped(NOW), 9).await;
    // Whatever the clock of this receiver says: workers take their own time instead.
    assert_eq!(kept.unwrap()[0].resuming, Some(Timestamp::MAX));
    let expected = ["cause.resume", "done", &format!("/v1/suspended/{cause}")];
    assert_eq!(world.trail_of_acts().await, [expected.map(str::to_owned)]);
    let cause = cause.to_string();
    let unknown = cause.replace(|letter: char| letter.is_ascii_digit(), "0");
    for id in [unknown.as_str(), "x", "%ff", &cause.to_uppercase()] {
        let path = format!("/v1/suspended/{id}/resume");
        let answer = world.act(&path, None, &json!({ "reason": REASON })).await;
        answer.problem(404, "no-such-cause");
    }
}

#[tokio::test]
async fn each_field_that_is_wrong_is_named() {
    let world = World::new();
    let (location, cause) = world.suspended("1", "postgres").await;
    let entry = world.usage_in("2", EntryState::Skipped).await;
    let seen = tag_of(&world.get(&location).await);
    let skip = format!("{location}/skip");
    let resume = format!("/v1/suspended/{cause}/resume");
    let resend = path_of(&entry);
    let long = "x".repeat(1_001);
    #[rustfmt::skip]
    let rows: &[(&str, Value, &[&str])] = &[
        (&skip, json!({}), &["#/usage_id"]),
        (&skip, json!({ "usage_id": "u" }), &["#/reason"]),
        (&skip, json!({ "reason": "", "usage_id": "u", "x": 1 }), &["#/x"]),
        (&skip, json!({ "reason": " \n", "usage_id": "u" }), &["#/reason"]),
        (&skip, json!({ "reason": long, "usage_id": "u" }), &["#/reason"]),
        (&skip, json!({ "reason": [REASON], "usage_id": "u" }), &["#/reason"]),
        (&skip, json!({ "reason": REASON, "usage_id": null }), &["#/usage_id"]),
        (&skip, json!([]), &["#"]),
        (&resume, json!({ "reason": REASON, "usage_id": "u" }), &["#/usage_id"]),
        (&resend, json!({}), &["#/reason"]),
        (&resend, json!({ "reason": " " }), &["#/reason"]),
        (&resend, json!({ "reason": "r", "usage_id": "u" }), &["#/usage_id"]),
        (&resend, json!([]), &["#"]),
    ];
    for (path, body, wrong) in rows {
        let tag = (*path == skip).then_some(&*seen);
        let answer = world.act(path, tag, body).await;
        answer.names(400, "invalid-body", wrong);
    }
    assert_eq!(world.entry(&entry.usage_guid).resend, None);
    let large = json!({ "reason": REASON, "x": "x".repeat(70_000) });
    let answer = world.act(&resume, None, &large).await;
    answer.problem(413, "payload-too-large");
    let unknown = format!("/v1/spans/{}/resume", "0".repeat(24));
    let body = json!({ "reason": REASON });
    let answer = world.act(&unknown, Some("*"), &body).await;
    answer.problem(404, "no-such-span");
    // 1,000 characters are no 1,000 bytes.
    let body = json!({ "reason": "ä".repeat(1_000) });
    assert_eq!(world.act(&resume, None, &body).await.status, 202);
    assert_eq!(world.trail_of_acts().await.len(), 1);
}

/// What cannot be written down is not done; what is not known to be done says so.
#[tokio::test]
async fn nothing_is_done_that_is_not_in_the_trail() {
    let world = World::new();
    let (location, cause) = world.suspended("1", "postgres").await;
    let entry = world.usage_in("2", EntryState::Skipped).await;
    let seen = tag_of(&world.get(&location).await);
    let body = json!({ "reason": REASON });
    let of_span = (format!("{location}/resume"), Some(&*seen));
    let of_cause = (format!("/v1/suspended/{cause}/resume"), None);
    let of_usage = (path_of(&entry), None);
    let is_done = || {
        let is_resumed = world.span_at(&location).processing.suspended.is_none();
        let is_resent = world.entry(&entry.usage_guid).resend.is_some();
        (is_resumed, is_resent)
    };
    for behaviour in [Behaviour::Unavailable, Behaviour::Unknown, Behaviour::Lost] {
        world.store.set_record_behaviour(behaviour);
        for (path, tag) in [&of_span, &of_cause, &of_usage] {
            let answer = world.act(path, *tag, &body).await;
            answer.tells(503, "database-unavailable", &["Nothing was done"]);
        }
    }
    assert_eq!(is_done(), (false, false));
    world.store.set_record_behaviour(Behaviour::Served);
    // The change is done, and its answer is lost.
    world.store.lose_answers_to_changes();
    for (path, tag) in [&of_span, &of_usage] {
        let before = world.trail_of_acts().await.len();
        let answer = world.act(path, *tag, &body).await;
        answer.tells(503, "database-unavailable", &["may or may not be done"]);
        let trail = world.trail_of_acts().await;
        assert_eq!((trail.len(), trail[0][1].as_str()), (before + 1, "unknown"));
    }
    assert_eq!(is_done(), (true, true));
}
