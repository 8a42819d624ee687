//! Lists as files for a spreadsheet (RFC 4180).

use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use sampler_api::List;
use serde::de::DeserializeOwned;

use crate::api::Refusal;
use crate::parameters::{self, FORMAT};
use crate::visit::Visit;

/// Rows that are read at a time, and how often, for a file.
const ROWS_AT_A_TIME: &str = "1000";
const READS_MAX: usize = 20;

/// All items of a list that the query of the visit asks for.
pub(crate) async fn all<T: DeserializeOwned>(visit: &Visit, path: &str) -> Result<Vec<T>, Refusal> {
    let mut asked = parameters::for_api(&visit.query);
    for (name, value) in [
        (FORMAT, None),
        ("cursor", None),
        ("limit", Some(ROWS_AT_A_TIME)),
    ] {
        asked = parameters::with(&asked, name, value);
    }
    let mut rows = Vec::new();
    for _ in 0..READS_MAX {
        let page = visit.get::<List<T>>(path, &asked).await?;
        rows.extend(page.body.items);
        let Some(cursor) = page.cursor else {
            return Ok(rows);
        };
        asked = parameters::with(&asked, "cursor", Some(&cursor));
    }
    let detail = "There are more than 20,000 rows. Choose a shorter time.";
    let status = StatusCode::BAD_REQUEST;
    Err(Refusal::new(status, "Too many rows", detail))
}

/// The names of columns, which have commas between them.
pub(crate) fn cells(head: &str) -> Vec<&str> {
    head.split(',').collect()
}

/// A file of this name with these lines.
pub(crate) fn file<R: IntoIterator<Item = String>>(
    name: &str,
    head: &[&str],
    rows: impl IntoIterator<Item = R>,
) -> Response {
    let mut text = line(head.iter().map(|cell| (*cell).to_owned()));
    text.extend(rows.into_iter().map(line));
    let disposition = format!("attachment; filename=\"{name}.csv\"");
    let headers = [
        (CONTENT_TYPE, "text/csv; charset=utf-8".to_owned()),
        (CONTENT_DISPOSITION, disposition),
    ];
    (headers, text).into_response()
}

fn line(cells: impl IntoIterator<Item = String>) -> String {
    let cells = cells.into_iter().map(|cell| {
        let plain = plain(&cell);
        format!("\"{}\"", plain.replace('"', "\"\""))
    });
    cells.collect::<Vec<_>>().join(",") + "\r\n"
}

/// With one of these a spreadsheet begins a formula.
const FORMULA: [char; 8] = ['=', '+', '-', '@', '＝', '＋', '－', '＠'];

/// Some of these separate cells, by the language of the spreadsheet.
const SEPARATORS: [char; 6] = [',', ';', '|', '\t', '\r', '\n'];

/// A text so that a spreadsheet takes no part of it for a formula, not even
/// where it splits a cell at another separator than the comma.
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
        let cells = ["a\"b,c", "-5", "=x", ""].map(str::to_owned);
        assert_eq!(line(cells), "\"a\"\"b,c\",\"-5\",\"'=x\",\"\"\r\n");
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
