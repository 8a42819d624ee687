//! What is sent again: the excluded ranges of a span, and accepted usages that are watched and do not count.

use sampler_domain::Span;
use sampler_store::{DueWatches, Ledger, Missing, WatchOutcome};
use sampler_store_testing::support::everything;
use serde_json::{Value, json};

use crate::acts::{REASON, because, tag_of};
use crate::event::{on, stop};
use crate::reading_scopes::billed;
use crate::world::{DAY, HOUR, NOW, World, at};

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
    let answer = world.act_on(&location, "resend", &because()).await;
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
    let body = because();
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
    let answer = world.act_on(&location, "resend", &because()).await;
    assert_eq!(answer.json()["state"], "stopped");
    let none = world.items("/v1/spans?excluded=true").await;
    assert!(none.is_empty(), "{none:?}");
}

const LIST: &str = "/v1/unconfirmed";

impl World {
    /// A usage of an hour that was accepted and does not count yet, or is known to be missing. Its id.
    pub(crate) async fn unconfirmed(&self, instance: &str, is_missing: bool) -> String {
        let location = self.starts(instance, NOW).await;
        self.watched(&self.span_at(&location), is_missing).await
    }

    pub(crate) async fn watched(&self, span: &Span, is_missing: bool) -> String {
        let (entry, memory) = (billed(span), &self.store.memory);
        let watch_at = Some(at(NOW + 2 * HOUR));
        memory
            .write_entry(&entry, at(NOW + DAY), watch_at)
            .await
            .unwrap();
        let due = DueWatches {
            partitions: everything(),
            now: at(NOW + DAY),
            limit: 100,
        };
        let watches = memory.due_watches(&due).await.unwrap().into_iter();
        let outcome = WatchOutcome::Missing(Missing {
            since: at(NOW + 3 * HOUR),
            error: "set aside".to_owned(),
        });
        let own = watches.filter(|watch| is_missing && watch.usage_guid == entry.usage_guid);
        let outcomes: Vec<_> = own.map(|watch| (watch, outcome.clone())).collect();
        memory.settle_watches(&outcomes).await.unwrap();
        entry.usage_guid
    }

    async fn is_listed_as_missing(&self, usage: &str) -> bool {
        let items = self.items(&format!("{LIST}?missing=true")).await;
        items.iter().any(|item| item["usage"] == usage)
    }
}

#[tokio::test]
async fn what_does_not_count_yet_is_listed_and_what_is_missing_says_why() {
    let world = World::new();
    assert_eq!(world.items(LIST).await, [Value::Null; 0]);
    let waiting = world.unconfirmed("1", false).await;
    let missing = world.unconfirmed("2", true).await;
    let item = |usage: &str, instance: &str, error: Value, since: i64| {
        let spans = world.spans();
        let of = |span: &&Span| span.target.resource_instance_id.as_str() == instance;
        let span = spans.iter().find(of).unwrap();
        json!({
            "usage": usage, "span": span.id.to_string(), "target": span.target,
            "interval": { "start": NOW, "end": NOW + HOUR }, "duration": HOUR,
            "error": error, "since": since,
        })
    };
    let waiting = item(&waiting, "1", Value::Null, NOW + HOUR);
    let missing = item(&missing, "2", json!("set aside"), NOW + 3 * HOUR);
    let mut all = [waiting.clone(), missing.clone()];
    all.sort_by_key(|item| item["usage"].to_string());
    for (limit, pages) in [(1, 2), (2, 1)] {
        let path = format!("{LIST}?resource_id=postgres&limit={limit}");
        let (items, count) = world.pages(&path).await;
        assert_eq!((items, count), (all.to_vec(), pages), "{limit}");
    }
    let items = world.items(&format!("{LIST}?missing=true")).await;
    assert_eq!(items, [missing]);
    let items = world.items(&format!("{LIST}?resource_instance_id=1")).await;
    assert_eq!(items, [waiting]);
}

#[tokio::test]
async fn what_is_missing_is_sent_again() {
    let world = World::new();
    let usage = world.unconfirmed("1", true).await;
    let path = format!("{LIST}/{usage}/resend");
    let body = because();
    for _ in 0..2 {
        let answer = world.act(&path, None, &body).await;
        assert_eq!(answer.status, 202, "{answer:?}");
        assert_eq!(answer.json()["usage"], usage);
        assert!(world.is_listed_as_missing(&usage).await, "until it counts");
    }
    let act = &world.items("/v1/audit").await[0];
    let subject = format!("{LIST}/{usage}");
    assert_eq!(
        [&act["act"], &act["outcome"], &act["subject"]],
        ["usage.resend", "done", &subject]
    );
    assert_eq!(act["before"]["error"], "set aside");
    let of_span = format!("/v1/audit?span={}", world.spans()[0].id);
    assert_eq!(world.items(&of_span).await.len(), 2);
}

#[tokio::test]
async fn what_may_still_come_to_count_is_not_sent_again() {
    let world = World::new();
    let waiting = world.unconfirmed("1", false).await;
    let body = because();
    let path = format!("{LIST}/{waiting}/resend");
    let answer = world.act(&path, None, &body).await;
    answer.problem(409, "not-resendable");
    let long = "x".repeat(5_000);
    for id in ["unknown", "%ff", "%00", "%20", "$where", &long] {
        let path = format!("{LIST}/{id}/resend");
        let answer = world.act(&path, None, &body).await;
        answer.problem(404, "no-such-usage");
    }
    assert_eq!(world.trail_of_acts().await, [[""; 3]; 0]);
}
