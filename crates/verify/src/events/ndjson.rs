//! Events as JSON, also `CloudEvents`.

use std::collections::BTreeMap;
use std::io::{BufRead, Read};

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

use super::{BYTE_ORDER_MARK, Event, EventKind, json_in_words};
use crate::Target;
use crate::moment::{Millis, TOO_FAR, parse_length, parse_rfc3339, time_of_day};
use crate::quantity::{self, Measure};

/// The longest line, in bytes; the receiver takes no larger body either.
const LINE_LEN_MAX: u64 = 1 << 20;
/// Stands between the source and the id of a `CloudEvent` in the id of its event.
const ID_SEPARATOR: char = '\u{1f}';

/// The fields that matter here. A provider's log may have others.
#[derive(Deserialize)]
struct Line {
    #[serde(rename = "type", default)]
    kind: String,
    id: Option<String>,
    timestamp: Option<Value>,
    at: Option<String>,
    day: Option<i64>,
    time: Option<String>,
    #[serde(flatten)]
    target: Target,
    measured_usage: Option<Vec<Measure>>,
    #[serde(default)]
    previous: BTreeMap<String, String>,
}

/// A `CloudEvent`: `source` and `id` together are the id of the event, the other fields are in `data`.
#[derive(Deserialize)]
struct CloudEvent {
    #[serde(rename = "type")]
    kind: String,
    source: String,
    id: String,
    time: String,
    data: Line,
}

/// Tells `CloudEvents` from other events.
#[derive(Deserialize)]
struct FormatMark {
    specversion: Option<IgnoredAny>,
}

/// Reads the lines of a file, without those that are empty or comments.
pub(super) fn read(mut input: impl BufRead, now: Millis) -> Result<Vec<Event>, String> {
    let (mut events, mut line) = (Vec::new(), String::new());
    for number in 1.. {
        line.clear();
        let read = (&mut input).take(LINE_LEN_MAX).read_line(&mut line);
        let found = match read {
            Ok(0) => break,
            Ok(length) if length as u64 == LINE_LEN_MAX => Err("the line is too long".to_owned()),
            Ok(_) => events_of(&line, number, now),
            Err(error) => Err(error.to_string()),
        };
        events.extend(found.map_err(|what| format!("line {number}: {what}"))?);
    }
    Ok(events)
}

/// The event of a line; two where it is an update, which is a stop and a start at the same time.
fn events_of(text: &str, number: u64, now: Millis) -> Result<Vec<Event>, String> {
    let text = text.trim_start_matches(BYTE_ORDER_MARK).trim();
    if text.is_empty() || text.starts_with('#') {
        return Ok(Vec::new());
    }
    let (line, moment) = line_of(text, now)?;
    let target = line.target;
    // An empty id counts as none.
    let id = line.id.filter(|id| !id.is_empty());
    let event = |kind, target| Event {
        line: number,
        kind,
        target,
        id: id.clone(),
        moment,
    };
    let is_update = match line.kind.as_str() {
        "stop" => return Ok(vec![event(EventKind::Stop, target)]),
        "start" => false,
        "update" => true,
        _ => return Err("\"type\" is neither \"start\" nor \"stop\" nor \"update\"".to_owned()),
    };
    let mut events = Vec::new();
    if is_update {
        events.push(event(EventKind::Stop, before(&target, line.previous)?));
    }
    let measures = line.measured_usage.ok_or("\"measured_usage\" is missing")?;
    events.push(event(EventKind::start(measures)?, target));
    Ok(events)
}

fn line_of(text: &str, now: Millis) -> Result<(Line, Millis), String> {
    let wrong = |error: serde_json::Error| json_in_words(&error);
    let mark: FormatMark = serde_json::from_str(text).map_err(wrong)?;
    if mark.specversion.is_none() {
        let line: Line = serde_json::from_str(text).map_err(wrong)?;
        let moment = line.moment(now)?;
        return Ok((line, moment));
    }
    let event: CloudEvent = serde_json::from_str(text).map_err(wrong)?;
    let kind = event.kind.rsplit_once('.').map(|(_, kind)| kind);
    let line = Line {
        kind: kind.unwrap_or_default().to_owned(),
        id: Some(format!("{}{ID_SEPARATOR}{}", event.source, event.id)),
        ..event.data
    };
    let moment = parse_rfc3339(&event.time);
    Ok((
        line,
        moment.ok_or("\"time\" is not a valid time of RFC 3339")?,
    ))
}

impl Line {
    fn moment(&self, now: Millis) -> Result<Millis, String> {
        match (&self.timestamp, &self.at, self.day, &self.time) {
            (Some(timestamp), None, None, None) => {
                let moment = match timestamp {
                    Value::String(text) => parse_rfc3339(text),
                    other => quantity::unified(other.clone()).as_i64(),
                };
                Ok(moment.ok_or("\"timestamp\" is neither a whole number nor RFC 3339")?)
            }
            (None, Some(at), None, None) => {
                Ok(now.checked_add(parse_length(at)?).ok_or(TOO_FAR)?)
            }
            (None, None, Some(day), Some(time)) => time_of_day(now, day, time),
            _ => {
                let what = "an event has either \"timestamp\", or \"at\", or \"day\" and \"time\"";
                Err(what.to_owned())
            }
        }
    }
}

/// The target before an update.
fn before(now: &Target, previous: BTreeMap<String, String>) -> Result<Target, String> {
    let mut ids = now.ids().map(str::to_owned);
    for (name, id) in previous {
        let place = Target::FIELDS.iter().position(|field| *field == name);
        ids[place.ok_or_else(|| format!("\"previous\" has no {name:?}"))?] = id;
    }
    Ok(Target::from_ids(ids))
}
