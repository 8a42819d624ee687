//! The audit trail, as operators see it.

use sampler_domain::{ClientId, Timestamp};
use sampler_store::{ActOutcome, AuditRecord, Operating};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::world::{HOUR, NOW, World};

impl World {
    async fn acted(&self, number: u128, who: &str, span: Option<&str>) {
        let record = AuditRecord {
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
        };
        self.store.memory.record_action(&record).await.unwrap();
    }

    /// The ids of a page, and the address of the next one.
    async fn acts(&self, path: &str) -> (Vec<u128>, Option<String>) {
        let answer = self.get(path).await;
        let page = answer.json();
        let items = page["items"].as_array().unwrap().iter();
        let ids = items.map(|item| item["id"].as_str().unwrap().parse::<Uuid>().unwrap());
        (ids.map(|id| id.as_u128()).collect(), answer.linked("next"))
    }
}

#[tokio::test]
async fn an_act_is_shown_as_it_was_asked_for() {
    let world = World::new();
    world.acted(1, "alice", Some("a")).await;
    let shown = world.items("/v1/audit").await;
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
    assert_eq!(shown, [expected.clone()]);
    let settled = world
        .store
        .memory
        .record_outcome(Uuid::from_u128(1), ActOutcome::Done);
    settled.await.unwrap();
    world.acted(2, "", None).await;
    let shown = world.items("/v1/audit").await;
    expected["outcome"] = json!("done");
    assert_eq!(shown[1], expected);
    assert_eq!(shown[0]["who"], Value::Null);
}

#[tokio::test]
async fn the_newest_act_comes_first_page_by_page() {
    let world = World::new();
    for number in 1..=5 {
        let who = if number % 2 == 0 { "alice" } else { "bob" };
        world
            .acted(number, who, (number < 4).then_some("a b"))
            .await;
    }
    assert_eq!(world.acts("/v1/audit").await, (vec![5, 4, 3, 2, 1], None));
    assert_eq!(world.acts("/v1/audit?who=alice").await.0, [4, 2]);
    assert_eq!(world.acts("/v1/audit?span=a%20b&who=bob").await.0, [3, 1]);
    let time = format!("/v1/audit?from={}&to=2018-08-03T04:00:00Z", NOW + 2 * HOUR);
    assert_eq!(world.acts(&time).await.0, [3, 2]);
    let (first, next) = world.acts("/v1/audit?limit=2").await;
    assert_eq!(first, [5, 4]);
    world.acted(6, "bob", None).await;
    let (second, next) = world.acts(&next.unwrap()).await;
    assert_eq!(second, [3, 2]);
    assert_eq!(world.acts(&next.unwrap()).await, (vec![1], None));
}
