//! How the members of requests are read, where serde alone would take too much.

use std::collections::HashSet;
use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};

/// The error of the reader where an object has two members of one name: which of them was meant?
pub const TWICE: &str = "two members of one name";

/// Reads a member that may be left out, but not be null.
pub(crate) fn given<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

/// Reads a member that must be an object.
pub(crate) fn object<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    Object::deserialize(deserializer).map(|Object(value)| value)
}

/// The members of an object, in their order, no name twice.
#[derive(Clone, Debug, PartialEq)]
pub struct Distinct<V>(pub Vec<(String, V)>);

impl<'de, V: Deserialize<'de>> Deserialize<'de> for Distinct<V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ObjectVisitor::<Self>(PhantomData))
    }
}

/// A document that must be an object: a derived reader would take the list of its members, too.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Object<T>(pub T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ObjectVisitor::<Self>(PhantomData))
    }
}

/// What an object is read as.
struct ObjectVisitor<T>(PhantomData<T>);

impl<'de, V: Deserialize<'de>> Visitor<'de> for ObjectVisitor<Distinct<V>> {
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

impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<Object<T>> {
    type Value = Object<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, object: A) -> Result<Object<T>, A::Error> {
        T::deserialize(MapAccessDeserializer::new(object)).map(Object)
    }
}
