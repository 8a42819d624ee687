//! The sums of usages: a chart, a table, and CSV to take away.

use std::fmt::Write as _;
use std::sync::Arc;

use askama::Template;
use axum::Extension;
use axum::extract::State;
use axum::response::{IntoResponse, Redirect, Response};
use http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use http::{StatusCode, Uri};
use sampler_api::{List, Problem, Sum};
use sampler_domain::Timestamp;

use super::spans::FIELDS;
use crate::api::{Query, Refusal, address};
use crate::chart::Chart;
use crate::page::{Frame, refused, render};
use crate::session::Session;
use crate::{Console, parameters, show};

const WINDOWS: [&str; 4] = ["all", "month", "day", "hour"];

/// Rows that are read at a time, and how often, for a file.
const ROWS_AT_A_TIME: &str = "1000";
const READS_MAX: usize = 20;

/// The days that the form suggests, and the length of one, ms.
const DAYS: i64 = 30;
const DAY: i64 = 24 * 60 * 60 * 1_000;

/// The parameter that asks for the rows as a file.
const FORMAT: &str = "format";

/// The labels of the moments that are asked for.
const MOMENTS: [(&str, &str); 3] = [("from", "From"), ("to", "To"), ("as_of", "As it was at")];

#[derive(Template)]
#[template(path = "usage.html")]
struct Page {
    frame: Frame,
    query: Query,
    rows: Option<Vec<Sum>>,
    groups: Vec<String>,
    measures: Vec<String>,
    chart: Option<Chart>,
    problem: Option<Problem>,
    next: Option<String>,
    file: String,
}

impl Page {
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
    if parameters::value(&query, FORMAT) == "csv" {
        return match file(&console, &session, &parameters::with(&query, FORMAT, None)).await {
            Ok(file) => file,
            Err(refusal) => refused(Frame::new(&console, &session, "Usage"), refusal),
        };
    }
    let file = address(uri.path(), &parameters::with(&query, FORMAT, Some("csv")));
    let mut page = Page {
        frame: Frame::new(&console, &session, "Usage"),
        query,
        rows: None,
        groups: Vec::new(),
        measures: Vec::new(),
        chart: None,
        problem: None,
        next: None,
        file,
    };
    if page.query.is_empty() {
        page.query = suggested(console.clock.now());
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

/// The fields that rows are grouped by, and the measures that any of them has.
fn columns(rows: &[Sum]) -> (Vec<String>, Vec<String>) {
    let groups = rows.first().map(|row| row.group.keys().cloned().collect());
    let mut measures: Vec<String> = Vec::new();
    for measure in rows.iter().flat_map(|row| &row.measures) {
        if !measures.contains(&measure.measure) {
            measures.push(measure.measure.clone());
        }
    }
    (groups.unwrap_or_default(), measures)
}

/// All rows as CSV (RFC 4180).
async fn file(console: &Console, session: &Session, query: &Query) -> Result<Response, Refusal> {
    let mut asked = parameters::with(&parameters::for_api(query), "limit", Some(ROWS_AT_A_TIME));
    let mut rows = Vec::new();
    let mut is_whole = false;
    for _ in 0..READS_MAX {
        let page = console
            .api
            .get::<List<Sum>>(session.grant(), "/v1/usages", &asked)
            .await?;
        rows.extend(page.body.items);
        let Some(cursor) = page.cursor else {
            is_whole = true;
            break;
        };
        asked = parameters::with(&asked, "cursor", Some(&cursor));
    }
    if !is_whole {
        return Err(Refusal::too_much(
            "There are more than 20,000 rows. Ask for less time.",
        ));
    }
    let headers = [
        (CONTENT_TYPE, "text/csv; charset=utf-8"),
        (CONTENT_DISPOSITION, "attachment; filename=\"usage.csv\""),
    ];
    Ok((headers, csv(&rows)).into_response())
}

/// With one of these a spreadsheet begins a formula.
const FORMULA: [char; 8] = ['=', '+', '-', '@', '＝', '＋', '－', '＠'];

/// Some of these separate cells, by the language of the spreadsheet.
const SEPARATORS: [char; 6] = [',', ';', '|', '\t', '\r', '\n'];

fn csv(rows: &[Sum]) -> String {
    let (groups, measures) = columns(rows);
    let mut head = vec!["window_start".to_owned(), "window_end".to_owned()];
    head.extend(groups.iter().cloned());
    head.extend(["usages", "duration_ms"].map(str::to_owned));
    head.extend(
        measures
            .iter()
            .map(|measure| plain(&format!("amount {measure}"))),
    );
    let mut text = line(head.iter().map(String::as_str));
    for row in rows {
        let (start, end) = (row.window.start.to_string(), row.window.end.to_string());
        let (usages, duration) = (row.usages.to_string(), row.duration());
        let amounts: Vec<String> = measures.iter().map(|measure| row.amount(measure)).collect();
        let ids: Vec<String> = groups.iter().map(|group| plain(row.field(group))).collect();
        let cells = [start.as_str(), end.as_str()].into_iter();
        let cells = cells.chain(ids.iter().map(String::as_str));
        let cells = cells.chain([usages.as_str(), duration.as_str()]);
        text += &line(cells.chain(amounts.iter().map(String::as_str)));
    }
    text
}

fn line<'a>(cells: impl Iterator<Item = &'a str>) -> String {
    let mut line = String::new();
    for (index, cell) in cells.enumerate() {
        let comma = if index == 0 { "" } else { "," };
        let _ = write!(line, "{comma}\"{}\"", cell.replace('"', "\"\""));
    }
    line + "\r\n"
}

/// What providers choose, so that a spreadsheet takes no part of it for a formula: also where its list
/// separator is not the comma, and it splits a cell.
fn plain(text: &str) -> String {
    if text.starts_with('-') && text.parse::<f64>().is_ok() {
        return text.to_owned();
    }
    let mut plain = String::new();
    let mut may_begin = true;
    for character in text.chars() {
        if may_begin && FORMULA.contains(&character) {
            plain.push('\'');
        }
        let is_around = character.is_whitespace() || character == '"';
        may_begin = SEPARATORS.contains(&character) || (may_begin && is_around);
        plain.push(character);
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_is_quoted() {
        let cells = ["a\"b,c", "+10000-01-01T00:00:00.000Z", ""];
        let expected = "\"a\"\"b,c\",\"+10000-01-01T00:00:00.000Z\",\"\"\r\n";
        assert_eq!(line(cells.into_iter()), expected);
    }

    #[test]
    fn what_providers_choose_is_no_formula_whatever_the_separator() {
        for (text, expected) in [
            ("=1+1", "'=1+1"),
            ("@x", "'@x"),
            ("-x", "'-x"),
            ("+1", "'+1"),
            ("\t=1", "\t'=1"),
            ("＝1", "'＝1"),
            ("m;=cmd|' /C calc'!A0;", "m;'=cmd|' /C calc'!A0;"),
            ("x; \"=1+1;y", "x; \"'=1+1;y"),
            ("a,@b", "a,'@b"),
        ] {
            assert_eq!(plain(text), expected);
        }
        for ordinary in ["-5", "a-b", "a=b", "2026-11-20", "", "a;b"] {
            assert_eq!(plain(ordinary), ordinary);
        }
    }
}
