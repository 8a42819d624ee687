//! JSON near what is expected: a valid body with a few changes, which may not be JSON any more.

use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::{Map, Number, Value};

/// JSON as it is written, in which members may be there twice and numbers may be anything.
#[derive(Clone, Debug)]
pub(crate) enum Json {
    /// A number, a text or a word; or what only looks like one.
    Raw(String),
    List(Vec<Json>),
    Object(Vec<(String, Json)>),
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
    /// As it is written.
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

    /// How many values there are in it that `fits`.
    fn count(&self, fits: fn(&Self) -> bool) -> usize {
        let within: usize = match self {
            Self::Raw(_) => 0,
            Self::List(items) => items.iter().map(|item| item.count(fits)).sum(),
            Self::Object(members) => members.iter().map(|(_, member)| member.count(fits)).sum(),
        };
        within + usize::from(fits(self))
    }

    fn nth(&mut self, wanted: &mut usize, fits: fn(&Self) -> bool) -> Option<&mut Self> {
        if fits(self) {
            if *wanted == 0 {
                return Some(self);
            }
            *wanted -= 1;
        }
        match self {
            Self::Raw(_) => None,
            Self::List(items) => items.iter_mut().find_map(|item| item.nth(wanted, fits)),
            Self::Object(members) => {
                let mut members = members.iter_mut();
                members.find_map(|(_, member)| member.nth(wanted, fits))
            }
        }
    }

    fn any_value(&mut self, which: Index) -> &mut Self {
        let mut wanted = which.index(self.count(|_| true));
        self.nth(&mut wanted, |_| true).expect("there is one")
    }

