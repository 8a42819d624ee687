//! Each case says what spans ran, and what a snapshot then proposes.

use serde_json::{Value, json};

use super::*;

/// The time of each snapshot.
const AT: Millis = 1_000;

fn measures(text: &str) -> Vec<Measured> {
    serde_json::from_str(text).unwrap()
}

fn target(name: &str, plan: &str) -> Target {
    let ids = json!({ "organization_id": "o", "space_id": "s", "consumer_id": "c", "resource_id": "r",
                      "plan_id": plan, "resource_instance_id": name });
    serde_json::from_value(ids).unwrap()
}

/// An instance as `name plan`, or `name plan since`.
fn instance(text: &str) -> Instance {
    let words: Vec<&str> = text.split(' ').collect();
    Instance {
        target: target(words[0], words[1]),
        since: words.get(2).map(|since| since.parse().unwrap()),
        measured_usage: None,
    }
}

/// A span as `name plan start`, or `name plan start end`.
fn span(text: &str) -> SpanSeen {
    let words: Vec<&str> = text.split(' ').collect();
    SpanSeen {
        id: text.to_owned(),
        target: target(words[0], words[1]),
        measured_usage: measures(r#"[{"measure":"memory","quantity":512}]"#),
        start: words[2].parse().unwrap(),
        end: words.get(3).map(|end| end.parse().unwrap()),
    }
}

/// All of a list.
fn listed<T>(text: &str, read: fn(&str) -> T) -> Vec<T> {
    let items = text.split(',').map(str::trim);
    items.filter(|it| !it.is_empty()).map(read).collect()
}

/// The proposed events, in their order.
fn proposed(difference: &Difference) -> String {
    let found = difference.items().map(|(_, found)| {
        let Event {
            r#type,
            target,
            timestamp,
            ..
        } = &found.proposal;
        let (name, plan) = (&target.resource_instance_id, &target.plan_id);
        format!("{type} {name} {plan} {timestamp}")
    });
    found.collect::<Vec<_>>().join(", ")
}

/// What ran, what runs by the provider, and what is proposed.
const CASES: &str = "
i large 5              | i large            |
i large 5              |                    | stop i large 1000
                       | i large            | start i large 1000
i small 5              | i large            | update i large 1000
i large 1000           | i large            |
i large 1001           | i large, j large 5 | start j large 5
i small 1001           | i large 5          |
i large 1001           |                    |
i large 5 1001         | i large            |
i small 5 1003         | i large            |
i large 5 1000         | i large            | start i large 1000
i small 5, i large 5   | i large, i huge    | update i huge 1000
i small 5              | i large 5, i huge 5 | stop i small 1000, start i large 1000, start i huge 1000
i small 5, i large 5   |                    | stop i small 1000, stop i large 1000";

#[test]
fn what_ran_then_is_compared() {
    for case in CASES.trim().lines() {
        let [spans, instances, expected] = case.split('|').collect::<Vec<_>>()[..] else {
            panic!("{case}");
        };
        let instances = listed(instances, instance);
        let difference = compare(AT, 0, &instances, &listed(spans, span));
        assert_eq!(proposed(&difference), expected.trim(), "{case}");
        assert_eq!((difference.at, difference.checked), (AT, instances.len()));
    }
}

/// A start is never dated at a time that is billed already, nor so far back that it is refused. It is dated behind a
/// span of no length, for that may be of the very same event.
#[test]
fn starts_are_dated_behind_what_is_billed() {
    for (spans, floor, start) in [
        ("", 0, 100),
        ("i small 100 700", 0, 700),
        ("i large 100 700", 0, 700),
        ("i large 100 100", 0, 101),
        ("i large 101 101", 0, 102),
        ("i small 50 99", 0, 100),
        ("i small 100 1000", 0, 1_000),
        ("i large 50 103, i small 102 109, i large 104 105", 0, 109),
        ("j small 100 900", 0, 100),
        ("", 300, 300),
        ("", 2_000, 1_000),
    ] {
        let difference = compare(AT, floor, &[instance("i large 100")], &listed(spans, span));
        let expected = format!("start i large {start}");
        assert_eq!(proposed(&difference), expected, "{spans}");
    }
}

#[test]
fn measures_that_the_provider_names_are_compared() {
    let ran = [span("i small 5")];
    let found = |quantity: &str, plan: &str| -> Value {
        let mut instance = instance(&format!("i {plan}"));
        let text = format!(r#"[{{"measure":"memory","quantity":{quantity}}}]"#);
        instance.measured_usage = Some(measures(&text));
        serde_json::to_value(compare(AT, 0, &[instance], &ran)).unwrap()["differs"][0].clone()
    };
    assert_eq!(found("512.0", "small"), Value::Null);
    let kept = json!({ "measured_usage": [{ "measure": "memory", "quantity": 512 }] });
    let other = found("2", "small");
    assert_eq!(
        (&other["kept"], &other["span"]),
        (&kept, &json!("i small 5"))
    );
    assert_eq!(other["proposal"]["measured_usage"][0]["quantity"], 2);
    assert_eq!(other["proposal"]["previous"], Value::Null);
    let plan = found("512", "large");
    let said = json!([{ "plan_id": "large" }, { "plan_id": "small" }]);
    assert_eq!(json!([plan["expected"], plan["kept"]]), said);
    assert_eq!(plan["proposal"]["previous"], json!({ "plan_id": "small" }));
    // Asking again proposes the same, under the same id.
    assert_eq!(found("512", "large"), plan);
}

#[test]
fn quantities_are_proposed_as_they_are_written() {
    let exact = r#"[{"measure":"memory","quantity":31.2452701914394380000000001}]"#;
    let mut new = instance("i large");
    new.measured_usage = Some(measures(exact));
    let difference = compare(AT, 0, &[new], &[]);
    let body = difference.instance_without_span[0].proposal.body();
    assert!(body.contains(exact), "{body}");
    assert!(body.contains(r#""id":"sampler-"#), "{body}");
}
