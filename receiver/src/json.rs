//! Strict JSON: no member twice, no bottomless nesting, no flood of values, nothing behind the end.

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::HashSet;
use std::fmt;
use std::ops::Range;

use sampler_domain::number::{self, NumberError};
use sampler_service::problem::Problem;

use crate::problems;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::error::Category;
use serde_json::{Map, Value};

/// The most values in one body. A value of two bytes takes a hundred in memory, so the size of a
/// body alone does not bound its cost.
const VALUES_MAX: usize = 50_000;

/// Members of an event with all its fields.
const EVENT_MEMBERS: usize = 9;

/// So many members are compared with each other faster than they are hashed.
const FEW_MEMBERS: usize = 32;

/// The errors of our own checks within serde. Nobody else sees them.
const TWICE: &str = "two members of one name";
const TOO_MANY: &str = "too many values";

/// A JSON value; texts stay in the body, if nothing in them is escaped.
#[derive(Debug)]
pub(crate) enum Json<'b> {
    Text(Cow<'b, str>),
    List(Vec<Json<'b>>),
    Object(Members<'b>),
    /// Null, a boolean or a number.
    Plain(Value),
    /// A number that cannot be kept as it was sent, and the nearest one that can.
    Inexact(Box<(Value, NumberError)>),
}

/// The members of an object, in their order, no name twice.
pub(crate) type Members<'b> = Vec<(Cow<'b, str>, Json<'b>)>;

impl Json<'_> {
    /// A member of an object.
    pub(crate) fn get(&self, name: &str) -> Option<&Self> {
        let Self::Object(members) = self else {
            return None;
        };
        let member = members.iter().find(|member| member.0 == name);
        member.map(|(_, value)| value)
    }

    pub(crate) fn as_str(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The same, without the body.
    pub(crate) fn into_value(self) -> Result<Value, NumberError> {
        Ok(match self {
            Self::Text(text) => Value::String(text.into_owned()),
            Self::List(items) => {
                let mut values = Vec::with_capacity(items.len());
                for item in items {
                    values.push(item.into_value()?);
                }
                Value::Array(values)
            }
            Self::Object(members) => {
                let mut values = Map::with_capacity(members.len());
                for (name, member) in members {
                    values.insert(name.into_owned(), member.into_value()?);
                }
                Value::Object(values)
            }
            Self::Plain(value) => value,
            Self::Inexact(inexact) => return Err(inexact.1),
        })
    }

    /// A number as the reader has it, whether or not it can be kept.
    pub(crate) fn as_number(&self) -> Option<&Value> {
        match self {
            Self::Plain(value) => Some(value),
            Self::Inexact(inexact) => Some(&inexact.0),
            _ => None,
        }
    }

    /// A whole number, also where it is written as `1.5e12` or `3.0`: JSON knows one kind of number.
    pub(crate) fn as_whole_number(&self) -> Option<i64> {
        let value = self.as_number()?;
        if let Some(integer) = value.as_i64() {
            return Some(integer);
        }
        let double = value.as_f64().filter(|double| double.fract() == 0.0)?;
        // A double beyond `i64` is out of range as a time, too; the cast stops at the limits.
        #[expect(clippy::cast_possible_truncation, reason = "held at the limits of i64")]
        Some(double as i64)
    }
}

/// Parses a whole body.
///
/// # Errors
/// 400 if it is not JSON. The error never repeats the body: errors end up in logs.
pub(crate) fn parse(bytes: &[u8]) -> Result<Json<'_>, Problem> {
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Err(empty());
    }
    let reading = NumberTexts::of(bytes);
    let read = match std::str::from_utf8(bytes) {
        // Its texts need not be checked one by one.
        Ok(text) => read_all(&reading, serde_json::Deserializer::from_str(text)),
        Err(_) => read_all(&reading, serde_json::Deserializer::from_slice(bytes)),
    };
    read.map_err(|error| malformed(&error, &[]))
}

