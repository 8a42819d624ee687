//! What an action changed, in words.

use std::collections::BTreeMap;

use sampler_domain::Timestamp;
use serde_json::Value;

/// Each difference between the subject of an action before and after it.
pub(crate) fn of(before: &Value, after: &Value) -> Vec<String> {
    if after.is_null() {
        return Vec::new();
    }
    let (before, after) = (flat(before), flat(after));
    let mut names: Vec<&String> = before.keys().chain(after.keys()).collect();
    names.sort_unstable();
    names.dedup();
    let differs = names
        .into_iter()
        .filter(|name| before.get(*name) != after.get(*name));
    differs
        .map(|name| in_words(name, before.get(name), after.get(name)))
        .collect()
}

fn in_words(name: &str, before: Option<&String>, after: Option<&String>) -> String {
    match (name, after.map(String::as_str)) {
        ("sampling paused", Some("true")) => return "Sampling paused".to_owned(),
        ("sampling paused", Some("false")) => return "Sampling resumed".to_owned(),
        ("controller enabled", Some("true")) => return "Controller on".to_owned(),
        ("controller enabled", Some("false")) => return "Controller off".to_owned(),
        _ => {}
    }
    format!("{name}: {} \u{2192} {}", or_none(before), or_none(after))
}

fn or_none(text: Option<&String>) -> &str {
    text.map_or("none", String::as_str)
}

/// The values of a document by the names that lead to them.
fn flat(document: &Value) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    collect(document, "", &mut all);
    all
}

fn collect(value: &Value, name: &str, all: &mut BTreeMap<String, String>) {
    match value {
        Value::Object(members) => {
            for (member, value) in members {
                let member = member.replace('_', " ");
                let name = if name.is_empty() {
                    member
                } else {
                    format!("{name} {member}")
                };
                collect(value, &name, all);
            }
        }
        Value::Null => {}
        Value::String(text) => {
            all.insert(name.to_owned(), text.clone());
        }
        value => {
            let text = moment(name, value).unwrap_or_else(|| value.to_string());
            all.insert(name.to_owned(), text);
        }
    }
}

/// A time as people read it, if the name is that of a time.
fn moment(name: &str, value: &Value) -> Option<String> {
    let last = name.rsplit(' ').next()?;
    let is_moment = matches!(last, "at" | "start" | "end" | "since" | "to");
    let at = Timestamp::new(value.as_i64()?).ok()?;
    is_moment.then(|| at.to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn differences_are_told_in_words() {
        let before = json!({
            "starts": { "rate": 100, "resources": { "redis": 50 } }, "sampling": { "paused": false },
            "controller": { "enabled": true },
        });
        let after = json!({
            "starts": { "rate": 20, "resources": { "postgres": 0 } }, "sampling": { "paused": true },
            "controller": { "enabled": true },
        });
        let expected = [
            "Sampling paused",
            "starts rate: 100 \u{2192} 20",
            "starts resources postgres: none \u{2192} 0",
            "starts resources redis: 50 \u{2192} none",
        ];
        assert_eq!(of(&before, &after), expected);
        let (before, after) = (json!({ "sampled_to": 0 }), json!({ "sampled_to": 1 }));
        let moments = "sampled to: 1970-01-01T00:00:00.000Z \u{2192} 1970-01-01T00:00:00.001Z";
        assert_eq!(of(&before, &after), [moments]);
        assert!(of(&json!({ "a": 1 }), &Value::Null).is_empty());
        assert!(of(&after, &after).is_empty());
    }
}
