//! What holds at all addresses that are read: each wrong parameter is named, and a store that does not answer is told.
//! And the smaller ones: causes, the backlog, the audit trail.

use sampler_domain::{CauseId, ClientId, Timestamp};
use sampler_store::{ActOutcome, AuditRecord, Backlog, ClosingBacklog, Operating};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::event;
use crate::store::Behaviour;
use crate::world::{CAUSE, DAY, HOUR, NOW, SPANS, SUMS, World};

const ID: &str = "0b7c7f6e-3a06-5a7e-9d15-6d2f3b8a6a52";

/// A cursor of the spans' list, and one of no list that there is.
const OF_SPANS: &str = "eyJzdGFydCI6MSwiaWQiOnsiVGV4dCI6ImEifX0";
const OF_NUMBERS: &str = "MQ";

/// Addresses with the parameters that are wrong there.
#[rustfmt::skip]
fn wrong_parameters(span: &str) -> Vec<(String, &'static [&'static str])> {
    let long = "x".repeat(1_025);
    let of_spans = |query: &str| format!("{SPANS}&{query}");
    let of_usages = |query: &str| format!("{span}/usages?{query}");
    let of_sums = |query: &str| format!("{SUMS}&{query}");
    let of_audit = |query: &str| format!("/v1/audit?{query}");
    let moments = format!("from={NOW}&to={NOW}");
    let mut rows: Vec<(String, &'static [&'static str])> = vec![
        (of_spans("from=soon&to=-1&limit=0&cursor=AAAA&nope=1&space_id=&plan_id=%00&state=closed\
                &consumer_id=a&consumer_id=b"),
            &["space_id", "consumer_id", "plan_id", "state", "from", "to", "cursor", "limit", "nope"]),
        // A value that is not UTF-8 is not taken for another id.
        (of_spans("space_id=%ff&plan_id=%C3&state=open%C0"), &["space_id", "plan_id", "state"]),
        (of_spans(&moments), &["to"]),
        ("/v1/spans?order=x".to_owned(), &["order"]),
        ("/v1/spans?order=received&plan_id=large".to_owned(), &["order"]),
        ("/v1/spans?organization_id=o&cause=x&state=suspended".to_owned(), &["cause"]),
        (format!("/v1/spans?organization_id=o&cause={ID}"), &["cause"]),
        (format!("/v1/spans?state=open&cause={ID}"), &["cause"]),
        // No id is an operator of the database.
        ("/v1/spans?resource_id[$ne]=x".to_owned(), &["resource_id[$ne]"]),
        ("/v1/spans?organization_id=o&plan_id[$gt]=".to_owned(), &["plan_id[$gt]"]),
        ("/v1/spans?$where=1".to_owned(), &["$where"]),
        (format!("{span}?nope&limit=1"), &["nope", "limit"]),
        (of_usages("state=open&as_of=x"), &["state", "as_of"]),
        (of_usages("order=x&accepted_to=y"), &["order", "accepted_to"]),
        ("/v1/spans?excluded=false".to_owned(), &["excluded"]),
        ("/v1/unconfirmed?missing=1&space_id=&limit=0&cursor=x&from=1".to_owned(),
            &["space_id", "missing", "cursor", "limit", "from"]),
        (format!("/v1/unconfirmed?cursor={OF_SPANS}"), &["cursor"]),
        (of_usages(&format!("cursor={OF_SPANS}")), &["cursor"]),
        (of_sums("space_id=&plan_id=a&plan_id=b&window=year&group_by=plan&from=soon&to=-1&as_of=x&cursor=AAAA\
                &limit=0&state=open&accepted_to=x"),
            &["space_id", "plan_id", "window", "from", "to", "group_by", "cursor", "accepted_to", "limit", "as_of", "state"]),
        (of_sums(&moments), &["to"]),
        (of_audit("from=x&to=y&limit=0&cursor=z&state=open"), &["from", "to", "cursor", "limit", "state"]),
        (of_audit("who=&span="), &["who", "span"]),
        (of_audit(&format!("who={long}&span={long}")), &["who", "span"]),
        (of_audit("who=a%0Ab"), &["who"]),
        (of_audit("from=2&to=2"), &["to"]),
        (of_audit(&format!("cursor={OF_NUMBERS}")), &["cursor"]),
        ("/v1/suspended?resource_id=&limit=1&cursor=x".to_owned(), &["resource_id", "limit", "cursor"]),
        (format!("{CAUSE}?limit=1"), &["limit"]),
        ("/v1/backlog?due=1".to_owned(), &["due"]),
    ];
    for limit in ["", "0", "1001", "1e2", "+5", "five", "99999999999999999999"] {
        rows.push((of_spans(&format!("limit={limit}")), &["limit"]));
    }
    for fields in ["", ",", "plan_id,", "plan_id,plan_id", "plan_id,%20space_id", "$plan_id"] {
        rows.push((of_sums(&format!("group_by={fields}")), &["group_by"]));
    }
    rows
}

