//! Bodies that must be taken, in all their variety.

use std::ops::Range;

use proptest::prelude::*;
use serde_json::{Value, json};

use crate::event::{TARGET, stop, with};
use crate::world::{FUTURE, NOW, PAST};

/// A text as an id may be: anything but control characters.
fn text() -> impl Strategy<Value = String> {
    let character = any::<char>().prop_map(|c| if c.is_control() { 'x' } else { c });
    let short = prop::collection::vec(character, 1..40);
    prop_oneof![
        4 => short.prop_map(String::from_iter),
        4 => "[a-zA-Z0-9:./~$ -]{1,30}",
        1 => (1_usize..=1024).prop_map(|length| "x".repeat(length)),
    ]
}

/// An `id`, which may be left out or empty.
fn id() -> impl Strategy<Value = Option<String>> {
    prop_oneof![
        1 => Just(None),
        1 => Just(Some(String::new())),
        6 => text().prop_map(Some),
    ]
}

/// A double, which is sent as the shortest text that stands for it.
fn double() -> impl Strategy<Value = f64> {
    any::<u64>()
        .prop_map(f64::from_bits)
        .prop_filter("JSON knows no others", |double| double.is_finite())
}

fn integer() -> impl Strategy<Value = i64> {
    -(1_i64 << 53)..=1 << 53
}

fn leaf() -> impl Strategy<Value = Value> {
    prop_oneof![
        integer().prop_map(Value::from),
        (-9_i64..99).prop_map(Value::from),
        double().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ]
}

/// A quantity as it may be: a number, a text, a list or an object, with anything inside.
fn quantity() -> impl Strategy<Value = Value> {
    let within =
        prop_oneof![8 => leaf(), 1 => Just(json!(null)), 1 => any::<bool>().prop_map(Value::from)];
    let member =
        any::<String>().prop_map(|name| name.replace('\0', "_").trim_start_matches('$').to_owned());
    let tree = within.prop_recursive(5, 24, 4, move |inner| {
        let lists = prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from);
        let objects = prop::collection::btree_map(member.clone(), inner, 0..4);
        prop_oneof![
            lists,
            objects.prop_map(|members| members.into_iter().collect::<Value>())
        ]
    });
    let deep =
        (1_usize..=32).prop_map(|levels| (0..levels).fold(json!(1), |inner, _| json!([inner])));
    let tree = tree.prop_map(|value| match value {
        Value::Null | Value::Bool(_) => json!([value]),
        _ => value,
    });
    prop_oneof![9 => tree, 1 => deep]
}

fn measures() -> impl Strategy<Value = Value> {
    let name = text().prop_filter("reserved", |name| name != "duration");
    let measures = prop::collection::hash_map(name, quantity(), 0..5);
    measures.prop_map(|measures| {
        let measure = |(name, quantity)| json!({"measure": name, "quantity": quantity});
        measures.into_iter().map(measure).collect()
    })
}

fn identified(event: &Value, id: Option<String>) -> Value {
    id.map_or_else(|| event.clone(), |id| with(event, "id", id))
}

/// A start event, and a stop event that ends what it starts.
pub(super) fn usage() -> impl Strategy<Value = (Value, Value)> {
    let moments: Range<i64> = NOW - PAST..NOW + FUTURE + 1;
    let target = prop::collection::vec(text(), TARGET.len());
    (target, moments.clone(), moments, id(), id(), measures()).prop_map(
        |(target, one, other, start_id, stop_id, measures)| {
            let event = TARGET.iter().zip(target);
            let event = event.fold(stop(one.min(other)), |event, (name, text)| {
                with(&event, name, text)
            });
            let end = with(&event, "timestamp", one.max(other));
            let start = with(&event, "measured_usage", measures);
            (identified(&start, start_id), identified(&end, stop_id))
        },
    )
}

pub(super) fn mapping() -> impl Strategy<Value = Value> {
    // What could lead elsewhere in a path has tests of its own.
    let leads_nowhere = |name: &String| !name.contains(['/', '\\', '.', '%']);
    let segment = text().prop_filter("a segment of a path", leads_nowhere);
    prop::collection::vec(segment, 5).prop_map(|names| {
        json!({
            "resource_id": names[0],
            "plan_id": names[1],
            "metering_plan": names[2],
            "rating_plan": names[3],
            "pricing_plan": names[4],
        })
    })
}
