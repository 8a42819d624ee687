//! The audit trail, as operators see it.

use axum::body::Body;
use axum::http::Request;
use sampler_domain::{ClientId, Timestamp};
use sampler_store::{ActOutcome, AuditRecord, Operating};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::answer::Answer;
use crate::store::Behaviour;
use crate::world::{HOUR, NOW, World};

fn record(number: u128, who: &str, span: Option<&str>) -> AuditRecord {
    AuditRecord {
        id: Uuid::from_u128(number),
        at: Timestamp::clamped(NOW + i64::try_from(number).unwrap() * HOUR),
        who: ClientId::new(who),
        act: "span.resume".to_owned(),
        subject: "/v1/spans/a".to_owned(),
        span: span.map(str::to_owned),
        reason: "The mapping is there.".to_owned(),
        before: json!({"state": "suspended"}),
        after: json!({"state": "open"}),
        outcome: ActOutcome::Asked,
    }
}

impl World {
    async fn trail(&self, query: &str) -> Answer {
        let path = format!("/v1/audit{query}");
        self.send(Request::get(path).body(Body::empty()).unwrap())
            .await
    }

    /// The ids of a page, and the address of the next one.
    async fn acts(&self, query: &str) -> (Vec<u128>, Option<String>) {
        let answer = self.trail(query).await;
        assert_eq!(answer.status, 200, "{query}: {answer:?}");
        let page: Value = serde_json::from_slice(&answer.body).unwrap();
        let items = page["items"].as_array().unwrap().iter();
        let ids = items.map(|item| item["id"].as_str().unwrap().parse::<Uuid>().unwrap());
        let link = answer.header("link");
        let next = link.and_then(|link| link.strip_prefix("</v1/audit")?.split_once('>'));
        (
            ids.map(|id| id.as_u128()).collect(),
            next.map(|(query, _)| query.to_owned()),
        )
    }
}

#[tokio::test]
async fn an_act_is_shown_as_it_was_asked_for() {
    let world = World::new();
    world
        .store
        .record_action(&record(1, "alice", Some("a")))
        .await
        .unwrap();
    let answer = world.trail("").await;
    let shown: Value = serde_json::from_slice(&answer.body).unwrap();
    let mut expected = json!({
        "id": "00000000-0000-0000-0000-000000000001",
        "at": NOW + HOUR,
        "who": "alice",
        "act": "span.resume",
        "subject": "/v1/spans/a",
        "reason": "The mapping is there.",
        "before": {"state": "suspended"},
        "after": {"state": "open"},
        "outcome": "asked",
    });
    assert_eq!(shown["items"], json!([expected]));
    let settled = world
        .store
        .record_outcome(Uuid::from_u128(1), ActOutcome::Done);
    settled.await.unwrap();
    world
        .store
        .record_action(&record(2, "", None))
        .await
        .unwrap();
    let answer = world.trail("").await;
    let shown: Value = serde_json::from_slice(&answer.body).unwrap();
    expected["outcome"] = json!("done");
    assert_eq!(shown["items"][1], expected);
    assert_eq!(shown["items"][0]["who"], Value::Null);
}

#[tokio::test]
async fn the_newest_act_comes_first_page_by_page() {
    let world = World::new();
    for number in 1..=5 {
        let who = if number % 2 == 0 { "alice" } else { "bob" };
        let record = record(number, who, (number < 4).then_some("a b"));
        world.store.record_action(&record).await.unwrap();
    }
    assert_eq!(world.acts("").await, (vec![5, 4, 3, 2, 1], None));
    assert_eq!(world.acts("?who=alice").await.0, [4, 2]);
    assert_eq!(world.acts("?span=a%20b&who=bob").await.0, [3, 1]);
    let time = format!("?from={}&to=2018-08-03T04:00:00Z", NOW + 2 * HOUR);
    assert_eq!(world.acts(&time).await.0, [3, 2]);
    let (first, next) = world.acts("?limit=2").await;
    assert_eq!(first, [5, 4]);
    world
        .store
        .record_action(&record(6, "bob", None))
        .await
        .unwrap();
    let (second, next) = world.acts(&next.unwrap()).await;
    assert_eq!(second, [3, 2]);
    assert_eq!(world.acts(&next.unwrap()).await, (vec![1], None));
}

#[tokio::test]
async fn each_wrong_parameter_is_named() {
    let world = World::new();
    let long = "x".repeat(1_025);
    for (query, wrong) in [
        (
            "from=x&to=y&limit=0&cursor=z&state=open",
            &["from", "to", "limit", "cursor", "state"][..],
        ),
        ("who=&span=", &["who", "span"]),
        (&format!("who={long}&span={long}"), &["who", "span"]),
        ("who=a%0Ab", &["who"]),
        ("from=2&to=2", &["to"]),
        // A cursor of another list.
        ("cursor=eyJ2ZXJzaW9uIjoxLCJhZnRlciI6MX0", &["cursor"]),
    ] {
        let answer = world.trail(&format!("?{query}")).await;
        let document = answer.problem(400, "invalid-query");
        let errors = document["errors"].as_array().unwrap().iter();
        let named: Vec<&str> = errors
            .map(|error| error["parameter"].as_str().unwrap())
            .collect();
        assert_eq!(named.len(), wrong.len(), "{query}: {document:#}");
        assert!(
            wrong.iter().all(|name| named.contains(name)),
            "{query}: {named:?}"
        );
    }
    world.store.set_behaviour(Behaviour::Unavailable);
    world.trail("").await.problem(503, "database-unavailable");
}