#[tokio::test]
async fn each_wrong_parameter_is_named() {
    let world = World::new();
    let span = world.starts("an instance", NOW).await;
    for (path, names) in wrong_parameters(&span) {
        let answer = world.get(&path).await;
        assert_eq!(answer.status, 400, "{path}");
        answer.names(400, "invalid-query", names);
    }
}

#[tokio::test]
async fn a_store_that_does_not_answer_is_told_without_its_words() {
    let world = World::new();
    let span = world.starts("an instance", NOW).await;
    let usages = format!("{span}/usages");
    let paths = [
        SPANS,
        &span,
        &usages,
        "/v1/suspended",
        CAUSE,
        "/v1/unconfirmed",
        "/v1/audit",
        "/v1/backlog",
    ];
    for (behaviour, status, slug) in [
        (Behaviour::Unavailable, 503, "database-unavailable"),
        (Behaviour::Unknown, 503, "database-unavailable"),
        (Behaviour::Refused, 500, "internal"),
    ] {
        world.store.set_behaviour(behaviour);
        for path in paths {
            let answer = world.get(path).await;
            assert_eq!(answer.status, status, "{path}");
            answer.names(status, slug, &[]);
            let text = answer.text();
            assert!(!text.contains("kept"), "{text}");
        }
    }
    let unprepared = World::unprepared(None);
    for path in [SPANS, CAUSE, SUMS] {
        let answer = unprepared.get(path).await;
        answer.names(503, "database-unavailable", &[]);
    }
}

#[tokio::test]
async fn causes_are_listed_the_largest_first_and_their_spans_by_them() {
    let world = World::new();
    let (small, other) = world.suspended("1", "redis").await;
    let (_, cause) = world.suspended("2", "postgres").await;
    world.suspended("3", "postgres").await;
    let item = |cause: CauseId, resource: &str, spans: u64| {
        json!({
            "cause": cause.to_string(), "status": 400, "error": "no mapping",
            "resource_id": resource, "plan_id": "large", "spans": spans, "since": NOW + DAY,
        })
    };
    let (large, small_item) = (item(cause, "postgres", 2), item(other, "redis", 1));
    for (query, expected) in [
        ("", vec![&large, &small_item]),
        ("?resource_id=redis", vec![&small_item]),
        ("?resource_id=unknown", vec![]),
    ] {
        let list = world.read(&format!("/v1/suspended{query}")).await;
        assert_eq!(list, json!({ "items": expected }), "{query}");
    }
    let one = world.read(&format!("/v1/suspended/{cause}")).await;
    assert_eq!(one, large);
    for id in ["00000000-0000-5000-8000-000000000000", "x", "%FF"] {
        let answer = world.get(&format!("/v1/suspended/{id}")).await;
        answer.problem(404, "no-such-cause");
    }
    let path = format!("/v1/spans?state=suspended&cause={other}");
    let spans = world.items(&path).await;
    assert_eq!(spans.len(), 1);
    assert!(small.ends_with(spans[0]["id"].as_str().unwrap()));
}

