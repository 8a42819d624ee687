//! Measures and their quantities, compared by value.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

/// The greatest depth of nested lists and objects.
const DEPTH_MAX: usize = 64;

/// A quantity, read from its text: a reader that makes a double of every number would take
/// different integers for the same one.
#[derive(Clone, Debug)]
pub enum Quantity {
    /// A number without fraction and exponent.
    Integer(i128),
    /// Any other number.
    Double(f64),
    Text(String),
    /// `true`, `false` or `null`.
    Literal(String),
    List(Vec<Quantity>),
    Object(BTreeMap<String, Quantity>),
}

impl Quantity {
    /// Reads a value.
    pub fn read(raw: &RawValue) -> Result<Self, serde_json::Error> {
        Self::read_within(raw, 0)
    }

    fn read_within(raw: &RawValue, depth: usize) -> Result<Self, serde_json::Error> {
        let text = raw.get();
        if depth > DEPTH_MAX {
            return Err(serde::de::Error::custom("nested too deep"));
        }
        Ok(match text.as_bytes().first() {
            Some(b'{') => {
                let members: BTreeMap<String, Box<RawValue>> = serde_json::from_str(text)?;
                let members = members.into_iter().map(|(name, member)| {
                    Self::read_within(&member, depth + 1).map(|member| (name, member))
                });
                Self::Object(members.collect::<Result<_, _>>()?)
            }
            Some(b'[') => {
                let items: Vec<Box<RawValue>> = serde_json::from_str(text)?;
                let items = items.iter().map(|item| Self::read_within(item, depth + 1));
                Self::List(items.collect::<Result<_, _>>()?)
            }
            Some(b'"') => Self::Text(serde_json::from_str(text)?),
            Some(b'-' | b'0'..=b'9') => number(text)?,
            _ => Self::Literal(text.to_owned()),
        })
    }

    /// The integer, where it is one or equals one.
    pub fn whole(&self) -> Option<i128> {
        match self {
            Self::Integer(integer) => Some(*integer),
            Self::Double(double) if double.fract() == 0.0 && double.abs() < 1e18 => {
                #[expect(clippy::cast_possible_truncation, reason = "whole, and within 10^18")]
                let whole = *double as i128;
                Some(whole)
            }
            _ => None,
        }
    }
}

/// The standard library rounds to the nearest double, whatever the number of digits.
fn number(text: &str) -> Result<Quantity, serde_json::Error> {
    if let Ok(integer) = text.parse() {
        return Ok(Quantity::Integer(integer));
    }
    let double = text.parse().map_err(serde::de::Error::custom)?;
    Ok(Quantity::Double(double))
}

impl Serialize for Quantity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Integer(integer) => integer.serialize(serializer),
            Self::Double(double) => double.serialize(serializer),
            Self::Text(text) => text.serialize(serializer),
            Self::Literal(literal) if literal == "null" => serializer.serialize_unit(),
            Self::Literal(literal) => serializer.serialize_bool(literal == "true"),
            Self::List(items) => items.serialize(serializer),
            Self::Object(members) => members.serialize(serializer),
        }
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Integer(one), Self::Integer(other)) => one == other,
            (Self::Double(one), Self::Double(other)) => one.total_cmp(other).is_eq(),
            (Self::Integer(integer), Self::Double(double))
            | (Self::Double(double), Self::Integer(integer)) => {
                (*integer as f64).total_cmp(double).is_eq()
            }
            (Self::Text(one), Self::Text(other)) | (Self::Literal(one), Self::Literal(other)) => {
                one == other
            }
            (Self::List(one), Self::List(other)) => one == other,
            (Self::Object(one), Self::Object(other)) => one == other,
            _ => false,
        }
    }
}

