//! The events of a file, ready to be sent.

use std::collections::HashMap;
use std::fmt;
use std::io::{BufRead, Read};

use sampler_verify::Target;
use sampler_verify::events::{self, Event, EventKind, FileTimes, Format, json_in_words};
use sampler_verify::moment::{Millis, parse_length, parse_rfc3339, time_of_day};
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::failure::Failure;
use crate::file::EventFile;

/// Ids that follow from what events say are named in here.
const NAMESPACE: Uuid = Uuid::from_u128(0x9c3e_61f0_7d0b_4c55_8f0a_2f6b_1d94_e7a3);
/// The longest line, in bytes; the receiver takes no larger event either.
const LINE_LEN_MAX: u64 = 1 << 20;
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

/// The events of a file, in its order; each that cannot be sent with the reason.
pub(super) type Events<'a> = Box<dyn Iterator<Item = Result<FileEvent, String>> + 'a>;

/// Reads a file from its beginning. A table is read as a whole.
pub(super) fn events(file: &EventFile) -> Result<Events<'_>, Failure> {
    if file.format == Format::Csv {
        let rows = file.read()?.into_iter();
        let mut ids = RowIds::default();
        return Ok(Box::new(rows.map(move |row| Ok(ids.event_of(&row)))));
    }
    file.check_columns()?;
    let mut reader = file.reader()?;
    events::check_text(&mut reader).map_err(|error| file.wrong(&error))?;
    let mut number = 0;
    let lines = std::iter::from_fn(move || next_line(&mut reader, &mut number));
    Ok(Box::new(lines.map(|line| {
        let (line, text) = line?;
        let event = event_of(line, &text, file.times);
        event.map_err(|what| format!("line {line}: {what}"))
    })))
}

/// Reads a file to its end, and counts its events. Whatever is wrong in it is told before anything is sent.
pub(super) fn check(file: &EventFile) -> Result<u64, Failure> {
    let (mut count, mut wrong) = (0, Vec::new());
    for event in events(file)? {
        match event {
            Ok(_) => count += 1,
            Err(what) if wrong.len() < WRONG_MAX => wrong.push(what),
            Err(_) => {
                wrong.push("and more".to_owned());
                break;
            }
        }
    }
    if wrong.is_empty() && count > 0 {
        return Ok(count);
    }
    if wrong.is_empty() {
        wrong.push("there are no events in it".to_owned());
    }
    Err(file.wrong(&wrong.join("\n")))
}

/// The next line that is neither empty nor a comment, with its number.
fn next_line(reader: &mut dyn BufRead, number: &mut u64) -> Option<Result<(u64, String), String>> {
    loop {
        let mut line = Vec::new();
        *number += 1;
        let wrong = |what: &dyn fmt::Display| Some(Err(format!("line {number}: {what}")));
        match Read::take(&mut *reader, LINE_LEN_MAX + 1).read_until(b'\n', &mut line) {
            Ok(0) => return None,
            Ok(length) if length as u64 > LINE_LEN_MAX => {
                // The rest is passed over: it would be taken for other lines.
                return match reader.skip_until(b'\n') {
                    Ok(_) => wrong(&"it is too long"),
                    Err(error) => wrong(&error),
                };
            }
            Ok(_) => {}
            Err(error) => return wrong(&error),
        }
        let Ok(line) = std::str::from_utf8(&line) else {
            return wrong(&"it is not UTF-8");
        };
        let text = line.trim_start_matches('\u{feff}').trim();
        if !text.is_empty() && !text.starts_with('#') {
            return Some(Ok((*number, text.to_owned())));
        }
    }
}

/// The event of an object. Only mistakes that the receiver cannot see are errors here.
fn event_of(line: u64, text: &str, times: FileTimes) -> Result<FileEvent, String> {
    let mut members: Members = serde_json::from_str(text).map_err(|error| json_in_words(&error))?;
    if members.text("id").is_none_or(|id| id.is_empty()) {
        return Err("the event has no \"id\", by which a repeat is recognised".to_owned());
    }
    if members.get("specversion").is_some() {
        return Ok(FileEvent {
            line,
            is_cloud_event: true,
            body: text.to_owned(),
        });
    }
    let is_number = members
        .get("timestamp")
        .is_some_and(|it| !it.get().starts_with('"'));
    if !is_number || times.offset != 0 {
        let moment = members.moment(times)?;
        members.remove(&["timestamp", "at", "day", "time"]);
        members.add("timestamp", &json!(moment));
    }
    // An instruction for whoever sends the file.
    members.remove(&["after"]);
    Ok(FileEvent {
        line,
        is_cloud_event: false,
        body: members.body(),
    })
}

/// The members of an object, as they are written: no number is read, and no repeated name lost.
struct Members(Vec<(String, Box<RawValue>)>);

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder;
        impl<'de> Visitor<'de> for InOrder {
            type Value = Members;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("an event, which is an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(InOrder)
    }
}

impl Members {
    fn get(&self, name: &str) -> Option<&RawValue> {
        let mut members = self.0.iter();
        let (_, value) = members.find(|(member, _)| member == name)?;
        Some(value)
    }

    fn text(&self, name: &str) -> Option<String> {
        serde_json::from_str(self.get(name)?.get()).ok()
    }

    fn remove(&mut self, names: &[&str]) {
        self.0.retain(|(name, _)| !names.contains(&name.as_str()));
    }

    fn add(&mut self, name: &str, value: &Value) {
        if let Ok(raw) = to_raw_value(value) {
            self.0.push((name.to_owned(), raw));
        }
    }

