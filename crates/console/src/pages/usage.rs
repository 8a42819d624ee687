//! The sums of usages, and CSV to take away.

use std::collections::BTreeSet;

use askama::Template;
use axum::response::Response;
use sampler_api::Sum;
use sampler_api::units::Hourly;

use crate::api::Refusal;
use crate::csv;
use crate::frame::render;
use crate::query::{self, FIELDS};
use crate::show;
use crate::visit::{Around, Visit};

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
pub(crate) async fn show(visit: Visit) -> Result<Response, Refusal> {
    if visit.asks_for_file() {
        return Ok(file(&visit.rows(SUMS).await?));
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

fn file(sums: &[Sum]) -> Response {
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
