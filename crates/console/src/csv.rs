//! Lists as files for a spreadsheet (RFC 4180).

use axum::response::{IntoResponse, Response};
use csv::{QuoteStyle, Terminator, WriterBuilder};
use http::StatusCode;
use http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::api::Refusal;
use crate::show;
use crate::visit::Visit;

/// The most rows of a file, in thousands.
const THOUSANDS_MAX: usize = 20;

/// A column of a file: its name, and the JSON Pointer to its values in the items of a list.
pub(crate) type Column = (&'static str, &'static str);

impl Visit {
    /// Whether the page is asked for as a file.
    pub(crate) fn asks_for_file(&self) -> bool {
        self.query.get("format") == "csv"
    }

    /// The address of the page as a file.
    pub(crate) fn file_address(&self) -> String {
        self.query.with("cursor", "").with("format", "csv").at("")
    }

    /// All items of a list that the query asks for.
    pub(crate) async fn rows<T: DeserializeOwned>(&self, path: &str) -> Result<Vec<T>, Refusal> {
        let query = self.query.for_api().with("format", "");
        let (items, has_more) = self.all(path, &query, THOUSANDS_MAX).await?;
        if has_more {
            let detail = "There are more than 20,000 rows. Choose a shorter time.";
            let status = StatusCode::BAD_REQUEST;
            return Err(Refusal::new(status, "Too many rows", detail));
        }
        Ok(items)
    }

    /// The list that the query asks for, as a file of this name.
    pub(crate) async fn list_file(
        &self,
        path: &str,
        name: &str,
        columns: &[Column],
    ) -> Result<Response, Refusal> {
        let items: Vec<Value> = self.rows(path).await?;
        let head = columns.iter().map(|(name, _)| (*name).to_owned());
        let rows = items.iter().map(|item| {
            let cell =
                |pointer| show::value(pointer, item.pointer(pointer).unwrap_or(&Value::Null));
            columns.iter().map(|(_, pointer)| cell(pointer)).collect()
        });
        Ok(file(name, std::iter::once(head.collect()).chain(rows)))
    }
}

/// A file of this name with these lines.
pub(crate) fn file(name: &str, lines: impl Iterator<Item = Vec<String>>) -> Response {
    let mut writer = WriterBuilder::new()
        .quote_style(QuoteStyle::Always)
        .terminator(Terminator::CRLF)
        .from_writer(Vec::new());
    for line in lines {
        let cells = line.iter().map(|cell| plain(cell));
        let written = writer.write_record(cells);
        written.expect("all lines are as long as the first, and in memory");
    }
    let text = writer.into_inner().expect("there is memory");
    let headers = [
        (CONTENT_TYPE, "text/csv; charset=utf-8".to_owned()),
        (
            CONTENT_DISPOSITION,
            format!("attachment; filename=\"{name}.csv\""),
        ),
    ];
    (headers, text).into_response()
}

/// With one of these a spreadsheet begins a formula.
const FORMULA: [char; 8] = ['=', '+', '-', '@', '＝', '＋', '－', '＠'];

/// Some of these separate cells, by the language of the spreadsheet.
const SEPARATORS: [char; 6] = [',', ';', '|', '\t', '\r', '\n'];

/// A text so that a spreadsheet takes no part of it for a formula, not even where it splits a cell at
/// another separator than the comma.
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