    fn body(&self) -> String {
        let members = self.0.iter().map(|(name, value)| {
            let name = Value::from(name.as_str());
            format!("{name}:{}", value.get())
        });
        format!("{{{}}}", members.collect::<Vec<_>>().join(","))
    }

    /// When the event took place, in milliseconds since 1970.
    fn moment(&self, times: FileTimes) -> Result<Millis, String> {
        let day = self.get("day").map(|day| day.get().parse::<i64>());
        let given = (
            self.get("timestamp"),
            self.text("at"),
            day,
            self.text("time"),
        );
        let moment = match given {
            (Some(timestamp), None, None, None) => {
                let number = timestamp.get().parse().ok();
                let moment = number.or_else(|| parse_rfc3339(&self.text("timestamp")?));
                moment.ok_or("\"timestamp\" is neither a whole number nor RFC 3339")?
            }
            (None, Some(at), None, None) => times.now.saturating_add(parse_length(&at)?),
            (None, None, Some(Ok(day)), Some(time)) => time_of_day(times.now, day, &time)?,
            _ => {
                let what = "an event has either \"timestamp\", or \"at\", or \"day\" and \"time\"";
                return Err(what.to_owned());
            }
        };
        let moved = moment.checked_add(times.offset);
        moved.ok_or_else(|| "its time is too far away".to_owned())
    }
}

/// A row of a table has no id: that of its events follows from what it says, and from the number of equal
/// rows before it.
#[derive(Default)]
struct RowIds(HashMap<Uuid, u32>);

impl RowIds {
    fn event_of(&mut self, row: &Event) -> FileEvent {
        let mut body = json!({ "type": "stop", "timestamp": row.moment });
        if let EventKind::Start(measures) = &row.kind {
            body["type"] = json!("start");
            body["measured_usage"] = json!(measures);
        }
        for (name, id) in Target::FIELDS.into_iter().zip(row.target.ids()) {
            body[name] = json!(id);
        }
        let name = Uuid::new_v5(&NAMESPACE, body.to_string().as_bytes());
        let count = self.0.entry(name).or_default();
        *count += 1;
        body["id"] = match count {
            1 => json!(format!("sampler-{name}")),
            count => json!(format!("sampler-{name}-{count}")),
        };
        FileEvent {
            line: row.line,
            is_cloud_event: false,
            body: body.to_string(),
        }
    }
}

/// The id of an event that has none but its text.
pub(crate) fn id_of_text(text: &str) -> String {
    format!("sampler-{}", Uuid::new_v5(&NAMESPACE, text.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMES: FileTimes = FileTimes {
        now: 1_700_000_000_000,
        offset: 1_000,
    };

    fn body(more: &str, times: FileTimes) -> Result<Value, String> {
        let event = event_of(1, &format!(r#"{{"id":"a",{more}}}"#), times)?;
        Ok(serde_json::from_str(&event.body).unwrap())
    }

    #[test]
    fn what_is_whole_is_sent_as_it_is_written() {
        let text = r#"{"type":"start","id":"a","timestamp":5,"quantity":1e2,"x":123456789012345678901234567890,"x":1}"#;
        let event = event_of(7, text, FileTimes::default()).unwrap();
        assert_eq!((event.line, event.body.as_str()), (7, text));
        let text = r#"{"specversion": "1.0", "id": "a", "time": "now"}"#;
        let event = event_of(7, text, TIMES).unwrap();
        assert!(event.is_cloud_event);
        assert_eq!(event.body, text);
    }

    #[test]
    fn an_event_without_an_id_is_not_sent() {
        for text in [
            r#"{"timestamp":5}"#,
            r#"{"id":"","timestamp":5}"#,
            r#"{"id":5,"timestamp":5}"#,
            r#"{"specversion":"1.0"}"#,
        ] {
            let what = event_of(1, text, TIMES).unwrap_err();
            assert!(what.contains("no \"id\""), "{what}");
        }
    }

    #[test]
    fn times_are_moved_and_worked_out() {
        for (more, moment) in [
            (r#""timestamp":5"#, 1_005_i64),
            (r#""at":"-1s""#, 1_700_000_000_000),
            (
                r#""day":0,"time":"00:00:00","after":"sampled""#,
                1_699_920_001_000,
            ),
            (r#""timestamp":"1970-01-01T01:00:00.005+01:00""#, 1_005),
        ] {
            let body = body(more, TIMES).unwrap();
            assert_eq!(body, json!({ "id": "a", "timestamp": moment }), "{more}");
        }
        for wrong in [
            r#""day":1"#,
            r#""timestamp":"yesterday""#,
            r#""timestamp":"2026-11-20T15:10:60Z""#,
            r#""timestamp":1.5"#,
            r#""timestamp":1,"at":"1h""#,
        ] {
            assert!(body(wrong, TIMES).is_err(), "{wrong}");
        }
    }

    #[test]
    fn comments_are_passed_over_and_lines_have_a_limit() {
        let long = "x".repeat(1 << 20);
        let text = format!("# x\n\n {{}} \n{long}y\n\u{feff}{{}}");
        let (mut reader, mut number) = (text.as_bytes(), 0);
        let mut next = || next_line(&mut reader, &mut number);
        assert_eq!(next(), Some(Ok((3, "{}".to_owned()))));
        assert_eq!(next(), Some(Err("line 4: it is too long".to_owned())));
        assert_eq!(next(), Some(Ok((5, "{}".to_owned()))));
        assert_eq!(next(), None);
        assert!(next_line(&mut &b"\xff\n"[..], &mut 0).is_some_and(|it| it.is_err()));
    }
}
