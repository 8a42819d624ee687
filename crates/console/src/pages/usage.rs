//! The sums of usages: a chart, a table, and CSV to take away.

use std::collections::BTreeSet;

use askama::Template;
use axum::response::Response;
use sampler_api::units::Hourly;
use sampler_api::{Amount, Sum};
use sampler_domain::Timestamp;

use super::spans::FIELDS;
use crate::api::{Query, Refusal};
use crate::chart::Chart;
use crate::csv::{self, line, plain};
use crate::page::{Frame, refused, render};
use crate::show;
use crate::visit::{Listed, Visit};

const WINDOWS: [&str; 4] = ["all", "month", "day", "hour"];

/// The days that the form suggests, and the length of one, ms.
const DAYS: i64 = 30;
const DAY: i64 = 24 * 60 * 60 * 1_000;

/// The labels of the times in the query.
const MOMENTS: [(&str, &str); 3] = [("from", "From"), ("to", "To"), ("as_of", "As it was at")];

#[derive(Template)]
#[template(path = "usage.html")]
struct UsagePage {
    frame: Frame,
    visit: Visit,
    listed: Listed<Sum>,
    groups: Vec<String>,
    measures: Vec<Column>,
    chart: Option<Chart>,
    file: String,
    presets: Vec<(&'static str, String)>,
}

impl UsagePage {
    /// How the amounts by the hour follow from the exact ones, each once.
    fn formulas(&self) -> BTreeSet<&str> {
        let hourly = self.measures.iter().filter_map(|it| it.hourly.as_ref());
        hourly.map(|it| it.formula.as_str()).collect()
    }
}

/// The values that the form begins with: the last days, each by itself, which make a chart.
fn suggested(now: Timestamp) -> Query {
    let midnight = now.as_millis().div_euclid(DAY) * DAY;
    let [from, to] = [midnight - DAYS * DAY, midnight + DAY].map(|at| at.to_string());
    [("from", &*from), ("to", &*to), ("window", "day")]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into()
}

/// `GET /console/usage`.
pub(crate) async fn show(visit: Visit) -> Response {
    let frame = visit.frame("Usage");
    answer(visit)
        .await
        .unwrap_or_else(|refusal| refused(frame, refusal))
}

async fn answer(mut visit: Visit) -> Result<Response, Refusal> {
    if csv::is_asked(&visit.query) {
        return csv::file(&visit, "/v1/usages", &visit.query, "usage", text).await;
    }
    let (file, presets) = (visit.file(), visit.presets());
    let mut listed = Listed::default();
    if visit.query.is_empty() {
        visit.query = suggested(visit.console.parts.clock.now());
    } else if !visit.asks_for_time_alone() {
        listed = visit.listed("/v1/usages", &MOMENTS).await?;
    }
    let rows = listed.items.as_deref().unwrap_or_default();
    let (groups, measures) = columns(rows);
    let page = UsagePage {
        frame: visit.frame("Usage"),
        chart: Chart::of(rows),
        visit,
        listed,
        groups,
        measures,
        file,
        presets,
    };
    Ok(render(page.listed.status(), &page))
}

/// A measure of the rows.
struct Column {
    name: String,
    unit: Option<String>,
    /// How its amounts are shown by the hour, where it has a unit.
    hourly: Option<Hourly>,
}

impl Column {
    /// The head of the exact amounts in a file, with their unit.
    fn head(&self) -> String {
        match &self.unit {
            Some(unit) => format!("amount {} {unit} × ms", self.name),
            None => format!("amount {} × ms", self.name),
        }
    }

    /// The exact amount, and the one by the hour where there is one.
    fn cells(&self, row: &Sum) -> Vec<String> {
        let mut cells = vec![row.amount(&self.name)];
        cells.extend(self.hourly.as_ref().map(|_| self.by_the_hour(row)));
        cells
    }

    fn shown(&self, row: &Sum) -> String {
        match self.by_the_hour(row).as_str() {
            "" => String::new(),
            amount => show::decimals(amount),
        }
    }

    fn by_the_hour(&self, row: &Sum) -> String {
        let amount = row.measures.iter().find(|it| it.measure == self.name);
        amount.and_then(Amount::by_the_hour).unwrap_or_default()
    }
}

/// The fields that rows are grouped by, and the measures that any of them has.
fn columns(rows: &[Sum]) -> (Vec<String>, Vec<Column>) {
    let groups = rows.first().map(|row| row.group.keys().cloned().collect());
    let mut measures: Vec<Column> = Vec::new();
    for amount in rows.iter().flat_map(|row| &row.measures) {
        if !measures.iter().any(|it| it.name == amount.measure) {
            measures.push(Column {
                name: amount.measure.clone(),
                unit: amount.unit.clone(),
                hourly: amount.hourly(),
            });
        }
    }
    (groups.unwrap_or_default(), measures)
}

fn text(rows: &[Sum]) -> String {
    let (groups, measures) = columns(rows);
    let mut head = vec!["window_start".to_owned(), "window_end".to_owned()];
    head.extend(groups.iter().cloned());
    head.extend(["usages", "duration_ms"].map(str::to_owned));
    for measure in &measures {
        head.push(plain(&measure.head()));
        let hourly = measure.hourly.as_ref();
        head.extend(hourly.map(|it| plain(&format!("{} {}", measure.name, it.name))));
    }
    let mut text = line(&head);
    for row in rows {
        let (start, end) = (row.window.start.to_string(), row.window.end.to_string());
        let (usages, duration) = (row.usages.to_string(), row.duration());
        let amounts: Vec<String> = measures.iter().flat_map(|it| it.cells(row)).collect();
        let ids: Vec<String> = groups.iter().map(|group| plain(row.field(group))).collect();
        let cells = [start.as_str(), end.as_str()]
            .into_iter()
            .chain(ids.iter().map(String::as_str))
            .chain([usages.as_str(), duration.as_str()]);
        text += &line(cells.chain(amounts.iter().map(String::as_str)));
    }
    text
}