fn read_all<'b, R: serde_json::de::Read<'b>>(
    reading: &NumberTexts<'b>,
    mut deserializer: serde_json::Deserializer<R>,
) -> serde_json::Result<Json<'b>> {
    let members = EVENT_MEMBERS;
    let value = StrictVisitor { reading, members }.deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(value)
}

pub(crate) fn empty() -> Problem {
    Problem::new(&problems::MALFORMED_JSON, "The body is empty.")
}

/// The byte at this place of a body is not valid JSON.
fn unexpected(body: &[u8], at: usize) -> Problem {
    let what = if at == body.len() {
        "The body ends in the middle of its JSON"
    } else {
        "The body is not JSON"
    };
    malformed_at(what, position(&body[..at], 1, 1))
}

/// The problem of malformed JSON that follows `before` in its body.
fn malformed(error: &serde_json::Error, before: &[u8]) -> Problem {
    let what = match error.classify() {
        Category::Eof => "The body ends in the middle of its JSON",
        Category::Data if error.to_string().starts_with(TOO_MANY) => {
            "The body holds more than 50,000 values"
        }
        Category::Data => "An object of the body has two members of one name",
        Category::Syntax | Category::Io => {
            // Only these two texts are read: the rest may quote the body.
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
    malformed_at(what, position(before, error.line(), error.column()))
}

/// The line and the column in a body of what is at this line and column behind `before`.
fn position(before: &[u8], line: usize, column: usize) -> (usize, usize) {
    let breaks = before.split(|byte| *byte == b'\n').count() - 1;
    let last = before.iter().rev().take_while(|byte| **byte != b'\n');
    let in_last = if line == 1 { last.count() } else { 0 };
    (breaks + line, in_last + column)
}

fn malformed_at(what: &str, (line, column): (usize, usize)) -> Problem {
    let detail = format!("{what}, at line {line}, column {column}.");
    Problem::new(&problems::MALFORMED_JSON, detail)
}

/// Reads a body value by value, each as it is written. It is checked to be JSON; what JSON does not
/// forbid, such as a member twice, is not.
pub(crate) struct Values<'b> {
    body: &'b [u8],
    at: usize,
}

impl<'b> Values<'b> {
    pub(crate) fn of(body: &'b [u8]) -> Self {
        Self { body, at: 0 }
    }

    /// The next byte that is not white space.
    pub(crate) fn peek(&mut self) -> Option<u8> {
        let rest = &self.body[self.at..];
        self.at += rest.iter().take_while(|byte| is_space(**byte)).count();
        self.body.get(self.at).copied()
    }

    /// Passes over this byte, if it is next.
    pub(crate) fn passes(&mut self, byte: u8) -> bool {
        let is_next = self.peek() == Some(byte);
        self.at += usize::from(is_next);
        is_next
    }

    /// Whether a list or an object continues; passes over the comma, or over what closes it.
    pub(crate) fn has_next(&mut self, is_first: bool, close: u8) -> Result<bool, Problem> {
        if self.passes(close) {
            return Ok(false);
        }
        if is_first || self.passes(b',') {
            return Ok(true);
        }
        Err(self.malformed())
    }

    /// Passes over a value.
    pub(crate) fn value(&mut self) -> Result<&'b [u8], Problem> {
        self.peek();
        let rest = &self.body[self.at..];
        let mut values = serde_json::Deserializer::from_slice(rest).into_iter::<IgnoredAny>();
        match values.next() {
            Some(Ok(IgnoredAny)) => {
                let length = values.byte_offset();
                self.at += length;
                Ok(&rest[..length])
            }
            Some(Err(error)) => Err(malformed(&error, &self.body[..self.at])),
            None => Err(self.malformed()),
        }
    }

    /// Nothing may follow.
    pub(crate) fn end(&mut self) -> Result<(), Problem> {
        match self.peek() {
            None => Ok(()),
            Some(_) => Err(self.malformed()),
        }
    }

    /// The next byte does not belong there.
    fn malformed(&self) -> Problem {
        unexpected(self.body, self.at)
    }
}

