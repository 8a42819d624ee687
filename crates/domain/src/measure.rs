//! The measures of a usage, with their quantities.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use serde::{Serialize, Serializer};
use serde_json::Value;

use crate::number::{self, NumberError};
use crate::{Id, IdError};

/// The measure that sampling appends to each usage, in milliseconds (section 5.1 of the paper).
pub const DURATION: &str = "duration";

/// A quantity as the provider gave it: a number, a string, an object or a list.
///
/// Numbers are what was sent (see [`number`]): integers up to 2^53, and doubles.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(transparent)]
pub struct Quantity(Value);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// `null` or a boolean, which Abacus refuses.
    #[error("must be a number, a string, an object or a list")]
    Kind,
    /// A number that cannot be kept as it was sent.
    #[error(transparent)]
    Number(#[from] NumberError),
    /// Lists and objects within each other beyond [`Quantity::DEPTH_MAX`].
    #[error("must not be nested deeper than {max} levels", max = Quantity::DEPTH_MAX)]
    Depth,
    /// A member name that the store or its tools would take for something else.
    #[error("holds the member name {0:?}, but names must not start with '$' or hold a NUL")]
    Name(String),
}

impl Quantity {
    /// How deep lists and objects may be nested; well below the 100 levels of MongoDB.
    pub const DEPTH_MAX: usize = 32;

    /// Takes a provider's value.
    pub fn new(mut value: Value) -> Result<Self, QuantityError> {
        if matches!(value, Value::Null | Value::Bool(_)) {
            return Err(QuantityError::Kind);
        }
        check(&mut value, 0)?;
        Ok(Self(value))
    }

    /// Takes a value that is already in the store, whatever it is (see [`Id::from_store`]).
    pub fn from_store(value: Value) -> Self {
        Self(value)
    }

    pub fn as_json(&self) -> &Value {
        &self.0
    }

    /// Whether both have the same value: `1` and `1.0` do, whichever was stored.
    pub fn same_as(&self, other: &Self) -> bool {
        same(&self.0, &other.0)
    }
}

/// Checks a value all the way down; an integer beyond 2^53 becomes the double that equals it.
fn check(value: &mut Value, depth: usize) -> Result<(), QuantityError> {
    match value {
        Value::Number(number) => {
            let integer = number.as_i64().map(i64::unsigned_abs).or(number.as_u64());
            if integer.is_some_and(|magnitude| !number::is_safe(magnitude)) {
                *value = Value::Number(number::read(&number.to_string())?);
            }
            Ok(())
        }
        Value::Array(_) | Value::Object(_) if depth >= Quantity::DEPTH_MAX => {
            Err(QuantityError::Depth)
        }
        Value::Array(items) => items.iter_mut().try_for_each(|item| check(item, depth + 1)),
        Value::Object(members) => members.iter_mut().try_for_each(|(name, member)| {
            if name.starts_with('$') || name.contains('\0') {
                return Err(QuantityError::Name(name.clone()));
            }
            check(member, depth + 1)
        }),
        Value::Null | Value::Bool(_) | Value::String(_) => Ok(()),
    }
}

fn weight_of(value: &Value) -> usize {
    let inside = match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(weight_of).sum(),
        Value::Object(members) => members
            .iter()
            .map(|(name, member)| name.len() + weight_of(member))
            .sum(),
    };
    VALUE_WEIGHT + inside
}

fn same(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => match (left.as_i64(), right.as_i64()) {
            (Some(left), Some(right)) => left == right,
            (Some(integer), None) => right.as_f64().is_some_and(|it| equals(it, integer)),
            (None, Some(integer)) => left.as_f64().is_some_and(|it| equals(it, integer)),
            (None, None) => left.as_f64() == right.as_f64(),
        },
        (Value::Array(left), Value::Array(right)) => {
            left.len() == right.len() && left.iter().zip(right).all(|(l, r)| same(l, r))
        }
        (Value::Object(left), Value::Object(right)) => {
            left.len() == right.len()
                && left
                    .iter()
                    .all(|(name, l)| right.get(name).is_some_and(|r| same(l, r)))
        }
        _ => left == right,
    }
}