    /// The members of an object that has some.
    fn any_members(&mut self, which: Index) -> Option<&mut Vec<(String, Self)>> {
        let fits = |json: &Self| matches!(json, Self::Object(members) if !members.is_empty());
        let count = self.count(fits);
        let mut wanted = (count > 0).then(|| which.index(count))?;
        match self.nth(&mut wanted, fits) {
            Some(Self::Object(members)) => Some(members),
            _ => None,
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

#[derive(Clone, Debug)]
pub(crate) enum Change {
    Drop(Index, Index),
    Rename(Index, Index, String),
    /// A member once more, perhaps with another value.
    Repeat(Index, Index, Option<Json>),
    Add(Index, String, Json),
    Replace(Index, Json),
    /// Within so many lists or objects.
    Wrap(Index, usize, bool),
    Swap(Index, Index, Index),
}

impl Change {
    fn make(&self, json: &mut Json) {
        match self {
            Self::Replace(which, value) => *json.any_value(*which) = value.clone(),
            Self::Wrap(which, levels, in_list) => {
                let place = json.any_value(*which);
                for _ in 0..*levels {
                    let inner = std::mem::replace(place, Json::Raw(String::new()));
                    *place = if *in_list {
                        Json::List(vec![inner])
                    } else {
                        Json::Object(vec![("a".to_owned(), inner)])
                    };
                }
            }
            Self::Drop(object, _)
            | Self::Rename(object, _, _)
            | Self::Repeat(object, _, _)
            | Self::Add(object, _, _)
            | Self::Swap(object, _, _) => {
                if let Some(members) = json.any_members(*object) {
                    self.make_in(members);
                }
            }
        }
    }

    fn make_in(&self, members: &mut Vec<(String, Json)>) {
        let count = members.len();
        match self {
            Self::Drop(_, member) => drop(members.remove(member.index(count))),
            Self::Rename(_, member, name) => members[member.index(count)].0.clone_from(name),
            Self::Repeat(_, member, other) => {
                let (name, value) = members[member.index(count)].clone();
                members.push((name, other.clone().unwrap_or(value)));
            }
            Self::Add(_, name, value) => members.push((name.clone(), value.clone())),
            Self::Swap(_, one, other) => {
                let (one, other) = (one.index(count), other.index(count));
                let value = members[one].1.clone();
                members[one].1 = std::mem::replace(&mut members[other].1, value);
            }
            Self::Replace(..) | Self::Wrap(..) => {}
        }
    }
}

fn odd_name() -> impl Strategy<Value = String> {
    let names = [
        "",
        "id",
        "timestamp",
        "measure",
        "quantity",
        "measured_usage",
        "plan_id",
        "Timestamp",
        "timestamp ",
        "__proto__",
        "constructor",
        "$set",
        "a.b",
        "a/b~c",
        "ü",
        "\0",
        "\u{202e}",
        "duration",
        "correlation_id",
        "_id",
    ];
    prop_oneof![
        8 => prop::sample::select(names.to_vec()).prop_map(str::to_owned),
        1 => any::<String>(),
        1 => (100_usize..5_000).prop_map(|length| "n".repeat(length)),
    ]
}

fn odd_leaf() -> impl Strategy<Value = String> {
    let written = [
        "null",
        "true",
        "false",
        ",",
        "\"\"",
        "0",
        "-0",
        "-1",
        "1",
        "1.5",
        "1e999",
        "-1e999",
        "1e30",
        "9223372036854775807",
        "9223372036854775808",
        "-9223372036854775809",
        "18446744073709551615",
        "18446744073709551616",
        "100000000000000000000000000000",
        "1533254400000",
        "1533254400000.0",
        "1.5332544e12",
        "1533254400000.5",
        "253402300800001",
        "\"1533254400000\"",
        "01",
        "+1",
        ".5",
        "1.",
        "NaN",
        "Infinity",
        "nul",
        "undefined",
        "\"\\u0000\"",
        "\"\\ud800\"",
        "\"\\ud83c\\udf88\"",
        "\"\u{202e}\u{feff}\u{1f388}\"",
        "\"\u{85}\"",
        "\"duration\"",
        "\".\"",
        "\"..\"",
        "\"$x\"",
        "\"a/../b\"",
        "\"\\/\"",
        "'x'",
    ];
    prop_oneof![
        8 => prop::sample::select(written.to_vec()).prop_map(str::to_owned),
        1 => any::<String>().prop_map(|text| Value::from(text).to_string()),
        1 => any::<i64>().prop_map(|number| number.to_string()),
        1 => (1000_usize..1050).prop_map(|length| format!("\"{}\"", "é".repeat(length / 2))),
        1 => (1_usize..400).prop_map(|length| "9".repeat(length) + "x"),
    ]
}

fn odd_value() -> impl Strategy<Value = Json> {
    odd_leaf()
        .prop_map(Json::Raw)
        .prop_recursive(3, 8, 3, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(Json::List),
                prop::collection::vec((odd_name(), inner), 0..3).prop_map(Json::Object),
            ]
        })
}

fn change() -> impl Strategy<Value = Change> {
    let index = any::<Index>;
    let again = prop::option::of(odd_value());
    prop_oneof![
        1 => (index(), index()).prop_map(|(object, member)| Change::Drop(object, member)),
        1 => (index(), index(), odd_name()).prop_map(|(o, m, name)| Change::Rename(o, m, name)),
        1 => (index(), index(), again).prop_map(|(o, m, value)| Change::Repeat(o, m, value)),
        1 => (index(), odd_name(), odd_value()).prop_map(|(o, name, value)| Change::Add(o, name, value)),
        4 => (index(), odd_value()).prop_map(|(which, value)| Change::Replace(which, value)),
        1 => (index(), prop_oneof![1_usize..3, 28_usize..36, 120_usize..200], any::<bool>())
            .prop_map(|(which, levels, in_list)| Change::Wrap(which, levels, in_list)),
        1 => (index(), index(), index()).prop_map(|(o, one, other)| Change::Swap(o, one, other)),
    ]
}

/// Up to four changes to a body.
pub(crate) fn near(body: &Value) -> impl Strategy<Value = Json> + use<> {
    let body = Json::from(body);
    prop::collection::vec(change(), 0..5).prop_map(move |changes| {
        let mut json = body.clone();
        for change in changes {
            change.make(&mut json);
        }
        json
    })
}
