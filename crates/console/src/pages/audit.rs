//! The audit trail.

use std::collections::BTreeMap;

use askama::Template;
use axum::response::Response;
use sampler_api::Act;
use serde_json::Value;

use crate::api::Refusal;
use crate::frame::render;
use crate::visit::{Around, Visit};
use crate::{query, show};

#[derive(Template)]
#[template(path = "audit.html")]
struct AuditPage {
    visit: Visit,
    items: Option<Vec<Act>>,
    around: Around,
}

/// `GET /console/audit`.
pub(crate) async fn show(visit: Visit) -> Result<Response, Refusal> {
    let (items, around) = visit.list("/v1/audit", &visit.query.for_api()).await?;
    let page = AuditPage {
        visit,
        items,
        around,
    };
    Ok(render(page.around.status(), &page))
}

/// Each difference between the subject of an action before and after it.
fn changes(before: &Value, after: &Value) -> Vec<String> {
    if after.is_null() {
        return Vec::new();
    }
    let mut values = BTreeMap::<String, [String; 2]>::new();
    collect(before, "", 0, &mut values);
    collect(after, "", 1, &mut values);
    let differ = values.into_iter().filter(|(_, [old, new])| old != new);
    let told = differ.map(|(name, texts)| {
        let [old, new] = texts.map(|it| if it.is_empty() { "none".to_owned() } else { it });
        format!("{name}: {old} \u{2192} {new}")
    });
    told.collect()
}

/// The values of a document by the names that lead to them, as the one before or the one after.
fn collect(value: &Value, name: &str, place: usize, all: &mut BTreeMap<String, [String; 2]>) {
    let Value::Object(members) = value else {
        all.entry(name.to_owned()).or_default()[place] = show::value(name, value);
        return;
    };
    for (member, value) in members {
        let name = format!("{name} {}", member.replace('_', " "));
        collect(value, name.trim_start(), place, all);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn differences_are_told_in_words() {
        let rates = |rate, resources| json!({ "starts": { "rate": rate, "resources": resources } });
        for (before, after, expected) in [
            (
                rates(100, json!({ "redis": 50 })),
                rates(20, json!({ "postgres": 0 })),
                &[
                    "starts rate: 100 \u{2192} 20",
                    "starts resources postgres: none \u{2192} 0",
                    "starts resources redis: 50 \u{2192} none",
                ][..],
            ),
            (
                json!({ "sampled_to": 0, "sampling": { "paused": false } }),
                json!({ "sampled_to": 1, "sampling": { "paused": true } }),
                &[
                    "sampled to: 1970-01-01T00:00:00.000Z \u{2192} 1970-01-01T00:00:00.001Z",
                    "sampling paused: false \u{2192} true",
                ],
            ),
            (json!({ "a": 1 }), Value::Null, &[]),
            (json!({ "a": 1 }), json!({ "a": 1 }), &[]),
        ] {
            assert_eq!(changes(&before, &after), expected);
        }
    }
}
