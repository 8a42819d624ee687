//! The audit trail.

use std::collections::BTreeMap;

use axum::response::Response;
use sampler_api::Act;
use sampler_domain::Timestamp;
use serde_json::Value;

use crate::api::Refusal;
use crate::page::render;
use crate::show::{self, Html};
use crate::view::{Field, ListPage, Table};
use crate::visit::Visit;

const COLUMNS: &str = "When|Who|Action taken|Subject|Reason|Outcome|Changes|Id";

const UNKNOWN: &str = "The outcomes asked and unknown mean that the action may have been done. If it \
                       changed a span, processing.acts of that span in the database has the action's id.";

/// `GET /console/audit`.
pub(crate) async fn show(visit: Visit) -> Result<Response, Refusal> {
    let listed = visit.listed::<Act>("/v1/audit").await?;
    let fields = ["who", "span", "from", "to"].map(|name| Field::new(&visit, name));
    let page = ListPage::new(&visit, "Audit", fields.into(), listed, |acts| table(&acts));
    let page = ListPage {
        notes: vec![UNKNOWN.to_owned()],
        ..page
    };
    Ok(render(page.status(), &page))
}

fn table(acts: &[Act]) -> Table {
    let mut table = Table::new("Actions", "audit-row", COLUMNS);
    for act in acts {
        let nobody = || show::faint("nobody signed in");
        let changes = changes(&act.before, &act.after);
        let changes = changes
            .iter()
            .map(|change| show::below(&show::quoted(change)));
        table.row([
            show::at(act.at),
            act.who.as_deref().map_or_else(nobody, show::id),
            show::words(&act.act),
            show::id(&act.subject),
            show::quoted(&act.reason),
            show::words(&act.outcome),
            changes.fold(Html::default(), Html::and),
            show::id(&act.id),
        ]);
    }
    table
}

/// Each difference between the subject of an action before and after it.
fn changes(before: &Value, after: &Value) -> Vec<String> {
    if after.is_null() {
        return Vec::new();
    }
    let [before, after] = [before, after].map(|document| {
        let mut all = BTreeMap::new();
        collect(document, "", &mut all);
        all
    });
    let mut names: Vec<&String> = before.keys().chain(after.keys()).collect();
    names.sort_unstable();
    names.dedup();
    let differs = names.into_iter().filter_map(|name| {
        let [old, new] = [&before, &after].map(|it| it.get(name).map_or("none", String::as_str));
        (old != new).then(|| format!("{name}: {old} \u{2192} {new}"))
    });
    differs.collect()
}

/// The values of a document by the names that lead to them.
fn collect(value: &Value, name: &str, all: &mut BTreeMap<String, String>) {
    let text = match value {
        Value::Object(members) => {
            for (member, value) in members {
                let name = format!("{name} {}", member.replace('_', " "));
                collect(value, name.trim_start(), all);
            }
            return;
        }
        Value::Null => return,
        Value::String(text) => text.clone(),
        value => moment(name, value).unwrap_or_else(|| value.to_string()),
    };
    all.insert(name.to_owned(), text);
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
        });
        let after = json!({
            "starts": { "rate": 20, "resources": { "postgres": 0 } }, "sampling": { "paused": true },
        });
        let expected = [
            "sampling paused: false \u{2192} true",
            "starts rate: 100 \u{2192} 20",
            "starts resources postgres: none \u{2192} 0",
            "starts resources redis: 50 \u{2192} none",
        ];
        assert_eq!(changes(&before, &after), expected);
        let (before, after) = (json!({ "sampled_to": 0 }), json!({ "sampled_to": 1 }));
        let moments = "sampled to: 1970-01-01T00:00:00.000Z \u{2192} 1970-01-01T00:00:00.001Z";
        assert_eq!(changes(&before, &after), [moments]);
        assert!(changes(&json!({ "a": 1 }), &Value::Null).is_empty());
        assert!(changes(&after, &after).is_empty());
    }
}
