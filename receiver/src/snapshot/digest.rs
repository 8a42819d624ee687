//! Digests: an instance in a few bytes, to compare it with others.

use std::num::NonZeroU64;

use sampler_domain::{Id, Measures, Target};
use serde_json::{Number, Value};
use uuid::Uuid;

/// The digest of an instance and its customer, whatever its plan. The resource is that of the
/// snapshot.
pub(super) fn of_instance(target: &Target) -> u128 {
    let fields = [
        &target.organization_id,
        &target.space_id,
        &target.consumer_id,
        &target.resource_instance_id,
    ];
    let mut bytes = Vec::new();
    for id in fields.map(Id::as_str) {
        bytes.extend((id.len() as u64).to_be_bytes());
        bytes.extend(id.as_bytes());
    }
    of(&bytes)
}

pub(super) fn of_plan(target: &Target) -> u64 {
    half(of(target.plan_id.as_str().as_bytes()))
}

/// How much is used: the same for the same measures in any order, however their numbers are written.
pub(super) fn of_measures(measures: &Measures) -> NonZeroU64 {
    let mut all: Vec<_> = measures.as_slice().iter().collect();
    all.sort_by_key(|it| &it.measure);
    let pairs: Value = all
        .into_iter()
        .map(|it| pair(it.measure.as_str(), it.quantity.as_json()))
        .collect();
    let text = pairs.to_string();
    NonZeroU64::new(half(of(text.as_bytes()))).unwrap_or(NonZeroU64::MAX)
}

/// The same, with each whole number written as an integer, and members in one order.
fn plain(value: &Value) -> Value {
    match value {
        Value::Number(number) => Value::Number(integer(number).unwrap_or_else(|| number.clone())),
        Value::Array(items) => items.iter().map(plain).collect(),
        Value::Object(members) => {
            let mut sorted: Vec<_> = members.iter().collect();
            sorted.sort_by_key(|(name, _)| *name);
            let pairs = sorted
                .into_iter()
                .map(|(name, value)| pair(name, value))
                .collect();
            // So that it differs from a list.
            vec![Value::Null, pairs].into()
        }
        _ => value.clone(),
    }
}

fn pair(name: &str, value: &Value) -> Value {
    vec![name.into(), plain(value)].into()
}

fn integer(number: &Number) -> Option<Number> {
    let double = number.as_f64().filter(|double| double.fract() == 0.0)?;
    #[expect(clippy::cast_possible_truncation, reason = "held at the limits of i64")]
    let integer = double as i64;
    (number.is_f64() && integer != i64::MAX).then(|| Number::from(integer))
}

fn of(bytes: &[u8]) -> u128 {
    Uuid::new_v5(&Uuid::NAMESPACE_OID, bytes).as_u128()
}

#[expect(clippy::cast_possible_truncation, reason = "as many bits as are kept")]
fn half(digest: u128) -> u64 {
    // The lower half has no bits that are alike in all.
    digest as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use sampler_domain::{Measure, Quantity};
    use serde_json::json;

    fn measures(all: &Value) -> NonZeroU64 {
        let measure = |(name, quantity): (&String, &Value)| Measure {
            measure: Id::from_store(name),
            quantity: Quantity::from_store(quantity.clone()),
        };
        let all = all.as_object().unwrap().iter().rev().map(measure);
        of_measures(&Measures::from_store(all.collect()))
    }

    #[test]
    fn the_same_quantities_have_one_digest_and_no_others() {
        let base = measures(&json!({ "a": 1, "b": { "c": [1, 2], "d": 0.5 } }));
        assert_eq!(
            base,
            measures(&json!({ "b": { "d": 0.5, "c": [1.0, 2] }, "a": 1.0 }))
        );
        for other in [
            json!({}),
            json!({ "a": 1 }),
            json!({ "a": "1", "b": { "c": [1, 2], "d": 0.5 } }),
            json!({ "a": 1, "b": { "c": [2, 1], "d": 0.5 } }),
            json!({ "a": 1, "b": [null, [["c", [1, 2]], ["d", 0.5]]], "c": 1 }),
        ] {
            assert_ne!(base, measures(&other), "{other}");
        }
        assert_ne!(
            measures(&json!({ "a": 1e300 })),
            measures(&json!({ "a": 1e301 }))
        );
    }

    #[test]
    fn fields_of_a_target_do_not_run_into_each_other() {
        let of = |organization, space| {
            of_instance(&Target::from_store([
                organization,
                space,
                "c",
                "r",
                "p",
                "i",
            ]))
        };
        assert_ne!(of("ab", "c"), of("a", "bc"));
    }
}
