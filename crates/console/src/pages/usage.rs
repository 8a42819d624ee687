//! The sums of usages: a chart, a table, and CSV to take away.

use std::collections::BTreeSet;
use std::sync::Arc;

use askama::Template;
use axum::Extension;
use axum::extract::State;
use axum::response::{IntoResponse, Redirect, Response};
use http::{StatusCode, Uri};
use sampler_api::units::Hourly;
use sampler_api::{Amount, List, Problem, Sum};
use sampler_domain::Timestamp;

use super::spans::FIELDS;
use crate::api::{Query, address};
use crate::chart::Chart;
use crate::csv::{self, CSV, FORMAT, line, plain};
use crate::page::{Frame, refused, render};
use crate::session::Session;
use crate::{Console, parameters, show};

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
    query: Query,
    rows: Option<Vec<Sum>>,
    groups: Vec<String>,
    measures: Vec<Column>,
    chart: Option<Chart>,
    problem: Option<Problem>,
    next: Option<String>,
    file: String,
    presets: Vec<(&'static str, String)>,
}

impl UsagePage {
    /// How the amounts by the hour follow from the exact ones, each once.
    fn formulas(&self) -> BTreeSet<&str> {
        let hourly = self.measures.iter().filter_map(|it| it.hourly.as_ref());
        hourly.map(|it| it.formula.as_str()).collect()
    }

    fn value(&self, name: &str) -> &str {
        parameters::value(&self.query, name)
    }

    fn local(&self, name: &str) -> String {
        parameters::local(&self.query, name)
    }

    fn is_window(&self, window: &str) -> bool {
        self.value("window") == window
    }

    fn is_grouped(&self, name: &str) -> bool {
        self.value("group_by") == name
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
pub(crate) async fn show(
    State(console): State<Arc<Console>>,
    Extension(session): Extension<Session>,
    uri: Uri,
) -> Response {
    let query = parameters::read(&uri);
    if let Some(address) = parameters::without_empty(&uri, &query) {
        return Redirect::to(&address).into_response();
    }
    if csv::is_asked(&query) {
        return match csv::all(&console, &session, "/v1/usages", &query).await {
            Ok(rows) => csv::file("usage", text(&rows)),
            Err(refusal) => refused(Frame::new(&console, &session, "Usage"), refusal),
        };
    }
    let file = address(uri.path(), &parameters::with(&query, FORMAT, Some(CSV)));
    let mut page = UsagePage {
        frame: Frame::new(&console, &session, "Usage"),
        query,
        rows: None,
        groups: Vec::new(),
        measures: Vec::new(),
        chart: None,
        problem: None,
        next: None,
        file,
        presets: Vec::new(),
    };
    page.presets = parameters::presets(uri.path(), &page.query, console.clock.now());
    if page.query.is_empty() {
        page.query = suggested(console.clock.now());
        return render(StatusCode::OK, &page);
    }
    // A preset may come before anything else.
    if page
        .query
        .iter()
        .all(|(name, _)| matches!(name.as_str(), "from" | "to"))
    {
        return render(StatusCode::OK, &page);
    }
    let asked = parameters::for_api(&page.query);
    let read = console
        .api
        .get::<List<Sum>>(session.grant(), "/v1/usages", &asked);
    match read.await {
        Ok(answer) => {
            let rows = answer.body.items;
            page.next = answer.cursor.map(|cursor| {
                address(
                    uri.path(),
                    &parameters::with(&page.query, "cursor", Some(&cursor)),
                )
            });
            (page.groups, page.measures) = columns(&rows);
            page.chart = Chart::of(&rows);
            page.rows = Some(rows);
            render(StatusCode::OK, &page)
        }
        Err(refusal) if refusal.status == StatusCode::BAD_REQUEST => {
            page.problem = Some(parameters::in_words(
                *refusal.problem,
                &page.query,
                &MOMENTS,
            ));
            render(StatusCode::BAD_REQUEST, &page)
        }
        Err(refusal) => refused(page.frame, refusal),
    }
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

/// All rows as CSV.
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
