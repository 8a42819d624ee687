//! Events as JSON, also `CloudEvents`.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use super::{Event, EventKind, FileTimes, Wrong};
use crate::Target;
use crate::moment::{Millis, MomentError, parse_length, parse_rfc3339, time_of_day};
use crate::quantity::{Measure, Quantity};

/// The fields that matter here. A provider's log may have others.
#[derive(Deserialize)]
struct Line {
    #[serde(rename = "type", default)]
    kind: String,
    id: Option<String>,
    timestamp: Option<Box<RawValue>>,
    at: Option<String>,
    day: Option<i64>,
    time: Option<String>,
    organization_id: String,
    space_id: String,
    consumer_id: String,
    resource_id: String,
    plan_id: String,
    resource_instance_id: String,
    measured_usage: Option<Vec<Measure>>,
    previous: Option<BTreeMap<String, String>>,
}

/// A `CloudEvent`: `source` and `id` together are the id of the event, the other fields are in `data`.
#[derive(Deserialize)]
struct CloudEvent {
    #[serde(rename = "type")]
    kind: String,
    source: String,
    id: String,
    time: String,
    data: Box<RawValue>,
}

/// Tells `CloudEvents` from other events.
#[derive(Deserialize)]
struct FormatMark {
    specversion: Option<IgnoredAny>,
}

/// Stands between the source and the id of a `CloudEvent` in the id of its event.
const ID_SEPARATOR: char = '\u{1f}';

/// One event of a line; two where it is an update, which is a stop and a start at the same time.
pub(super) fn read(text: &[u8], number: u64, reading: FileTimes) -> Result<Vec<Event>, Wrong> {
    if serde_json::from_slice::<FormatMark>(text)?
        .specversion
        .is_some()
    {
        let (line, moment) = serde_json::from_slice::<CloudEvent>(text)?.line()?;
        return events_of(line, number, moment);
    }
    let line: Line = serde_json::from_slice(text)?;
    let moment = reading.moved(line.moment(reading.now)?)?;
    events_of(line, number, moment)
}

fn events_of(mut line: Line, number: u64, moment: Millis) -> Result<Vec<Event>, Wrong> {
    // An empty id counts as none.
    let id = line.id.take().filter(|id| !id.is_empty());
    let (kind, previous) = (line.kind.clone(), line.previous.take());
    let measures = line.measured_usage.take();
    let target = line.target();
    let event = |kind, target| Event {
        line: number,
        kind,
        target,
        id: id.clone(),
        moment,
    };
    match kind.as_str() {
        "start" => Ok(vec![event(start_of(measures)?, target)]),
        "stop" => Ok(vec![event(EventKind::Stop, target)]),
        "update" => {
            let before = previous_target(&target, previous.unwrap_or_default())?;
            let start = start_of(measures)?;
            Ok(vec![event(EventKind::Stop, before), event(start, target)])
        }
        _ => Err(Wrong::other(
            "\"type\" is neither \"start\" nor \"stop\" nor \"update\"",
        )),
    }
}

impl CloudEvent {
    fn line(self) -> Result<(Line, Millis), Wrong> {
        let mut line: Line = serde_json::from_str(self.data.get())?;
        let kind = self.kind.rsplit_once('.').map(|(_, kind)| kind.to_owned());
        let what = "\"type\" ends in neither \".start\" nor \".stop\" nor \".update\"";
        line.kind = kind.ok_or_else(|| Wrong::other(what))?;
        line.id = Some(format!("{}{ID_SEPARATOR}{}", self.source, self.id));
        // A number would be taken for milliseconds.
        let moment = parse_rfc3339(&self.time)
            .ok_or_else(|| Wrong::other("\"time\" is not a valid time of RFC 3339"))?;
        Ok((line, moment))
    }
}

impl Line {
    fn moment(&self, now: Millis) -> Result<Millis, Wrong> {
        match (&self.timestamp, &self.at, self.day, &self.time) {
            (Some(timestamp), None, None, None) => {
                // As RFC 3339 it is a text.
                if let Ok(text) = serde_json::from_str::<String>(timestamp.get())
                    && let Some(moment) = parse_rfc3339(&text)
                {
                    return Ok(moment);
                }
                let whole = Quantity::read(timestamp)?.whole();
                let what = "\"timestamp\" is neither a whole number nor RFC 3339";
                let whole = whole.ok_or_else(|| Wrong::other(what))?;
                Ok(i64::try_from(whole).map_err(|_| MomentError::TooFar)?)
            }
            (None, Some(at), None, None) => {
                let moment = now.checked_add(parse_length(at)?);
                Ok(moment.ok_or(MomentError::TooFar)?)
            }
            (None, None, Some(day), Some(time)) => Ok(time_of_day(now, day, time)?),
            _ => Err(Wrong::other(
                "an event has either \"timestamp\", or \"at\", or \"day\" and \"time\"",
            )),
        }
    }

    fn target(self) -> Target {
        Target {
            organization_id: self.organization_id,
            space_id: self.space_id,
            consumer_id: self.consumer_id,
            resource_id: self.resource_id,
            plan_id: self.plan_id,
            resource_instance_id: self.resource_instance_id,
        }
    }
}

fn previous_target(now: &Target, before: BTreeMap<String, String>) -> Result<Target, Wrong> {
    let mut ids = now.ids().map(str::to_owned);
    for (name, id) in before {
        let place = Target::FIELDS
            .iter()
            .position(|field| *field == name)
            .ok_or_else(|| Wrong::other(format!("\"previous\" has no {name:?}")))?;
        ids[place] = id;
    }
    Ok(Target::from_ids(ids))
}

