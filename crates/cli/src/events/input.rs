//! The events of a file, ready to be sent.

use sampler_verify::Target;
use sampler_verify::events::{Event, EventKind, Format, json_in_words};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::json;

use crate::event::id_of_text;
use crate::failure::Failure;
use crate::file::EventFile;

/// How many wrong lines are named.
const WRONG_MAX: usize = 50;

/// An event, ready to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileEvent {
    /// Its line in the file, from 1.
    pub(crate) line: u64,
    pub(crate) is_cloud_event: bool,
    /// A JSON object.
    pub(crate) body: String,
}

/// What a line must say before it is sent; the receiver reads the rest.
#[derive(Deserialize)]
struct Known {
    id: Option<String>,
    specversion: Option<IgnoredAny>,
}

/// The events of a file, in its order. Whatever is wrong in it is told before anything is sent.
pub(super) fn events(file: &EventFile) -> Result<Vec<FileEvent>, Failure> {
    if file.format == Format::Csv {
        return Ok(file.read()?.iter().map(event_of_row).collect());
    }
    let (mut events, mut wrong) = (Vec::new(), Vec::new());
    for (line, text) in (1..).zip(file.bytes.split(|byte| *byte == b'\n')) {
        let text = String::from_utf8_lossy(text);
        let text = text.trim_start_matches('\u{feff}').trim();
        if text.is_empty() || text.starts_with('#') {
            continue;
        }
        match event_of(line, text) {
            Ok(event) => events.push(event),
            Err(_) if wrong.len() == WRONG_MAX => {
                wrong.push("and more".to_owned());
                break;
            }
            Err(what) => wrong.push(format!("line {line}: {what}")),
        }
    }
    if events.is_empty() && wrong.is_empty() {
        wrong.push("there are no events in it".to_owned());
    }
    if wrong.is_empty() {
        return Ok(events);
    }
    Err(file.wrong(&wrong.join("\n")))
}

/// The event of an object, which is sent as it is written.
fn event_of(line: u64, text: &str) -> Result<FileEvent, String> {
    if text.contains(char::REPLACEMENT_CHARACTER) {
        return Err("it is not UTF-8".to_owned());
    }
    if !text.starts_with('{') {
        return Err("an event is a JSON object".to_owned());
    }
    let known: Known = serde_json::from_str(text).map_err(|error| json_in_words(&error))?;
    if known.id.is_none_or(|id| id.is_empty()) {
        return Err("the event has no \"id\", by which a repeat is recognised".to_owned());
    }
    Ok(FileEvent {
        line,
        is_cloud_event: known.specversion.is_some(),
        body: text.to_owned(),
    })
}

/// A row of a table has no id: that of its events follows from what it says.
fn event_of_row(row: &Event) -> FileEvent {
    let mut body = json!({ "type": "stop", "timestamp": row.moment });
    if let EventKind::Start(measures) = &row.kind {
        body["type"] = json!("start");
        body["measured_usage"] = json!(measures);
    }
    for (name, id) in Target::FIELDS.into_iter().zip(row.target.ids()) {
        body[name] = json!(id);
    }
    body["id"] = json!(id_of_text(&body.to_string()));
    FileEvent {
        line: row.line,
        is_cloud_event: false,
        body: body.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_sent_as_they_are_written() {
        let text = r#"{"type":"start","id":"a","timestamp":5,"quantity":1e2,"x":123456789012345678901234567890,"x":1}"#;
        let event = event_of(7, text).unwrap();
        assert_eq!((event.line, event.body.as_str()), (7, text));
        assert!(!event.is_cloud_event);
        let text = r#"{"specversion": "1.0", "id": "a", "time": "now"}"#;
        assert!(event_of(7, text).unwrap().is_cloud_event);
    }

    #[test]
    fn an_event_without_an_id_is_not_sent() {
        for (text, part) in [
            (r#"{"timestamp":5}"#, "no \"id\""),
            (r#"{"id":"","timestamp":5}"#, "no \"id\""),
            (r#"{"id":5,"timestamp":5}"#, "expected a string"),
            (r#"{"specversion":"1.0"}"#, "no \"id\""),
            ("[1]", "an event is a JSON object"),
            ("{\"id\":\"\u{fffd}\"}", "not UTF-8"),
        ] {
            let what = event_of(1, text).unwrap_err();
            assert!(what.contains(part), "{what}");
        }
    }
}
