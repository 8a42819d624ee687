//! JSON as BSON and back, member by member. The `bson` crate's own conversion would read an object such
//! as `{"$oid": …}` as something else.

use bson::Bson;
use serde_json::Value;

pub(crate) fn to_bson(value: &Value) -> Bson {
    match value {
        Value::Null => Bson::Null,
        Value::Bool(value) => Bson::Boolean(*value),
        Value::Number(number) => match number.as_i64() {
            Some(integer) => Bson::Int64(integer),
            None => Bson::Double(number.as_f64().unwrap_or(f64::NAN)),
        },
        Value::String(text) => Bson::String(text.clone()),
        Value::Array(items) => Bson::Array(items.iter().map(to_bson).collect()),
        Value::Object(members) => Bson::Document(
            members
                .iter()
                .map(|(name, member)| (name.clone(), to_bson(member)))
                .collect(),
        ),
    }
}

/// BSON as JSON; a double that JSON cannot hold becomes null, which Abacus refuses.
pub(crate) fn to_json(bson: &Bson) -> Value {
    match bson {
        Bson::Boolean(value) => Value::Bool(*value),
        Bson::Int32(integer) => Value::from(*integer),
        Bson::Int64(integer) => Value::from(*integer),
        Bson::Double(double) => Value::from(*double),
        Bson::String(text) => Value::String(text.clone()),
        Bson::Array(items) => Value::Array(items.iter().map(to_json).collect()),
        Bson::Document(members) => Value::Object(
            members
                .iter()
                .map(|(name, bson)| (name.clone(), to_json(bson)))
                .collect(),
        ),
        // Nothing else comes from JSON. A value that was put in by hand is for Abacus to refuse.
        _ => Value::Null,
    }
}

#[cfg(test)]
mod tests {
    use bson::{Document, doc};
    use sampler_domain::{Quantity, number};

    use super::*;

    /// The text of a number, as a usage has it that was made from what is kept of it.
    fn posted(text: &str) -> (Bson, String) {
        let number = number::read(text).expect("a number that can be kept");
        let quantity = Quantity::new(Value::Number(number)).expect("a quantity");
        let document = doc! { "quantity": to_bson(quantity.as_json()) };
        let bytes = document.to_vec().expect("a document");
        let kept = Document::from_reader(&*bytes).expect("what was written");
        let kept = kept.get("quantity").expect("it is there");
        (kept.clone(), to_json(kept).to_string())
    }

    #[test]
    fn doubles_are_posted_bit_for_bit_as_they_were_sent() {
        let mut bits = 0_u64;
        for _ in 0..100_000 {
            bits = bits.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let double = f64::from_bits(bits ^ (bits >> 29));
            if double.is_finite() {
                let (kept, text) = posted(&format!("{double:e}"));
                assert_eq!(kept.as_f64().map(f64::to_bits), Some(double.to_bits()));
                assert_eq!(text.parse().map(f64::to_bits), Ok(double.to_bits()));
            }
        }
    }

    #[test]
    fn integers_are_kept_as_they_were_sent_and_greater_ones_as_doubles() {
        for text in ["512", "9007199254740992", "-9007199254740992"] {
            let (kept, posted) = posted(text);
            assert!(matches!(kept, Bson::Int64(_)), "{kept}");
            assert_eq!(posted, text);
        }
        for text in ["9007199254740994", "10000000000000000000000"] {
            let (kept, posted) = posted(text);
            assert!(matches!(kept, Bson::Double(_)), "{kept}");
            assert_eq!(posted.parse::<f64>(), text.parse(), "{posted}");
        }
    }
}