fn start_of(measures: Option<Vec<Measure>>) -> Result<EventKind, Wrong> {
    let measures = measures.ok_or_else(|| Wrong::other("\"measured_usage\" is missing"))?;
    Ok(EventKind::Start(without_repeated_names(measures)?))
}

fn without_repeated_names(measures: Vec<Measure>) -> Result<Vec<Measure>, Wrong> {
    let mut names: Vec<&str> = measures.iter().map(|m| m.measure.as_str()).collect();
    names.sort_unstable();
    match names.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(Wrong::other(format!(
            "the measure {:?} is repeated",
            pair[0]
        ))),
        None => Ok(measures),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDS: &str = r#""organization_id":"o","space_id":"s","consumer_id":"c","resource_id":"r","plan_id":"p","resource_instance_id":"i""#;
    const M: &str = r#""measured_usage":[{"measure":"m","quantity":1}]"#;

    fn reading() -> FileTimes {
        FileTimes {
            now: 1_700_000_000_000,
            offset: 0,
        }
    }

    fn read_text(more: &str) -> Result<Vec<Event>, Wrong> {
        read(format!("{{{more},{IDS}}}").as_bytes(), 7, reading())
    }

    #[test]
    fn reads_moments_in_all_ways() {
        let moment = |more: &str| {
            read_text(&format!(r#""type":"stop",{more}"#)).map(|events| events[0].moment)
        };
        assert_eq!(
            moment(r#""timestamp":1795186800000"#).unwrap(),
            1_795_186_800_000
        );
        assert_eq!(
            moment(r#""timestamp":1.7951868e12"#).unwrap(),
            1_795_186_800_000
        );
        assert_eq!(moment(r#""at":"-1h""#).unwrap(), 1_699_996_400_000);
        assert_eq!(
            moment(r#""day":-1,"time":"00:00:01""#).unwrap(),
            1_699_833_601_000
        );
        for wrong in [
            r#""id":"x""#,
            r#""day":1"#,
            r#""timestamp":1,"at":"1h""#,
            r#""timestamp":1.5"#,
            r#""timestamp":"1""#,
            r#""day":0,"time":"noon""#,
        ] {
            assert!(moment(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_update_is_a_stop_and_a_start() {
        let text = format!(
            r#""type":"update","timestamp":5,"id":"u","previous":{{"plan_id":"small"}},{M}"#
        );
        let events = read_text(&text).unwrap();
        assert_eq!(
            (events[0].target.plan_id.as_str(), &events[0].kind),
            ("small", &EventKind::Stop)
        );
        assert_eq!(events[1].target.plan_id, "p");
        assert!(matches!(&events[1].kind, EventKind::Start(measures) if measures.len() == 1));
        assert!(
            events
                .iter()
                .all(|e| e.id.as_deref() == Some("u") && e.moment == 5 && e.line == 7)
        );
    }

    #[test]
    fn says_what_is_wrong() {
        let message = |more: &str| read_text(more).unwrap_err().to_string();
        assert!(message(r#""type":"begin","timestamp":1"#).contains("\"type\""));
        assert!(message(r#""type":"start","timestamp":1"#).contains("measured_usage"));
        let twice =
            r#""measured_usage":[{"measure":"m","quantity":1},{"measure":"m","quantity":2}]"#;
        assert!(message(&format!(r#""type":"start","timestamp":1,{twice}"#)).contains("repeated"));
        let previous = format!(r#""type":"update","timestamp":1,"previous":{{"plan":"x"}},{M}"#);
        assert!(message(&previous).contains("\"plan\""));
        assert!(read(b"{", 1, reading()).is_err());
        assert!(read(br#"{"type":"stop","timestamp":1}"#, 1, reading()).is_err());
    }

    #[test]
    fn an_empty_id_counts_as_none() {
        let events = read_text(r#""type":"stop","timestamp":1,"id":"""#).unwrap();
        assert_eq!(events[0].id, None);
    }

    #[test]
    fn cloud_events_are_read() {
        let cloud_event = |kind: &str, time: &str, more: &str| {
            let text = format!(
                r#"{{"specversion":"1.0","type":"{kind}","source":"/b","id":"1","time":"{time}",
                    "data":{{{more}{IDS},{M}}}}}"#
            );
            let moved = FileTimes {
                offset: 5,
                ..reading()
            };
            read(text.as_bytes(), 3, moved)
        };
        let events = cloud_event("a.b.start", "1970-01-01T00:00:01.0009Z", "").unwrap();
        assert_eq!((events[0].moment, events[0].line), (1_000, 3));
        assert_eq!(events[0].id.as_deref(), Some("/b\u{1f}1"));
        assert!(matches!(&events[0].kind, EventKind::Start(measures) if measures.len() == 1));
        let previous = r#""previous":{"plan_id":"small"},"#;
        let events = cloud_event("a.update", "1970-01-01T01:00:00+01:00", previous).unwrap();
        assert_eq!((events.len(), events[1].moment), (2, 0));
        for (kind, time) in [("start", "1970-01-01T00:00:00Z"), ("a.start", "1000")] {
            assert!(cloud_event(kind, time, "").is_err(), "{kind} {time}");
        }
        assert!(cloud_event("a.begin", "1970-01-01T00:00:00Z", "").is_err());
    }
}
