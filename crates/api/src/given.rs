//! Members of requests as they were given.

use std::collections::HashSet;
use std::fmt;
use std::marker::PhantomData;

use sampler_domain::number;
use sampler_domain::{Id, Quantity, QuantityError, Timestamp};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, DeserializeOwned, Deserializer, Error, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

/// The error of the reader where an object has two members of one name: which of them was meant?
pub const TWICE: &str = "two members of one name";

/// A member of a request. A wrong value is no error of the reader, so that all wrong values of a request are
/// told together. A value of another type is one.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Given<T> {
    #[default]
    Missing,
    /// What is wrong with the value, in a full sentence.
    Wrong(String),
    Right(T),
}

impl<T> Given<T> {
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::Missing)
    }

    /// The value, or in a full sentence what is wrong where it must be there.
    pub fn required(self) -> Result<T, String> {
        match self {
            Self::Right(value) => Ok(value),
            Self::Missing => Err("It is missing.".to_owned()),
            Self::Wrong(detail) => Err(detail),
        }
    }
}

/// A value or what is wrong with it, or the error of the reader.
pub type Read<'de, T, D> = Result<Result<T, String>, <D as Deserializer<'de>>::Error>;

/// What can be [`Given`].
pub trait Member: Sized {
    /// Reads a value, and says in a full sentence what is wrong with it.
    ///
    /// # Errors
    /// Those of the reader, where the value is of another type.
    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Read<'de, Self, D>;
}

impl<'de, T: Member> Deserialize<'de> for Given<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(match T::read(deserializer)? {
            Ok(value) => Self::Right(value),
            Err(detail) => Self::Wrong(detail),
        })
    }
}

impl Member for String {
    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Read<'de, Self, D> {
        Self::deserialize(deserializer).map(Ok)
    }
}

impl Member for Id {
    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Read<'de, Self, D> {
        let id = Self::new(String::deserialize(deserializer)?);
        Ok(id.map_err(|error| format!("It {error}.")))
    }
}

impl<T: DeserializeOwned> Member for Vec<T> {
    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Read<'de, Self, D> {
        Self::deserialize(deserializer).map(Ok)
    }
}

impl<T: DeserializeOwned> Member for Object<T> {
    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Read<'de, Self, D> {
        Self::deserialize(deserializer).map(Ok)
    }
}

/// Milliseconds since the epoch as a number, or RFC 3339 as a text.
impl Member for Timestamp {
    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Read<'de, Self, D> {
        deserializer.deserialize_any(TimeVisitor)
    }
}

struct TimeVisitor;

impl TimeVisitor {
    const EXPECTED: &str =
        "a whole number of milliseconds since the epoch, or RFC 3339 with an offset";

    fn unexpected<T>() -> Result<T, String> {
        Err(format!("It must be {}.", Self::EXPECTED))
    }
}

impl Visitor<'_> for TimeVisitor {
    type Value = Result<Timestamp, String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Self::EXPECTED)
    }

    fn visit_i64<E>(self, millis: i64) -> Result<Self::Value, E> {
        let time = Timestamp::new(millis);
        Ok(time.map_err(|error| format!("It is out of range: {error}.")))
    }

    fn visit_u64<E: Error>(self, millis: u64) -> Result<Self::Value, E> {
        self.visit_i64(i64::try_from(millis).unwrap_or(i64::MAX))
    }

    /// JSON knows one kind of number: 1.5e12 and 3.0 are whole.
    fn visit_f64<E: Error>(self, millis: f64) -> Result<Self::Value, E> {
        if millis.fract() != 0.0 {
            return Ok(Self::unexpected());
        }
        // A double beyond `i64` is out of range as a time, too.
        #[expect(clippy::cast_possible_truncation, reason = "held at the limits of i64")]
        self.visit_i64(millis as i64)
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        // A number as a text is a mistake, as it has always been.
        let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
        let time = Timestamp::from_text(text).filter(|_| !is_number);
        Ok(time.map_or_else(Self::unexpected, Ok))
    }
}

/// A quantity, whose numbers are kept as they are written, or refused.
impl Member for Quantity {
    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Read<'de, Self, D> {
        let written: &'de RawValue = Deserialize::deserialize(deserializer)?;
        match exact(written, 0) {
            Ok(value) => Ok(Self::new(value).map_err(|error| format!("It {error}."))),
            Err(Inexact::Wrong(error)) => Ok(Err(format!("It {error}."))),
            Err(Inexact::Twice) => Err(D::Error::custom(TWICE)),
        }
    }
}

/// Why a value cannot be kept as it is written.
enum Inexact {
    Twice,
    Wrong(QuantityError),
}

impl From<serde_json::Error> for Inexact {
    fn from(error: serde_json::Error) -> Self {
        if error.is_data() {
            Self::Twice
        } else {
            // A text that JSON does not allow.
            Self::Wrong(QuantityError::Kind)
        }
    }
}

/// A value, whose numbers are read from their texts: `serde_json` would round them.
fn exact(written: &RawValue, depth: usize) -> Result<Value, Inexact> {
    let text = written.get();
    let is_container = text.starts_with(['[', '{']);
    if is_container && depth >= Quantity::DEPTH_MAX {
        return Err(Inexact::Wrong(QuantityError::Depth));
    }
    if text.starts_with('[') {
        let items: Vec<&RawValue> = serde_json::from_str(text)?;
        let items = items.into_iter().map(|item| exact(item, depth + 1));
        return items.collect::<Result<_, _>>().map(Value::Array);
    }
    if text.starts_with('{') {
        let Distinct(members) = serde_json::from_str::<Distinct<&RawValue>>(text)?;
        let members = members.into_iter();
        let members = members.map(|(name, member)| Ok((name, exact(member, depth + 1)?)));
        return members.collect::<Result<_, _>>().map(Value::Object);
    }
    if text.starts_with(|first: char| first == '-' || first.is_ascii_digit()) {
        let number = number::read(text).map_err(QuantityError::from);
        return number.map(Value::Number).map_err(Inexact::Wrong);
    }
    Ok(serde_json::from_str(text)?)
}

/// The members of an object, in their order, no name twice.
#[derive(Clone, Debug, PartialEq)]
pub struct Distinct<V>(pub Vec<(String, V)>);

impl<'de, V: Deserialize<'de>> Deserialize<'de> for Distinct<V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(DistinctVisitor(PhantomData))
    }
}

struct DistinctVisitor<V>(PhantomData<V>);

impl<'de, V: Deserialize<'de>> Visitor<'de> for DistinctVisitor<V> {
    type Value = Distinct<V>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Distinct<V>, A::Error> {
        let (mut members, mut names) = (Vec::new(), HashSet::new());
        while let Some((name, member)) = object.next_entry::<String, V>()? {
            if !names.insert(name.clone()) {
                return Err(A::Error::custom(TWICE));
            }
            members.push((name, member));
        }
        Ok(Distinct(members))
    }
}

/// A document that must be an object: a derived reader would take the list of its members, too.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Object<T>(pub T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ObjectVisitor(PhantomData))
    }
}

struct ObjectVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
    type Value = Object<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, object: A) -> Result<Object<T>, A::Error> {
        T::deserialize(MapAccessDeserializer::new(object)).map(Object)
    }
}

/// Reads a member that must be an object.
pub(crate) fn object<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    Object::deserialize(deserializer).map(|Object(value)| value)
}