/// Whether a double is this very integer: an integer in an old document may be between
/// two doubles.
fn equals(double: f64, integer: i64) -> bool {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "held at the limits of i128, where no i64 is"
    )]
    let whole = double as i128;
    double.fract() == 0.0 && whole == i128::from(integer)
}

/// A named quantity.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Measure {
    /// The name, unique within its list.
    pub measure: Id,
    pub quantity: Quantity,
}

/// The approximate memory of a value beside its text, in bytes: its place in a list or an object.
const VALUE_WEIGHT: usize = 128;

/// The `measured_usage` of a start event, in the order given; it may be empty.
///
/// Clones share the list: it can be large, and a span is cloned with each change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Measures(Arc<Vec<Measure>>);

impl Serialize for Measures {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

/// Why a list is not [`Measures`]; both hold the index of the offending measure.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MeasuresError {
    /// A measure is named `duration`, which sampling appends itself.
    #[error("name \"duration\" is reserved: sampling adds a measure with this name")]
    Duration(usize),
    /// A name is repeated in the list.
    #[error("measure {1} is in the list already")]
    Twice(usize, String),
}

impl Measures {
    /// Takes a provider's list.
    ///
    /// # Errors
    /// All measures that are named `duration` or like one before them.
    pub fn new(measures: Vec<Measure>) -> Result<Self, Vec<MeasuresError>> {
        let mut names = HashSet::new();
        let mut errors = Vec::new();
        for (index, measure) in measures.iter().enumerate() {
            let name = measure.measure.as_str();
            if name == DURATION {
                errors.push(MeasuresError::Duration(index));
            } else if !names.insert(name) {
                errors.push(MeasuresError::Twice(index, format!("{name:?}")));
            }
        }
        if errors.is_empty() {
            Ok(Self(Arc::new(measures)))
        } else {
            Err(errors)
        }
    }

    /// Takes a list that is already in the store, whatever it is (see [`Id::from_store`]).
    pub fn from_store(measures: Vec<Measure>) -> Self {
        Self(Arc::new(measures))
    }

    /// About how many bytes of memory the list takes.
    pub fn weight(&self) -> usize {
        self.0
            .iter()
            .map(|it| it.measure.as_str().len() + weight_of(it.quantity.as_json()))
            .sum()
    }

    pub fn as_slice(&self) -> &[Measure] {
        &self.0
    }

    /// Whether both lists hold the same measures in the same order (see [`Quantity::same_as`]).
    pub fn same_as(&self, other: &Self) -> bool {
        let mut pairs = self.0.iter().zip(&*other.0);
        self.0.len() == other.0.len()
            && pairs.all(|(left, right)| {
                left.measure == right.measure && left.quantity.same_as(&right.quantity)
            })
    }
}

