//! One line of the log. As JSON: the event, the instance that wrote it, and the request it was written
//! for. Nothing in it can command a terminal, or turn the direction of what follows.

use std::fmt::{self, Write as _};

use sampler_domain::text::{escape_json, is_invisible};
use serde_json::{Map, Value};
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::{Format, Json, JsonFields, Writer};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, FormattedFields};
use tracing_subscriber::registry::LookupSpan;

use super::counts::code_of;

/// Explains each code, at the anchor of its name.
const HELP: &str = "docs/operations.md";

/// Writes events, with more fields at their end: those that are the same on every line, and those
/// of the spans around the event.
pub(super) struct Line {
    event: Format<Json>,
    /// The members of an object, without its braces.
    marks: String,
}

impl Line {
    pub(super) fn new(marks: &Map<String, Value>) -> Self {
        let event = tracing_subscriber::fmt::format().json().flatten_event(true);
        let marks = serde_json::to_string(marks).unwrap_or_default();
        Self {
            event: event.with_current_span(false).with_span_list(false),
            marks: members(&marks).to_owned(),
        }
    }
}

impl<S> FormatEvent<S, JsonFields> for Line
where
    S: Subscriber + for<'span> LookupSpan<'span>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, JsonFields>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut event_line = String::new();
        self.event
            .format_event(context, Writer::new(&mut event_line), event)?;
        let mut line = format!("{{{}", members(&event_line));
        if let Some(code) = code_of(event) {
            let _ = write!(line, r#","help":"{HELP}#{code}""#);
        }
        push_members(&mut line, &self.marks);
        for span in context.event_scope().into_iter().flatten() {
            let extensions = span.extensions();
            if let Some(fields) = extensions.get::<FormattedFields<JsonFields>>() {
                push_members(&mut line, members(&fields.fields));
            }
        }
        writeln!(writer, "{}}}", escape_json(&line))
    }
}

/// Writes events as text, for people.
pub(super) struct TextLine {
    event: Format,
    is_colored: bool,
}

impl TextLine {
    pub(super) fn new(is_colored: bool) -> Self {
        Self {
            event: tracing_subscriber::fmt::format().with_ansi(is_colored),
            is_colored,
        }
    }
}

impl<S, N> FormatEvent<S, N> for TextLine
where
    S: Subscriber + for<'span> LookupSpan<'span>,
    N: for<'writer> FormatFields<'writer> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut line = String::new();
        self.event
            .format_event(context, Writer::new(&mut line), event)?;
        let mut rest = line.as_str();
        while let Some(character) = rest.chars().next() {
            let color = if self.is_colored { color_len(rest) } else { 0 };
            let (shown, after) = rest.split_at(color.max(character.len_utf8()));
            if color == 0 && character != '\n' && is_invisible(character) {
                write!(writer, "{}", character.escape_unicode())?;
            } else {
                writer.write_str(shown)?;
            }
            rest = after;
        }
        Ok(())
    }
}

/// The length of the command that a text begins with, if that sets a color and does nothing else.
fn color_len(text: &str) -> usize {
    let Some(rest) = text.strip_prefix("\u{1b}[") else {
        return 0;
    };
    let numbers = rest.trim_start_matches(|it: char| it.is_ascii_digit() || it == ';');
    match numbers.strip_prefix('m') {
        Some(after) => text.len() - after.len(),
        None => 0,
    }
}

/// The text between the braces of an object.
fn members(object: &str) -> &str {
    object
        .trim()
        .strip_prefix('{')
        .and_then(|rest| rest.strip_suffix('}'))
        .unwrap_or_default()
}

/// An event always has members before these.
fn push_members(line: &mut String, members: &str) {
    if !members.is_empty() {
        line.push(',');
        line.push_str(members);
    }
}
