//! What can be searched: spans, the sums of usages, and the audit trail.

use std::collections::{BTreeMap, BTreeSet};

use askama::Template;
use axum::response::Response;
use sampler_api::units::Hourly;
use sampler_api::{Act, Span, Sum};
use serde_json::Value;

use crate::api::{self, Refusal};
use crate::csv;
use crate::frame::render;
use crate::query::{self, FIELDS, Query};
use crate::show;
use crate::visit::{Around, Visit};

/// The spans that were received last, which are shown where nothing is asked for.
const LATEST: &str = "order=received&limit=20";

const SPANS_FILE: [csv::Column; 14] = [
    ("span", "/id"),
    ("organization_id", "/target/organization_id"),
    ("space_id", "/target/space_id"),
    ("consumer_id", "/target/consumer_id"),
    ("resource_id", "/target/resource_id"),
    ("plan_id", "/target/plan_id"),
    ("resource_instance_id", "/target/resource_instance_id"),
    ("start", "/start"),
    ("end", "/end"),
    ("state", "/state"),
    ("sampled_to", "/sampled_to"),
    ("billed_ms", "/proof/billed"),
    ("skipped_ms", "/proof/skipped"),
    ("unsampled_ms", "/proof/unsampled"),
];

#[derive(Template)]
#[template(path = "spans.html")]
struct SpansPage {
    visit: Visit,
    items: Option<Vec<Span>>,
    around: Around,
    is_latest: bool,
}

/// `GET /console/spans`.
pub(crate) async fn spans(visit: Visit) -> Result<Response, Refusal> {
    if visit.asks_for_file() {
        return visit.list_file("/v1/spans", "spans", &SPANS_FILE).await;
    }
    let is_latest = visit.query.has_time_alone();
    let asked = if is_latest {
        Query::parse(LATEST)
    } else {
        visit.query.for_api()
    };
    let listed = visit.list("/v1/spans", &asked).await;
    let (items, around) = match listed {
        Ok((items, _)) if is_latest => (items, Around::default()),
        // The search is there in any case.
        Err(_) if is_latest => (None, Around::default()),
        listed => listed?,
    };
    let page = SpansPage {
        visit,
        items,
        around,
        is_latest,
    };
    Ok(render(page.around.status(), &page))
}

const SUMS: &str = "/v1/usages";

#[derive(Template)]
#[template(path = "usage.html")]
struct UsagePage {
    visit: Visit,
    items: Option<Vec<Sum>>,
    around: Around,
    is_asked: bool,
    columns: Columns,
}

/// `GET /console/usage`.
pub(crate) async fn usage(visit: Visit) -> Result<Response, Refusal> {
    if visit.asks_for_file() {
        return Ok(sums_file(&visit.rows(SUMS).await?));
    }
    let is_asked = !visit.query.has_time_alone();
    let (items, around) = if is_asked {
        visit.list(SUMS, &visit.query.for_api()).await?
    } else {
        (None, Around::default())
    };
    let page = UsagePage {
        columns: Columns::of(items.as_deref().unwrap_or_default()),
        items,
        around,
        is_asked,
        visit,
    };
    Ok(render(page.around.status(), &page))
}

impl UsagePage {
    /// What sums can be grouped by. An address may name several fields.
    fn groups(&self) -> Vec<&str> {
        let ids = FIELDS.into_iter().filter(|name| name.ends_with("_id"));
        let given = self.visit.query.get("group_by");
        ids.chain(given.contains(',').then_some(given)).collect()
    }
}

/// What sums have besides windows, numbers and durations: the fields that they are grouped by, and the
/// amounts of measures.
struct Columns {
    groups: Vec<String>,
    amounts: Vec<Amounts>,
}

/// The amounts of a measure: exact, or by the hour.
struct Amounts {
    measure: String,
    name: String,
    hourly: Option<Hourly>,
}

impl Columns {
    fn of(sums: &[Sum]) -> Self {
        let mut amounts: Vec<Amounts> = Vec::new();
        for amount in sums.iter().flat_map(|sum| &sum.measures) {
            let measure = &amount.measure;
            if amounts.iter().any(|column| column.measure == *measure) {
                continue;
            }
            let unit = amount.unit.as_ref().map(|unit| format!(" {unit}"));
            let exact = format!("{measure}{} \u{d7} ms", unit.unwrap_or_default());
            let hourly = amount.hourly();
            let hourly = hourly.map(|hourly| (format!("{measure} {}", hourly.name), Some(hourly)));
            for (name, hourly) in std::iter::once((exact, None)).chain(hourly) {
                let measure = measure.clone();
                amounts.push(Amounts {
                    measure,
                    name,
                    hourly,
                });
            }
        }
        let groups = sums.first().map(|sum| sum.group.keys().cloned().collect());
        Self {
            groups: groups.unwrap_or_default(),
            amounts,
        }
    }

    /// How amounts by the hour follow from the exact ones.
    fn formulas(&self) -> BTreeSet<&str> {
        let hourly = self.amounts.iter().filter_map(|it| it.hourly.as_ref());
        hourly.map(|hourly| hourly.formula.as_str()).collect()
    }
}

impl Amounts {
    /// The amount of a sum; empty where it has none.
    fn of(&self, sum: &Sum) -> String {
        let found = sum.measures.iter().find(|it| it.measure == self.measure);
        let amount = found.and_then(|it| it.amount.as_ref());
        let amount = amount.and_then(|amount| match &self.hourly {
            Some(hourly) => Some(hourly.of(amount.as_f64()?)),
            None => Some(amount.to_string()),
        });
        amount.unwrap_or_default()
    }
}

fn sums_file(sums: &[Sum]) -> Response {
    let Columns { groups, amounts } = Columns::of(sums);
    let mut head = vec!["window_start".to_owned(), "window_end".to_owned()];
    head.extend(groups.iter().cloned());
    head.extend(["usages".to_owned(), "duration_ms".to_owned()]);
    head.extend(amounts.iter().map(|it| it.name.clone()));
    let lines = sums.iter().map(|sum| {
        let mut cells = vec![sum.window.start.to_string(), sum.window.end.to_string()];
        cells.extend(groups.iter().map(|group| sum.field(group).to_owned()));
        cells.extend([sum.usages.to_string(), sum.duration()]);
        cells.extend(amounts.iter().map(|it| it.of(sum)));
        cells
    });
    csv::file("usage", std::iter::once(head).chain(lines))
}

#[derive(Template)]
#[template(path = "audit.html")]
struct AuditPage {
    visit: Visit,
    items: Option<Vec<Act>>,
    around: Around,
}

/// `GET /console/audit`.
pub(crate) async fn audit(visit: Visit) -> Result<Response, Refusal> {
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