impl Measure {
    /// A measure by name and quantity.
    pub fn new(name: impl Into<String>, quantity: Quantity) -> Result<Self, IdError> {
        Ok(Self {
            measure: Id::new(name)?,
            quantity,
        })
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn measure(name: &str, value: Value) -> Measure {
        Measure::new(name, Quantity::new(value).unwrap()).unwrap()
    }

    #[test]
    fn a_quantity_is_kept_as_given() {
        for text in [
            "3",
            "-9007199254740992",
            "0.5",
            "\"x\"",
            "[1,null,true]",
            r#"{"b":1,"a":{"c":[2]}}"#,
        ] {
            let value: Value = serde_json::from_str(text).unwrap();
            assert_eq!(Quantity::new(value).unwrap().to_string(), text);
        }
    }

    #[test]
    fn null_and_booleans_are_refused() {
        for value in [json!(null), json!(true), json!(false)] {
            assert_eq!(Quantity::new(value), Err(QuantityError::Kind));
        }
    }

    #[test]
    fn an_integer_that_no_double_holds_is_refused_at_any_depth() {
        for integer in [
            json!(9_007_199_254_740_993_i64),
            json!(u64::MAX),
            json!(i64::MAX),
        ] {
            assert!(Quantity::new(integer.clone()).is_err());
            assert!(Quantity::new(json!({"a": [integer]})).is_err());
        }
        for (integer, double) in [
            (
                json!(9_223_372_036_854_775_808_u64),
                9_223_372_036_854_775_808.0,
            ),
            (json!(i64::MIN), -9_223_372_036_854_775_808.0),
            (json!(9_007_199_254_740_994_i64), 9_007_199_254_740_994.0),
        ] {
            let kept = Quantity::new(integer).unwrap();
            assert!(kept.as_json().is_f64());
            assert_eq!(kept.as_json().as_f64(), Some(double));
        }
    }

    #[test]
    fn depth_has_a_limit() {
        let nested = |levels: usize| (0..levels).fold(json!(1), |inner, _| json!([inner]));
        assert!(Quantity::new(nested(Quantity::DEPTH_MAX)).is_ok());
        assert_eq!(
            Quantity::new(nested(Quantity::DEPTH_MAX + 1)),
            Err(QuantityError::Depth)
        );
    }

    #[test]
    fn names_that_mean_something_to_mongodb_are_refused() {
        assert!(Quantity::new(json!({"$numberLong": "5"})).is_err());
        assert!(Quantity::new(json!([{"a\0b": 1}])).is_err());
        assert!(Quantity::new(json!({"a.b$": 1})).is_ok());
    }

    #[test]
    fn the_same_number_in_another_type_is_the_same() {
        let same = |l: Value, r: Value| Quantity::from_store(l).same_as(&Quantity::from_store(r));
        assert!(same(json!(3_000_000_000_i64), json!(3_000_000_000.0)));
        assert!(same(
            json!({"a": 1, "b": [2.0]}),
            json!({"b": [2], "a": 1.0})
        ));
        assert!(!same(
            json!(9_007_199_254_740_993_i64),
            json!(9_007_199_254_740_992_i64)
        ));
        assert!(same(
            json!(9_007_199_254_740_994_i64),
            json!(9_007_199_254_740_994.0)
        ));
        assert!(!same(
            json!(9_007_199_254_740_995_i64),
            json!(9_007_199_254_740_996.0)
        ));
        assert!(!same(json!(1), json!("1")));
    }

    #[test]
    fn a_list_weighs_its_texts_and_each_of_its_values() {
        let weight = |value: Value| Measures::from_store(vec![measure("m", value)]).weight();
        assert_eq!(weight(json!(1)), 1 + VALUE_WEIGHT);
        assert_eq!(weight(json!("x".repeat(1_000))), 1_001 + VALUE_WEIGHT);
        assert_eq!(weight(json!({ "ab": [[], []] })), 3 + 4 * VALUE_WEIGHT);
    }

    #[test]
    fn clones_share_the_list() {
        let measures = Measures::from_store(vec![measure("m", json!("x"))]);
        assert!(std::ptr::eq(
            measures.as_slice(),
            measures.clone().as_slice()
        ));
    }

    /// Fault 12 of the original: a measure named `duration` was admitted beside the appended one.
    #[test]
    fn fault_12_a_measure_named_duration_is_refused_and_so_is_one_named_twice() {
        let list = vec![
            measure("a", json!(1)),
            measure("duration", json!(1)),
            measure("a", json!(2)),
        ];
        let errors = Measures::new(list).unwrap_err();
        assert_eq!(
            errors,
            [
                MeasuresError::Duration(1),
                MeasuresError::Twice(2, "\"a\"".into())
            ]
        );
        assert!(Measures::new(vec![measure("a", json!(1)), measure("A", json!(1))]).is_ok());
        assert!(Measures::new(vec![]).is_ok());
    }
}
