//! Each test says what spans ran, and what a snapshot then finds.

use serde_json::{Value, json};

use super::*;

const HOUR: Millis = 3_600_000;
const DAY: Millis = 24 * HOUR;
/// The time of each snapshot.
const AT: Millis = 1_795_352_400_000;
const BEGAN: Millis = AT - 3 * DAY;

fn measures(text: &str) -> Vec<Measured> {
    serde_json::from_str(text).unwrap()
}

fn target(name: &str, plan: &str) -> Target {
    let mut ids = json!({ "organization_id": "o", "space_id": "s", "consumer_id": "c",
                          "resource_id": "r" });
    ids["plan_id"] = json!(plan);
    ids["resource_instance_id"] = json!(name);
    serde_json::from_value(ids).unwrap()
}

fn instance(name: &str, plan: &str) -> Instance {
    Instance {
        target: target(name, plan),
        since: None,
        measured_usage: None,
    }
}

fn since(name: &str, plan: &str, since: Millis) -> Instance {
    Instance {
        since: Some(since),
        ..instance(name, plan)
    }
}

fn span(name: &str, plan: &str, start: Millis, end: Option<Millis>) -> SpanSeen {
    SpanSeen {
        id: format!("{name}-{plan}-{start}"),
        target: target(name, plan),
        measured_usage: measures(r#"[{"measure":"memory","quantity":512}]"#),
        start,
        end,
    }
}

fn compared(spans: &[SpanSeen], instances: &[Instance], floor: Millis) -> Value {
    serde_json::to_value(compare(AT, floor, instances, spans)).unwrap()
}

/// The proposals of the three lists: instance, plan, and at how many ms before the snapshot.
fn proposed(answer: &Value) -> [Vec<(&str, &str, Millis)>; 3] {
    ["open_without_instance", "instance_without_span", "differs"].map(|list| {
        let items = answer[list].as_array().unwrap().iter();
        let proposals = items.map(|item| {
            let proposal = &item["proposal"];
            let id = |name: &str| proposal[name].as_str().unwrap();
            let before = AT - proposal["timestamp"].as_i64().unwrap();
            (id("resource_instance_id"), id("plan_id"), before)
        });
        proposals.collect()
    })
}

#[track_caller]
fn proposes(answer: &Value, expected: [&[(&str, &str, Millis)]; 3]) {
    assert_eq!(proposed(answer), expected, "{answer:#}");
}

#[test]
fn what_ran_then_is_compared() {
    let spans = [
        span("agrees", "large", AT - 5, None),
        span("gone", "large", AT - 4, None),
        span("plan", "small", AT - 3, None),
        span("measures", "large", AT - 2, None),
    ];
    let mut agrees = instance("agrees", "large");
    agrees.measured_usage = Some(measures(r#"[{"measure":"memory","quantity":512.0}]"#));
    let mut other = instance("measures", "large");
    other.measured_usage = Some(measures(r#"[{"measure":"memory","quantity":2}]"#));
    let new = since("new", "large", AT - DAY);
    let all = vec![
        agrees,
        instance("plan", "large"),
        other,
        new,
        instance("bare", "large"),
    ];
    let answer = compared(&spans, &all, 0);
    assert_eq!((&answer["at"], &answer["checked"]), (&json!(AT), &json!(5)));
    proposes(
        &answer,
        [
            &[("gone", "large", 0)],
            &[("bare", "large", 0), ("new", "large", DAY)],
            &[("measures", "large", 0), ("plan", "large", 0)],
        ],
    );
    let [gone, bare, plan, measures] = [
        &answer["open_without_instance"][0],
        &answer["instance_without_span"][0],
        &answer["differs"][1],
        &answer["differs"][0],
    ];
    assert_eq!(gone["span"], format!("gone-large-{}", AT - 4));
    assert_eq!(gone["proposal"]["type"], "stop");
    assert_eq!(bare["proposal"]["measured_usage"], json!([]));
    let kept = json!([{ "measure": "memory", "quantity": 512 }]);
    let said = json!([{ "plan_id": "large" }, { "plan_id": "small" }]);
    assert_eq!(json!([plan["expected"], plan["kept"]]), said);
    assert_eq!(plan["proposal"]["previous"], json!({ "plan_id": "small" }));
    assert_eq!(plan["proposal"]["measured_usage"], kept);
    assert_eq!(measures["kept"], json!({ "measured_usage": kept }));
    assert_eq!(measures["proposal"]["previous"], Value::Null);
    assert_eq!(measures["proposal"]["measured_usage"][0]["quantity"], 2);
    // Asking again proposes the same, under the same ids.
    assert_eq!(compared(&spans, &all, 0), answer);
}

#[test]
fn the_time_of_the_snapshot_decides() {
    let spans = [
        span("later", "large", AT + 1, None),
        span("at", "large", AT, None),
        span("ran", "large", AT - 9, Some(AT + 1)),
        span("over", "large", AT - 9, Some(AT)),
        // It ran with another plan until now: a start would bill that time twice.
        span("moved", "small", AT - 9, Some(AT + 3)),
        // Two plans at once.
        span("two", "small", AT - 9, None),
        span("two", "large", AT - 9, None),
    ];
    let all = ["at", "ran", "over", "moved"].map(|name| instance(name, "large"));
    let two = ["large", "huge"].map(|plan| instance("two", plan));
    let answer = compared(&spans, &[&all[..], &two].concat(), 0);
    proposes(
        &answer,
        [&[], &[("over", "large", 0)], &[("two", "huge", 0)]],
    );
    assert_eq!(answer["differs"][0]["kept"], json!({ "plan_id": "small" }));
    let none = compared(&spans, &[], 0);
    let open = [("at", "large", 0), ("two", "small", 0), ("two", "large", 0)];
    proposes(&none, [&open, &[], &[]]);
}

/// A start is never dated at a time that is billed already.
#[test]
fn starts_are_dated_behind_what_is_billed() {
    let ended = |plan, start, end| span("i", plan, start, Some(end));
    let large = |before| vec![("i", "large", before)];
    for (why, spans, expected) in [
        ("nothing before", vec![], large(3 * DAY)),
        (
            "another plan ended",
            vec![ended("small", BEGAN, AT - DAY)],
            large(DAY),
        ),
        (
            "it was stopped by mistake",
            vec![ended("large", BEGAN, AT - DAY)],
            large(DAY),
        ),
        (
            "of no length",
            vec![ended("large", BEGAN, BEGAN)],
            large(3 * DAY - 1),
        ),
        (
            "of no length within",
            vec![ended("large", BEGAN + 1, BEGAN + 1)],
            large(3 * DAY - 2),
        ),
        (
            "ended before",
            vec![ended("small", BEGAN - DAY, BEGAN - 1)],
            large(3 * DAY),
        ),
        (
            "up to the snapshot",
            vec![ended("small", BEGAN, AT)],
            large(0),
        ),
        (
            "the last end counts",
            vec![
                ended("large", BEGAN - DAY, BEGAN + 3),
                ended("small", BEGAN + 2, BEGAN + 9),
                ended("large", BEGAN + 4, BEGAN + 5),
            ],
            large(3 * DAY - 9),
        ),
        (
            "it began since",
            vec![span("i", "small", AT + 1, None)],
            vec![],
        ),
        (
            "of another",
            vec![span("j", "small", BEGAN, Some(AT - 5))],
            large(3 * DAY),
        ),
    ] {
        let answer = compared(&spans, &[since("i", "large", BEGAN)], 0);
        assert_eq!(proposed(&answer)[1], expected, "{why}: {answer:#}");
    }
}

#[test]
fn a_start_is_dated_at_the_snapshot_where_another_plan_ran_until_then() {
    let spans = [span("i", "small", BEGAN, None)];
    let all = ["large", "huge"].map(|plan| since("i", plan, BEGAN));
    let answer = compared(&spans, &all, 0);
    let starts = [("i", "large", 0), ("i", "huge", 0)];
    proposes(&answer, [&[("i", "small", 0)], &starts, &[]]);
}

#[test]
fn a_start_is_never_dated_so_far_back_that_it_is_refused() {
    let all = vec![
        since("i", "large", BEGAN - 99 * DAY),
        since("j", "large", BEGAN + 7),
    ];
    let answer = compared(&[], &all, BEGAN);
    let starts = [("i", "large", 3 * DAY), ("j", "large", 3 * DAY - 7)];
    proposes(&answer, [&[], &starts, &[]]);
    // It is not dated behind the snapshot for that.
    let answer = compared(&[], &all, AT + DAY);
    proposes(&answer, [&[], &[("i", "large", 0), ("j", "large", 0)], &[]]);
}

#[test]
fn quantities_are_proposed_as_they_are_written() {
    let exact = r#"[{"measure":"memory","quantity":31.245270191439438}]"#;
    let mut new = instance("i", "large");
    new.measured_usage = Some(measures(exact));
    let difference = compare(AT, 0, &[new], &[]);
    let body = difference.instance_without_span[0].proposal.body();
    assert!(body.contains(exact), "{body}");
    assert!(body.contains(r#""id":"sampler-"#), "{body}");
}
