//! Whatever is sent: no panic and no answer 5xx. What is valid is kept as it was given, and known when it comes
//! again. `PROPTEST_CASES` says how often.

use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::{Value, json};
use tokio::runtime::{Builder, Runtime};

use crate::bodies::{gzip, zipped};
use crate::event::{TARGET, as_kept, by, start, stop, with};
use crate::world::{FUTURE, HOUR, NOW, PAST, START, STOP, World, request};

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// A text as an id may be: anything but control characters.
fn text() -> impl Strategy<Value = String> {
    let character = any::<char>().prop_map(|c| if c.is_control() { 'x' } else { c });
    prop_oneof![
        4 => prop::collection::vec(character, 1..40).prop_map(String::from_iter),
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

fn leaf() -> impl Strategy<Value = Value> {
    let doubles = any::<u64>().prop_map(f64::from_bits);
    let doubles = doubles.prop_filter("JSON knows no others", |double| double.is_finite());
    prop_oneof![
        (-(1_i64 << 53)..=1 << 53).prop_map(Value::from),
        (-9_i64..99).prop_map(Value::from),
        doubles.prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ]
}

/// A quantity as it may be: a number, a text, a list or an object, with anything inside.
fn quantity() -> impl Strategy<Value = Value> {
    let name = any::<String>();
    let name = name.prop_map(|name| name.replace('\0', "_").trim_start_matches('$').to_owned());
    leaf().prop_recursive(5, 24, 4, move |inner| {
        let inner = prop_oneof![8 => inner, 1 => Just(json!(null)), 1 => Just(json!(true))];
        let members = prop::collection::btree_map(name.clone(), inner.clone(), 0..4);
        prop_oneof![
            prop::collection::vec(inner, 0..4).prop_map(Value::from),
            members.prop_map(|members| members.into_iter().collect()),
        ]
    })
}

fn measures() -> impl Strategy<Value = Value> {
    let name = text().prop_filter("reserved", |name| name != "duration");
    let measures = prop::collection::hash_map(name, quantity(), 0..5);
    measures.prop_map(|measures| {
        let measure = |(name, quantity)| json!({"measure": name, "quantity": quantity});
        measures.into_iter().map(measure).collect()
    })
}

/// A start event, and a stop event that ends what it starts.
fn usage() -> impl Strategy<Value = (Value, Value)> {
    let moments = NOW - PAST..NOW + FUTURE + 1;
    let target = prop::collection::vec(text(), TARGET.len());
    (target, moments.clone(), moments, id(), id(), measures()).prop_map(
        |(target, one, other, start_id, stop_id, measures)| {
            let fields = TARGET.iter().zip(target);
            let event = fields.fold(stop(NOW), |event, (name, text)| with(&event, name, text));
            let identified = |event, id: Option<String>| match id {
                Some(id) => by(&id, &event),
                None => event,
            };
            let start = with(&event, "timestamp", one.min(other));
            let start = with(&start, "measured_usage", measures);
            let end = with(&event, "timestamp", one.max(other));
            (identified(start, start_id), identified(end, stop_id))
        },
    )
}

#[test]
fn any_usage_is_kept_as_it_was_given_and_known_when_it_comes_again() {
    let runtime = runtime();
    proptest!(|((start, stop) in usage(), packed in any::<bool>())| {
        let sent = |path, event: &Value, packed| if packed {
            zipped(path, gzip(&serde_json::to_vec_pretty(event).unwrap()))
        } else {
            request(path, event.to_string())
        };
        runtime.block_on(async {
            let world = World::new();
            let (kept, ended) = (as_kept(&start), as_kept(&stop));
            for (path, event, again) in [(START, &start, "open-span"), (STOP, &stop, "no-open-span")] {
                world.send(sent(path, event, packed)).await.is_created();
                let answer = world.send(sent(path, event, !packed)).await;
                if as_kept(event).get("id").is_some() {
                    answer.is_replayed();
                } else {
                    answer.problem(if path == START { 409 } else { 422 }, again);
                }
                world.assert_kept(&[(&kept, (path == STOP).then_some(&ended))]);
            }
            // The order of members, which comparing does not look at, stays too.
            let measures = &world.kept()[0].0["measured_usage"];
            assert_eq!(measures.to_string(), kept["measured_usage"].to_string());
        });
    });
}

#[test]
fn whatever_is_sent_is_refused_or_kept() {
    let runtime = runtime();
    let flips = prop::collection::vec((any::<Index>(), any::<u8>()), 1..4);
    let own = prop_oneof![
        Just(None),
        prop::collection::vec(any::<u8>(), 0..300).prop_map(Some)
    ];
    proptest!(|(own in own, flips in flips, packed in any::<bool>(), is_stop in any::<bool>())| {
        let (path, event) = if is_stop { (STOP, stop(NOW)) } else { (START, start(NOW)) };
        let mut bytes = own.unwrap_or_else(|| event.to_string().into_bytes());
        bytes = if packed { gzip(&bytes) } else { bytes };
        for (place, byte) in flips {
            let length = bytes.len().max(1);
            bytes.resize(length, 0);
            bytes[place.index(length)] = byte;
        }
        let sent = if packed { zipped(path, bytes) } else { request(path, bytes) };
        runtime.block_on(async {
            let world = World::new();
            world.start(&start(NOW - HOUR)).await.is_created();
            let answer = world.send(sent).await;
            assert!(answer.status < 500, "{answer:?}");
            if answer.status == 201 {
                answer.is_created();
            } else {
                answer.any_problem();
            }
            let kept = world.kept();
            let count = kept.len() + kept.iter().filter(|(_, stop)| stop.is_some()).count();
            assert_eq!(count, if answer.status == 201 { 2 } else { 1 }, "{kept:?}");
        });
    });
}
