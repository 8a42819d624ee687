//! JSON near what is expected: a valid body with a few changes, which may not be JSON any more.

use proptest::prelude::*;
use proptest::sample::select;
use proptest::strategy::BoxedStrategy;
use serde_json::{Map, Number, Value};

/// The members of an object, perhaps some of one name.
type Members = Vec<(String, Json)>;

/// JSON as it is written: members may be there twice, and numbers may be anything.
#[derive(Clone, Debug)]
pub(crate) enum Json {
    /// A number, a text or a word; or what only looks like one.
    Raw(String),
    List(Vec<Json>),
    Object(Members),
}

impl From<&Value> for Json {
    fn from(value: &Value) -> Self {
        match value {
            Value::Array(items) => Self::List(items.iter().map(Self::from).collect()),
            Value::Object(members) => {
                let member = |(name, value): (&String, &Value)| (name.clone(), Self::from(value));
                Self::Object(members.iter().map(member).collect())
            }
            leaf => Self::Raw(leaf.to_string()),
        }
    }
}

impl Json {
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Raw(text) => text.clone(),
            Self::List(items) => {
                let items: Vec<_> = items.iter().map(Self::text).collect();
                format!("[{}]", items.join(","))
            }
            Self::Object(members) => {
                let member = |(name, value): &(String, Self)| {
                    format!("{}:{}", Value::from(name.as_str()), value.text())
                };
                let members: Vec<_> = members.iter().map(member).collect();
                format!("{{{}}}", members.join(","))
            }
        }
    }

    /// What it stands for; none where that is not JSON, or could be two things.
    pub(crate) fn value(&self) -> Option<Value> {
        match self {
            Self::Raw(text) => leaf(text),
            Self::List(items) => items.iter().map(Self::value).collect(),
            Self::Object(members) => {
                let mut object = Map::new();
                for (name, member) in members {
                    if object.insert(name.clone(), member.value()?).is_some() {
                        return None;
                    }
                }
                Some(Value::Object(object))
            }
        }
    }

    /// Writes text in the place of what is at a JSON Pointer; nothing there leaves it out.
    pub(crate) fn write(&mut self, at: &str, text: &str) {
        let Some(at) = at.strip_prefix('/') else {
            *self = Self::Raw(text.to_owned());
            return;
        };
        let (name, rest) = at.split_at(at.find('/').unwrap_or(at.len()));
        match self {
            Self::List(items) => items[name.parse::<usize>().unwrap()].write(rest, text),
            Self::Object(members) if rest.is_empty() && text.is_empty() => {
                members.retain(|member| member.0 != name);
            }
            Self::Object(members) => match members.iter_mut().find(|member| member.0 == name) {
                Some(member) => member.1.write(rest, text),
                None => members.push((name.to_owned(), Self::Raw(text.to_owned()))),
            },
            Self::Raw(_) => panic!("there is nothing in {self:?}"),
        }
    }
}

/// What a number, a text or a word stands for. Numbers are read by the standard library.
fn leaf(text: &str) -> Option<Value> {
    let value: Value = serde_json::from_str(text).ok()?;
    if !value.is_number() {
        return Some(value);
    }
    match text.parse::<i64>() {
        Ok(integer) if text != "-0" && integer.unsigned_abs() <= 1 << 53 => {
            Some(Value::from(integer))
        }
        _ => Number::from_f64(text.parse().ok()?).map(Value::Number),
    }
}

#[rustfmt::skip]
const ODD_NAMES: [&str; 20] = [
    "", "id", "timestamp", "measure", "quantity", "measured_usage", "plan_id", "Timestamp", "timestamp ", "__proto__",
    "constructor", "$set", "a.b", "a/b~c", "ü", "\0", "\u{202e}", "duration", "correlation_id", "_id",
];

