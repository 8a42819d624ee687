//! `POST /v1/spans/{id}/resend`.

use serde_json::{Value, json};

use crate::acts::{REASON, tag_of};
use crate::event::{on, stop};
use crate::world::{DAY, NOW, World};

impl World {
    /// A span of ten days whose first eight are skipped.
    async fn skipped(&self) -> String {
        let (location, _) = self.suspended("1", "postgres").await;
        self.clock.set(NOW + 10 * DAY);
        let body = json!({ "reason": REASON, "until": NOW + 8 * DAY });
        let answer = self.act_on(&location, "skip", &body).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        location
    }
}

fn range(start: i64, end: i64) -> Value {
    let (start, end) = (NOW + start * DAY, NOW + end * DAY);
    json!({ "start": start, "end": end, "unanswered": false, "error": "no mapping" })
}

#[tokio::test]
async fn what_is_excluded_within_some_time_is_sent_again() {
    let world = World::new();
    let location = world.skipped().await;
    // The days that begin and end within it.
    let body = json!({ "reason": REASON, "from": NOW + 2 * DAY - 1, "to": NOW + 5 * DAY + 1 });
    let answer = world.act_on(&location, "resend", &body).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let shown = answer.json();
    assert_eq!(shown, world.read(&location).await);
    assert_eq!(shown["excluded"], json!([range(0, 2), range(5, 8)]));
    assert_eq!(shown["again"], json!([range(2, 5)]));
    assert_eq!(shown["due_at"], NOW + 10 * DAY);
    // It does not count yet.
    let proof = &shown["proof"];
    assert_eq!([&proof["skipped"], &proof["billed"]], [8 * DAY, 0]);
    let act = &world.items("/v1/audit").await[0];
    assert_eq!([&act["act"], &act["outcome"]], ["span.resend", "done"]);
    let told = json!([{ "start": NOW + 2 * DAY, "end": NOW + 5 * DAY, "duration": 3 * DAY }]);
    assert_eq!(act["after"]["ranges"], told);
    assert_eq!(act["after"]["target"], shown["target"]);
    // The rest of it.
    let answer = world
        .act_on(&location, "resend", &json!({ "reason": REASON }))
        .await;
    let shown = answer.json();
    assert_eq!(shown["excluded"], Value::Null);
    assert_eq!(
        shown["again"],
        json!([range(2, 5), range(0, 2), range(5, 8)])
    );
}

#[tokio::test]
async fn where_nothing_is_excluded_nothing_is_sent_again() {
    let world = World::new();
    let location = world.skipped().await;
    for (from, to) in [(NOW + 8 * DAY, NOW + 9 * DAY), (NOW + 1, NOW + 2 * DAY - 1)] {
        let body = json!({ "reason": REASON, "from": from, "to": to });
        let answer = world.act_on(&location, "resend", &body).await;
        answer.problem(409, "nothing-excluded");
    }
    let path = format!("{location}/resend");
    let body = json!({ "reason": REASON });
    let unseen = world.act(&path, None, &body).await;
    unseen.problem(428, "precondition-required");
    let seen = tag_of(&world.get(&location).await);
    assert_eq!(world.act(&path, Some(&seen), &body).await.status, 200);
    let stale = world.act(&path, Some(&seen), &body).await;
    stale.problem(412, "precondition-failed");
    let answer = world.act_on(&location, "resend", &body).await;
    answer.problem(409, "nothing-excluded");
}

#[tokio::test]
async fn a_complete_span_is_open_to_it_and_lists_find_it() {
    let world = World::new();
    let location = world.skipped().await;
    let other = world.starts("2", NOW).await;
    world
        .stop(&on("1", &stop(NOW + 8 * DAY)))
        .await
        .is_created();
    world.goes_on(&location, NOW + 10 * DAY).await;
    assert_eq!(world.read(&location).await["state"], "complete");
    let id = location.rsplit('/').next();
    for query in ["", "&resource_id=postgres", "&state=complete&plan_id=large"] {
        let items = world
            .items(&format!("/v1/spans?excluded=true{query}"))
            .await;
        let ids = items.iter().map(|item| item["id"].as_str());
        assert!(ids.eq([id]), "{query}: {other}");
    }
    let none = world.items("/v1/spans?excluded=true&state=open").await;
    assert!(none.is_empty(), "{none:?}");
    let answer = world
        .act_on(&location, "resend", &json!({ "reason": REASON }))
        .await;
    assert_eq!(answer.json()["state"], "stopped");
    let none = world.items("/v1/spans?excluded=true").await;
    assert!(none.is_empty(), "{none:?}");
}
