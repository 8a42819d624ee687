//! Lists as files for a spreadsheet (RFC 4180).

use std::fmt::Write as _;

use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use sampler_api::List;
use serde::de::DeserializeOwned;

use crate::api::{Query, Refusal};
use crate::parameters;
use crate::visit::Visit;

/// The parameter that asks for a file, and its value.
pub(crate) const FORMAT: &str = "format";
pub(crate) const CSV: &str = "csv";

/// Rows that are read at a time, and how often, for a file.
const ROWS_AT_A_TIME: &str = "1000";
const READS_MAX: usize = 20;

/// Whether a page is asked for as a file.
pub(crate) fn is_asked(query: &Query) -> bool {
    parameters::value(query, FORMAT) == CSV
}

/// All items of a list as a file.
pub(crate) async fn file<T: DeserializeOwned>(
    visit: &Visit,
    path: &str,
    query: &Query,
    name: &str,
    text: fn(&[T]) -> String,
) -> Result<Response, Refusal> {
    let items = all(visit, path, query).await?;
    let disposition = format!("attachment; filename=\"{name}.csv\"");
    let headers = [
        (CONTENT_TYPE, "text/csv; charset=utf-8".to_owned()),
        (CONTENT_DISPOSITION, disposition),
    ];
    Ok((headers, text(&items)).into_response())
}

async fn all<T: DeserializeOwned>(
    visit: &Visit,
    path: &str,
    query: &Query,
) -> Result<Vec<T>, Refusal> {
    let query = parameters::with(query, FORMAT, None);
    let query = parameters::with(&query, "cursor", None);
    let mut asked = parameters::with(&parameters::for_api(&query), "limit", Some(ROWS_AT_A_TIME));
    let mut rows = Vec::new();
    for _ in 0..READS_MAX {
        let page = visit.get::<List<T>>(path, &asked).await?;
        rows.extend(page.body.items);
        let Some(cursor) = page.cursor else {
            return Ok(rows);
        };
        asked = parameters::with(&asked, "cursor", Some(&cursor));
    }
    Err(Refusal::new(
        StatusCode::BAD_REQUEST,
        "Too much at once",
        "There are more than 20,000 rows. Ask for less time.",
    ))
}

pub(crate) fn line(cells: impl IntoIterator<Item = impl AsRef<str>>) -> String {
    let mut line = String::new();
    for (index, cell) in cells.into_iter().enumerate() {
        let comma = if index == 0 { "" } else { "," };
        let _ = write!(line, "{comma}\"{}\"", cell.as_ref().replace('"', "\"\""));
    }
    line + "\r\n"
}

/// With one of these a spreadsheet begins a formula.
const FORMULA: [char; 8] = ['=', '+', '-', '@', '＝', '＋', '－', '＠'];

/// Some of these separate cells, by the language of the spreadsheet.
const SEPARATORS: [char; 6] = [',', ';', '|', '\t', '\r', '\n'];

/// A text that providers choose, so that a spreadsheet takes no part of it for a formula, not even
/// where it splits a cell at another separator than the comma.
pub(crate) fn plain(text: &str) -> String {
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
        assert_eq!(line(cells), expected);
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
