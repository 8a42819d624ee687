//! One line of the log as JSON: the event, the instance that wrote it, and the request it was
//! written for.

use std::fmt;

use serde_json::{Map, Value};
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::{Format, Json, JsonFields, Writer};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormattedFields};
use tracing_subscriber::registry::LookupSpan;

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
        let mut line = String::new();
        self.event
            .format_event(context, Writer::new(&mut line), event)?;
        write!(writer, "{{{}", members(&line))?;
        write_members(&mut writer, &self.marks)?;
        for span in context.event_scope().into_iter().flatten() {
            let extensions = span.extensions();
            if let Some(fields) = extensions.get::<FormattedFields<JsonFields>>() {
                write_members(&mut writer, members(&fields.fields))?;
            }
        }
        writeln!(writer, "}}")
    }
}

/// The text between the braces of an object.
fn members(object: &str) -> &str {
    let object = object.trim();
    object
        .strip_prefix('{')
        .and_then(|rest| rest.strip_suffix('}'))
        .unwrap_or_default()
}

/// An event always has members before these.
fn write_members(writer: &mut Writer<'_>, members: &str) -> fmt::Result {
    if members.is_empty() {
        return Ok(());
    }
    write!(writer, ",{members}")
}