#[rustfmt::skip]
const ODD_LEAVES: &[&str] = &[
    "null", "true", "false", ",", "\"\"", "0", "-0", "-1", "1", "1.5", "1e999", "-1e999", "1e30",
    "9223372036854775807", "9223372036854775808", "-9223372036854775809", "18446744073709551615",
    "18446744073709551616", "100000000000000000000000000000", "1533254400000", "1533254400000.0",
    "1.5332544e12", "1533254400000.5", "253402300800001", "\"1533254400000\"", "01", "+1", ".5",
    "1.", "NaN", "Infinity", "nul", "undefined", "\"\\u0000\"", "\"\\ud800\"",
    "\"\\ud83c\\udf88\"", "\"\u{202e}\u{feff}\u{1f388}\"", "\"\u{85}\"", "\"duration\"", "\".\"",
    "\"..\"", "\"$x\"", "\"a/../b\"", "\"\\/\"", "'x'", "\"postgres\"",
];

fn odd_name() -> impl Strategy<Value = String> {
    prop_oneof![
        8 => select(ODD_NAMES.to_vec()).prop_map(str::to_owned),
        1 => any::<String>(),
        1 => (100_usize..5_000).prop_map(|length| "n".repeat(length)),
    ]
}

fn odd_leaf() -> impl Strategy<Value = String> {
    prop_oneof![
        8 => select(ODD_LEAVES.to_vec()).prop_map(str::to_owned),
        1 => any::<String>().prop_map(|text| Value::from(text).to_string()),
        1 => any::<i64>().prop_map(|number| number.to_string()),
        1 => (1000_usize..1050).prop_map(|length| format!("\"{}\"", "é".repeat(length / 2))),
        1 => (1_usize..400).prop_map(|length| "9".repeat(length) + "x"),
    ]
}

fn odd_value() -> impl Strategy<Value = Json> + Clone {
    let leaf = odd_leaf().prop_map(Json::Raw);
    let value = leaf.prop_recursive(3, 8, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Json::List),
            prop::collection::vec((odd_name(), inner), 0..3).prop_map(Json::Object),
        ]
    });
    value.boxed()
}

/// A member as it is; or left out, with another name, or twice, perhaps with another value.
fn members(name: &str, value: &Value) -> BoxedStrategy<Members> {
    let (name, value) = (name.to_owned(), near(value));
    let again = name.clone();
    prop_oneof![
        36 => value.clone().prop_map(move |value| vec![(name.clone(), value)]),
        1 => Just(Vec::new()),
        1 => (odd_name(), value.clone()).prop_map(|member| vec![member]),
        1 => (value.clone(), prop_oneof![value, odd_value().boxed()])
            .prop_map(move |(one, other)| vec![(again.clone(), one), (again.clone(), other)]),
    ]
    .boxed()
}

/// Within so many lists or objects.
fn wrapped((inner, levels, in_list): (Json, usize, bool)) -> Json {
    (0..levels).fold(inner, |inner, _| {
        if in_list {
            Json::List(vec![inner])
        } else {
            Json::Object(vec![("a".to_owned(), inner)])
        }
    })
}

/// A body with few changes, at any place.
pub(super) fn near(body: &Value) -> BoxedStrategy<Json> {
    let as_it_is = match body {
        Value::Array(items) => {
            let items: Vec<_> = items.iter().map(near).collect();
            items.prop_map(Json::List).boxed()
        }
        Value::Object(object) => {
            let own: Vec<_> = object
                .iter()
                .map(|(name, value)| members(name, value))
                .collect();
            let more = prop_oneof![
                9 => Just(Vec::new()),
                1 => (odd_name(), odd_value()).prop_map(|member| vec![member]),
            ];
            let all =
                |(own, more): (Vec<Members>, Members)| Json::Object([own.concat(), more].concat());
            (own, more).prop_map(all).boxed()
        }
        leaf => Just(Json::Raw(leaf.to_string())).boxed(),
    };
    let levels = prop_oneof![1_usize..3, 28_usize..36, 120_usize..200];
    prop_oneof![
        54 => as_it_is.clone(),
        3 => odd_value(),
        1 => (as_it_is, levels, any::<bool>()).prop_map(wrapped),
    ]
    .boxed()
}