/// What nobody waits for.
fn no_backlog() -> Value {
    json!({
        "due": 0, "at_least": false, "oldest": null, "suspended": 0, "rate": 0, "closing": null,
    })
}

#[tokio::test]
async fn where_no_worker_counts_a_receiver_does() {
    let world = World::new();
    // The month has begun two days ago.
    assert_eq!(world.read("/v1/backlog").await, no_backlog());
    let start = NOW - DAY - HOUR - 500;
    world.start(&event::start(start)).await.is_created();
    world.clock.set(NOW + 10_000);
    let expected = event::with(&no_backlog(), "due", 1);
    let expected = event::with(&expected, "oldest", NOW - DAY);
    assert_eq!(world.read("/v1/backlog").await, expected);
}

#[tokio::test]
async fn what_a_worker_has_counted_is_shown_as_long_as_it_is_recent() {
    let world = World::new();
    let counted = Backlog {
        due: 1_200,
        at_least: true,
        oldest: Some(Timestamp::clamped(NOW - HOUR)),
        suspended: 3,
        rate: 5_012.3,
        closing: None,
        cost: 0,
    };
    world.store.memory.publish_backlog(&counted).await.unwrap();
    let expected = json!({
        "due": 1_200, "at_least": true, "oldest": NOW - HOUR, "suspended": 3,
        "rate": 5_012.3, "closing": null,
    });
    assert_eq!(world.read("/v1/backlog").await, expected);
    world.clock.set(NOW + 60_000);
    assert_eq!(world.read("/v1/backlog").await["due"], 0);
}

#[tokio::test]
async fn while_a_month_closes_it_is_told_what_is_left() {
    let world = World::new();
    // 2018-08-01T00:00 UTC.
    let august = NOW - 2 * DAY;
    let counted = Backlog {
        closing: Some(ClosingBacklog {
            start: Timestamp::clamped(august - 31 * DAY),
            end: Timestamp::clamped(august),
            spans: 1_200,
        }),
        ..Backlog::default()
    };
    let closing = json!({ "month": "2018-07", "left": 1_200, "closes_at": august + 600_000 });
    for (passed, expected) in [(300_000, closing), (601_000, Value::Null)] {
        world.clock.set(august + passed);
        world.store.memory.publish_backlog(&counted).await.unwrap();
        assert_eq!(world.read("/v1/backlog").await["closing"], expected);
    }
}

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
}

#[tokio::test]
async fn an_act_is_shown_as_it_was_asked_for_and_as_it_ended() {
    let world = World::new();
    world.acted(1, "alice", Some("a")).await;
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
    assert_eq!(world.items("/v1/audit").await, [expected.clone()]);
    let (id, memory) = (Uuid::from_u128(1), &world.store.memory);
    memory.record_outcome(id, ActOutcome::Done).await.unwrap();
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
        let span = (number < 4).then_some("a b");
        world.acted(number, who, span).await;
    }
    let number = |item: &Value| {
        item["id"]
            .as_str()
            .unwrap()
            .parse::<Uuid>()
            .unwrap()
            .as_u128()
    };
    let time = format!("?from={}&to=2018-08-03T04:00:00Z", NOW + 2 * HOUR);
    for (query, expected) in [
        ("", &[5, 4, 3, 2, 1][..]),
        ("?limit=2", &[5, 4, 3, 2, 1]),
        ("?who=alice", &[4, 2]),
        ("?span=a%20b&who=bob", &[3, 1]),
        (&time, &[3, 2]),
    ] {
        let items = world.items(&format!("/v1/audit{query}")).await;
        let shown: Vec<u128> = items.iter().map(number).collect();
        assert_eq!(shown, expected, "{query}");
    }
    // What comes meanwhile moves nothing.
    let first = world.get("/v1/audit?limit=2").await;
    world.acted(6, "bob", None).await;
    let second = world.items(&first.linked("next").unwrap()).await;
    assert_eq!(second.iter().map(number).collect::<Vec<_>>(), [3, 2, 1]);
}
