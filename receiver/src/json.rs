//! Strict JSON: no member twice, no bottomless nesting, no flood of values, nothing behind the end.

use std::cell::Cell;
use std::fmt;

use sampler_service::problem::{Problem, ProblemType};
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::error::Category;
use serde_json::{Map, Value};

/// The most values in one body. A value of two bytes takes a hundred in memory, so the size of a
/// body alone is no bound on what it costs.
const VALUES_MAX: usize = 50_000;

/// Members of an event with all its fields.
pub(crate) const EVENT_MEMBERS: usize = 9;

/// What our own checks say to serde; nobody else sees it.
const TWICE: &str = "two members of one name";
const TOO_MANY: &str = "too many values";

/// Parses a whole body.
///
/// # Errors
/// 400 where it is not JSON. What the body holds is never repeated: errors end up in logs.
pub(crate) fn parse(bytes: &[u8]) -> Result<Value, Problem> {
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Err(Problem::new(
            ProblemType::MalformedJson,
            "The body is empty.",
        ));
    }
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let room = Cell::new(VALUES_MAX);
    let members = EVENT_MEMBERS;
    StrictVisitor {
        room: &room,
        members,
    }
    .deserialize(&mut deserializer)
    .and_then(|value| deserializer.end().map(|()| value))
    .map_err(|error| malformed(&error))
}

fn malformed(error: &serde_json::Error) -> Problem {
    let what = match error.classify() {
        Category::Eof => "The body ends in the middle of its JSON",
        Category::Data if error.to_string().starts_with(TOO_MANY) => {
            "The body holds more than 50,000 values"
        }
        Category::Data => "An object of the body has two members of one name",
        Category::Syntax | Category::Io => {
            // Only these two texts are looked for: the rest may hold pieces of the body.
            let text = error.to_string();
            if text.starts_with("recursion limit exceeded") {
                "The body's JSON is nested too deep"
            } else if text.starts_with("number out of range") {
                "The body holds a number that is out of range"
            } else {
                "The body is not JSON"
            }
        }
    };
    let detail = format!(
        "{what}, at line {}, column {}.",
        error.line(),
        error.column()
    );
    Problem::new(ProblemType::MalformedJson, detail)
}

/// Reads a value in which no object has two members of one name: which of them was meant?
#[derive(Clone, Copy)]
struct StrictVisitor<'r> {
    /// For how many values there is still room.
    room: &'r Cell<usize>,
    /// For how many members to make room if it is an object.
    members: usize,
}

impl StrictVisitor<'_> {
    fn count<E: Error>(self) -> Result<(), E> {
        let room = self
            .room
            .get()
            .checked_sub(1)
            .ok_or_else(|| E::custom(TOO_MANY))?;
        self.room.set(room);
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for StrictVisitor<'_> {
    type Value = Value;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        self.count()?;
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for StrictVisitor<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        let within = Self { members: 0, ..self };
        while let Some(item) = list.next_element_seed(within)? {
            items.push(item);
        }
        Ok(Value::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Value, A::Error> {
        let mut members = Map::with_capacity(self.members);
        let within = Self { members: 0, ..self };
        while let Some(name) = object.next_key::<String>()? {
            let member = object.next_value_seed(within)?;
            if members.insert(name, member).is_some() {
                return Err(A::Error::custom(TWICE));
            }
        }
        Ok(Value::Object(members))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn detail(text: &str) -> String {
        let problem = parse(text.as_bytes()).unwrap_err();
        assert_eq!(problem.kind(), ProblemType::MalformedJson);
        problem.detail().to_owned()
    }

    #[test]
    fn values_are_read_as_they_are_written() {
        let text =
            r#" {"z":[1,-2,1.0,1e2,18446744073709551615],"a":{"ü":"é\n","n":null,"t":true}} "#;
        let expected = json!({
            "z": [1, -2, 1.0, 100.0, 18_446_744_073_709_551_615_u64],
            "a": {"ü": "é\n", "n": null, "t": true},
        });
        let value = parse(text.as_bytes()).unwrap();
        assert_eq!(value, expected);
        assert!(value["z"][2].is_f64() && value["z"][0].is_i64());
    }

    /// Fault 17 of the original: parse errors echoed the body.
    #[test]
    fn fault_17_what_is_wrong_is_said_without_repeating_it() {
        assert_eq!(detail(" \n"), "The body is empty.");
        assert!(detail("{\"a\":").starts_with("The body ends in the middle"));
        assert!(detail("secret").starts_with("The body is not JSON"));
        assert!(detail("{} {}").starts_with("The body is not JSON"));
        assert!(detail("1e999").starts_with("The body holds a number that is out of range"));
        let many = format!("[{}0]", "0,".repeat(VALUES_MAX));
        assert!(detail(&many).starts_with("The body holds more than 50,000 values"));
        assert!(parse(format!("[{}0]", "0,".repeat(VALUES_MAX - 2)).as_bytes()).is_ok());
        assert!(detail(&"[".repeat(500)).starts_with("The body's JSON is nested too deep"));
        let twice = detail(r#"{"a":{"secret":1,"secret":2}}"#);
        assert!(twice.starts_with("An object of the body has two members of one name, at line 1"));
        assert!(!twice.contains("secret"));
        assert!(parse(b"\"\xff\"").is_err());
    }
}