/// Numbers as the body writes them. `serde_json` gives a number as the nearest double, so its text is looked up
/// in the body; to find it, numbers are counted.
struct NumberTexts<'b> {
    body: &'b [u8],
    /// How many more values the body may hold.
    remaining: Cell<usize>,
    /// The end of the last text that was looked up, and how many numbers were read since.
    seen_to: Cell<usize>,
    numbers_since: Cell<usize>,
}

impl<'b> NumberTexts<'b> {
    fn of(body: &'b [u8]) -> Self {
        Self {
            body,
            remaining: Cell::new(VALUES_MAX),
            seen_to: Cell::new(0),
            numbers_since: Cell::new(0),
        }
    }

    /// Counts a number whose text is not needed.
    fn skip_number(&self) {
        self.numbers_since.set(self.numbers_since.get() + 1);
    }

    /// The text of the number that was read last.
    fn number(&self) -> &'b str {
        let mut number = 0..self.seen_to.get();
        for _ in 0..=self.numbers_since.take() {
            number = next_number(self.body, number.end);
        }
        self.seen_to.set(number.end);
        let written = self
            .body
            .get(number)
            .and_then(|text| std::str::from_utf8(text).ok());
        written.expect("a number that was read is in the body")
    }
}

/// Where the next number is, in a body that is JSON up to there: only strings hold digits, too.
fn next_number(body: &[u8], from: usize) -> Range<usize> {
    let mut at = from;
    loop {
        match body.get(at) {
            Some(b'"') => at = behind_string(body, at + 1),
            Some(b'-' | b'0'..=b'9') | None => break,
            Some(_) => at += 1,
        }
    }
    let rest = body.get(at..).unwrap_or_default();
    at..at + rest.iter().take_while(|byte| is_of_number(**byte)).count()
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

fn is_of_number(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E')
}

pub(crate) fn behind_string(body: &[u8], from: usize) -> usize {
    let mut at = from;
    loop {
        match body.get(at) {
            Some(b'\\') => at += 2,
            Some(b'"') | None => return at + 1,
            Some(_) => at += 1,
        }
    }
}

/// Reads a value in which no object has two members of one name: which of them was meant?
#[derive(Clone, Copy)]
struct StrictVisitor<'r, 'b> {
    reading: &'r NumberTexts<'b>,
    /// How many members to allocate for if it is an object.
    members: usize,
}

impl StrictVisitor<'_, '_> {
    fn count<E: Error>(self) -> Result<(), E> {
        let remaining = &self.reading.remaining;
        let left = remaining.get().checked_sub(1);
        remaining.set(left.ok_or_else(|| E::custom(TOO_MANY))?);
        Ok(())
    }

    /// An integer, of this magnitude, that the reader has as it is written.
    fn integer<'de>(self, value: Value, magnitude: u64) -> Json<'de> {
        if !number::is_safe(magnitude) {
            return self.number(value);
        }
        self.reading.skip_number();
        Json::Plain(value)
    }

    fn number<'de>(self, value: Value) -> Json<'de> {
        match number::read(self.reading.number()) {
            Ok(number) => Json::Plain(Value::Number(number)),
            Err(error) => Json::Inexact(Box::new((value, error))),
        }
    }
}

impl<'de> DeserializeSeed<'de> for StrictVisitor<'_, '_> {
    type Value = Json<'de>;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Json<'de>, D::Error> {
        self.count()?;
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for StrictVisitor<'_, '_> {
    type Value = Json<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Json<'de>, E> {
        Ok(Json::Plain(Value::Null))
    }

    fn visit_bool<E>(self, value: bool) -> Result<Json<'de>, E> {
        Ok(Json::Plain(Value::Bool(value)))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Json<'de>, E> {
        Ok(self.integer(Value::from(value), value.unsigned_abs()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Json<'de>, E> {
        Ok(self.integer(Value::from(value), value))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Json<'de>, E> {
        Ok(self.number(Value::from(value)))
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Json<'de>, E> {
        Ok(Json::Text(Cow::Borrowed(text)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Json<'de>, E> {
        Ok(Json::Text(Cow::Owned(text.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Json<'de>, A::Error> {
        let mut items = Vec::new();
        let within = Self { members: 0, ..self };
        while let Some(item) = list.next_element_seed(within)? {
            items.push(item);
        }
        Ok(Json::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Json<'de>, A::Error> {
        let mut members = Members::with_capacity(self.members);
        let mut names = HashSet::new();
        let within = Self { members: 0, ..self };
        while let Some(name) = object.next_key_seed(Name)? {
            let member = object.next_value_seed(within)?;
            if is_twice(&members, &mut names, name.clone()) {
                return Err(A::Error::custom(TWICE));
            }
            members.push((name, member));
        }
        Ok(Json::Object(members))
    }
}

/// Whether one of the members has this name already. Few are looked through; the names of many are
/// kept in `names`.
fn is_twice<'b>(
    members: &[(Cow<'b, str>, Json<'b>)],
    names: &mut HashSet<Cow<'b, str>>,
    name: Cow<'b, str>,
) -> bool {
    if members.len() < FEW_MEMBERS {
        return members.iter().any(|member| member.0 == name);
    }
    if names.is_empty() {
        names.extend(members.iter().map(|member| member.0.clone()));
    }
    !names.insert(name)
}

/// Reads the name of a member.
struct Name;

impl<'de> DeserializeSeed<'de> for Name {
    type Value = Cow<'de, str>;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Cow<'de, str>, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for Name {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_borrowed_str<E>(self, name: &'de str) -> Result<Cow<'de, str>, E> {
        Ok(Cow::Borrowed(name))
    }

    fn visit_str<E>(self, name: &str) -> Result<Cow<'de, str>, E> {
        Ok(Cow::Owned(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn detail(text: &str) -> String {
        let problem = parse(text.as_bytes()).unwrap_err();
        assert_eq!(problem.kind(), &problems::MALFORMED_JSON);
        problem.detail().to_owned()
    }

    fn value(text: &str) -> Value {
        parse(text.as_bytes()).unwrap().into_value().unwrap()
    }

    #[test]
    fn values_are_read_as_they_are_written() {
        let text = r#" {"z":[1,-2,1.0,1e2,9007199254740992],"a":{"ü":"é\n","n":null,"t":true}} "#;
        let expected = json!({
            "z": [1, -2, 1.0, 100.0, 9_007_199_254_740_992_u64],
            "a": {"ü": "é\n", "n": null, "t": true},
        });
        let value = value(text);
        assert_eq!(value, expected);
        assert!(value["z"][2].is_f64() && value["z"][0].is_i64());
    }

    #[test]
    fn a_number_is_found_as_it_is_written_wherever_it_stands() {
        let text =
            r#"{"1":"2 \"3\\","é4":[5,6.5,{"7":8,"9":-1.25e1}],"10":11,"x":31.245270191439438}"#;
        let expected = json!({
            "1": "2 \"3\\", "é4": [5, 6.5, {"7": 8, "9": -12.5}], "10": 11,
            "x": "31.245270191439438".parse::<f64>().unwrap(),
        });
        assert_eq!(value(text), expected);
    }

    #[test]
    fn a_number_that_cannot_be_kept_is_said_so_by_whoever_takes_the_value() {
        for number in [
            "18446744073709551615",
            "9007199254740993",
            "100000000000000000000000001",
        ] {
            let text = format!(r#"[1,2.5,{{"a":{number}}}]"#);
            let error = parse(text.as_bytes()).unwrap().into_value().unwrap_err();
            assert_eq!(error, NumberError::Integer(number.to_owned()));
        }
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
        let members = |last: usize| {
            let names = (0..100).chain([last]);
            let members: Vec<_> = names.map(|name| format!(r#""{name}":0"#)).collect();
            format!("{{{}}}", members.join(","))
        };
        for name in [0, FEW_MEMBERS - 1, FEW_MEMBERS, 99] {
            let twice = detail(&members(name));
            assert!(
                twice.starts_with("An object of the body has two members"),
                "{name}"
            );
        }
        assert!(parse(members(100).as_bytes()).is_ok());
        assert!(detail(r#"{"a":1,"\u0061":2}"#).starts_with("An object of the body has two"));
        assert!(parse(b"\"\xff\"").is_err());
    }
}