/// Numbers and literals as they are; of anything else, what it is.
impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Integer(integer) => write!(f, "{integer}"),
            Self::Double(double) => write!(f, "{double}"),
            Self::Literal(literal) => f.write_str(literal),
            Self::Text(_) => f.write_str("a text"),
            Self::List(_) => f.write_str("a list"),
            Self::Object(_) => f.write_str("an object"),
        }
    }
}

/// A named quantity.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Measure {
    pub measure: String,
    pub quantity: Quantity,
}

impl<'de> Deserialize<'de> for Measure {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Raw {
            measure: String,
            quantity: Box<RawValue>,
        }
        let Raw { measure, quantity } = Raw::deserialize(deserializer)?;
        let quantity = Quantity::read(&quantity).map_err(serde::de::Error::custom)?;
        Ok(Self { measure, quantity })
    }
}

/// The first measure in which two lists differ; their order means nothing.
pub fn difference<'a>(ours: &'a [Measure], theirs: &'a [Measure]) -> Option<&'a str> {
    let (ours, theirs) = (sorted(ours), sorted(theirs));
    let count = ours.len().max(theirs.len());
    let differs = (0..count).find(|place| ours.get(*place) != theirs.get(*place))?;
    let first = ours.get(differs).into_iter().chain(theirs.get(differs));
    first.map(|measure| measure.measure.as_str()).min()
}

fn sorted(measures: &[Measure]) -> Vec<&Measure> {
    let mut sorted: Vec<&Measure> = measures.iter().collect();
    sorted.sort_by_key(|measure| &measure.measure);
    sorted
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quantity(text: &str) -> Quantity {
        let raw: Box<RawValue> = serde_json::from_str(text).unwrap();
        Quantity::read(&raw).unwrap()
    }

    #[test]
    fn numbers_are_equal_by_value() {
        for (one, other) in [
            ("512", "512.0"),
            ("1e2", "100"),
            ("0.1", "0.10000000000000001"),
            ("100000000000000000000", "1e20"),
            (
                "{\"a\":[1,\"x\"],\"b\":null}",
                "{ \"b\": null, \"a\": [1.0, \"x\"] }",
            ),
            ("\"\\u00e9\"", "\"é\""),
        ] {
            assert_eq!(quantity(one), quantity(other), "{one} {other}");
        }
        for (one, other) in [
            ("9007199254740993", "9007199254740992"),
            ("0.1", "0.10000000000000002"),
            ("1", "\"1\""),
            ("true", "false"),
            ("[1]", "[1,1]"),
            ("{}", "[]"),
        ] {
            assert_ne!(quantity(one), quantity(other), "{one} {other}");
        }
    }

    #[test]
    fn whole_numbers_in_any_notation() {
        assert_eq!(quantity("1.795e12").whole(), Some(1_795_000_000_000));
        assert_eq!(quantity("5").whole(), Some(5));
        for other in ["1.5", "\"5\"", "1e300", "null"] {
            assert_eq!(quantity(other).whole(), None, "{other}");
        }
    }

    #[test]
    fn nesting_has_a_limit() {
        let text = "[".repeat(100) + &"]".repeat(100);
        let raw: Box<RawValue> = serde_json::from_str(&text).unwrap();
        assert!(Quantity::read(&raw).is_err());
    }

    #[test]
    fn lists_differ_by_name_and_not_by_order() {
        let measures = |text: &str| serde_json::from_str::<Vec<Measure>>(text).unwrap();
        let both = measures(r#"[{"measure":"a","quantity":1},{"measure":"b","quantity":2}]"#);
        let turned = measures(r#"[{"measure":"b","quantity":2},{"measure":"a","quantity":1.0}]"#);
        assert_eq!(difference(&both, &turned), None);
        let other = measures(r#"[{"measure":"a","quantity":1},{"measure":"b","quantity":3}]"#);
        assert_eq!(difference(&both, &other), Some("b"));
        assert_eq!(difference(&both, &both[..1]), Some("b"));
        assert_eq!(difference(&both[1..], &both), Some("a"));
    }
}
