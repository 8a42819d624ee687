//! One event of a file, as it is posted.

use std::collections::HashMap;
use std::fmt;

use sampler_verify::Target;
use sampler_verify::events::{self, EventKind};
use sampler_verify::moment::{Millis, parse_length, parse_rfc3339, time_of_day};
use sampler_verify::quantity::{Measure, Quantity};
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use uuid::Uuid;

/// Ids that follow from what events say are named in here.
const NAMESPACE: Uuid = Uuid::from_u128(0x9c3e_61f0_7d0b_4c55_8f0a_2f6b_1d94_e7a3);
/// The beginning of such ids.
const PREFIX: &str = "sampler-";
/// An instruction for whoever sends the file, as `cargo xtask up` does. It is not sent.
const AFTER: &str = "after";

/// An event, ready to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileEvent {
    /// Its line in the file, from 1.
    pub(crate) line: u64,
    pub(crate) is_cloud_event: bool,
    /// A JSON object.
    pub(crate) body: String,
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

    /// A time that is written as RFC 3339.
    fn moment(&self, name: &str) -> Option<Millis> {
        parse_rfc3339(&self.text(name)?)
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
        let members: Vec<String> = self
            .0
            .iter()
            .map(|(name, value)| {
                let name = Value::from(name.as_str());
                format!("{name}:{}", value.get())
            })
            .collect();
        format!("{{{}}}", members.join(","))
    }
}

/// Turns the lines and rows of a file into events.
#[derive(Debug)]
pub(super) struct Importer {
    /// The origin of `day` and `at`.
    now: Millis,
    offset: Millis,
    /// How often an event without an id has said the same: a target may start, stop and start again
    /// at the same time.
    repeats: HashMap<Uuid, u32>,
    has_relative: bool,
}

impl Importer {
    pub(super) fn new(now: Millis, offset: Millis) -> Self {
        Self {
            now,
            offset,
            repeats: HashMap::new(),
            has_relative: false,
        }
    }

    /// Another origin, before the first event is read.
    pub(super) fn count_from(&mut self, now: Millis) {
        self.now = now;
    }

    /// Whether a time has been worked out from the origin.
    pub(super) fn has_relative(&self) -> bool {
        self.has_relative
    }

    /// The event of an object. Only mistakes that the receiver cannot see are errors here.
    pub(super) fn of_json(&mut self, line: u64, text: &str) -> Result<FileEvent, String> {
        let mut members: Members =
            serde_json::from_str(text).map_err(|error| events::json_in_words(&error))?;
        if members.get("specversion").is_some() {
            return Ok(FileEvent {
                line,
                is_cloud_event: true,
                body: one_line(text),
            });
        }
        let is_relative = ["at", "day", "time"]
            .iter()
            .any(|name| members.get(name).is_some());
        self.has_relative |= is_relative;
        let is_written = members.moment("timestamp").is_some();
        if is_relative || is_written || self.offset != 0 {
            let moment = self.moment(&members)?;
            members.remove(&["timestamp", "at", "day", "time"]);
            members.add("timestamp", &json!(moment));
        }
        members.remove(&[AFTER]);
        // An empty id counts as none.
        if members.get("id").is_none_or(|id| id.get() == "\"\"") {
            members.remove(&["id"]);
            let id = self.id_of(&members);
            members.add("id", &json!(id));
        }
        Ok(FileEvent {
            line,
            is_cloud_event: false,
            body: members.body(),
        })
    }

    pub(super) fn of_row(&mut self, row: &events::Event) -> Result<FileEvent, String> {
        let mut body = json!({ "type": "stop", "timestamp": row.moment });
        if let EventKind::Start(measures) = &row.kind {
            body["type"] = json!("start");
            let mut usage = Vec::new();
            for Measure { measure, quantity } in measures {
                let quantity = match *quantity {
                    Quantity::Integer(quantity) => {
                        json!(i64::try_from(quantity).map_err(|error| error.to_string())?)
                    }
                    Quantity::Double(quantity) => json!(quantity),
                    _ => return Err(format!("{measure} is not a number")),
                };
                usage.push(json!({ "measure": measure, "quantity": quantity }));
            }
            body["measured_usage"] = json!(usage);
        }
        for (name, id) in Target::FIELDS.into_iter().zip(row.target.ids()) {
            body[name] = json!(id);
        }
        self.of_json(row.line, &body.to_string())
    }

    fn moment(&self, members: &Members) -> Result<Millis, String> {
        let day = members.get("day").map(|day| day.get().parse::<i64>());
        let moment = match (
            members.get("timestamp"),
            members.text("at"),
            day,
            members.text("time"),
        ) {
            (Some(timestamp), None, None, None) => {
                let number = timestamp.get().parse::<Millis>().ok();
                let moment = number.or_else(|| members.moment("timestamp"));
                moment.ok_or("\"timestamp\" is neither a whole number nor RFC 3339")?
            }
            (None, Some(at), None, None) => {
                let length = parse_length(&at).map_err(|error| error.to_string())?;
                self.now
                    .checked_add(length)
                    .ok_or("\"at\" is too far away")?
            }
            (None, None, Some(Ok(day)), Some(time)) => {
                time_of_day(self.now, day, &time).map_err(|error| error.to_string())?
            }
            _ => {
                let what = "an event has either \"timestamp\", or \"at\", or \"day\" and \"time\"";
                return Err(what.to_owned());
            }
        };
        self.moved(moment)
    }

    fn moved(&self, moment: Millis) -> Result<Millis, String> {
        let moved = moment.checked_add(self.offset);
        moved.ok_or_else(|| "its time is too far away".to_owned())
    }

    /// The same for the same event of the same file, and another for each that only looks the same.
    fn id_of(&mut self, members: &Members) -> String {
        let mut said: Vec<String> = members
            .0
            .iter()
            .map(|(name, value)| format!("{name}\u{1f}{}", value.get()))
            .collect();
        said.sort_unstable();
        let name = Uuid::new_v5(&NAMESPACE, said.join("\u{1e}").as_bytes());
        let count = self.repeats.entry(name).or_default();
        *count += 1;
        match count {
            1 => format!("{PREFIX}{name}"),
            count => format!("{PREFIX}{name}-{count}"),
        }
    }
}

pub(crate) fn id_of_text(text: &str) -> String {
    format!("{PREFIX}{}", Uuid::new_v5(&NAMESPACE, text.as_bytes()))
}

/// JSON without line breaks, which occur only between its parts.
fn one_line(text: &str) -> String {
    text.replace(['\n', '\r'], " ").trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TARGET: &str = r#""resource_id":"r","plan_id":"p""#;

    fn body(importer: &mut Importer, more: &str) -> Value {
        let event = importer
            .of_json(1, &format!("{{{more},{TARGET}}}"))
            .unwrap();
        serde_json::from_str(&event.body).unwrap()
    }

    #[test]
    fn what_is_whole_is_sent_as_it_is_written() {
        let mut importer = Importer::new(0, 0);
        let text = r#"{"type":"start","id":"a","timestamp":5,"quantity":1e2,"x":123456789012345678901234567890,"x":1}"#;
        assert_eq!(importer.of_json(7, text).unwrap().body, text);
        let event = "{\"specversion\":\"1.0\",\n\"time\":\"now\"}";
        let event = importer.of_json(7, event).unwrap();
        assert!(event.is_cloud_event);
        assert_eq!(event.body, "{\"specversion\":\"1.0\", \"time\":\"now\"}");
    }

    #[test]
    fn an_event_without_an_id_gets_one_that_follows_from_it() {
        let (mut one, mut other) = (Importer::new(0, 0), Importer::new(0, 0));
        let stop = r#""type":"stop","timestamp":5"#;
        let first = body(&mut one, stop)["id"].clone();
        assert!(first.as_str().unwrap().starts_with("sampler-"));
        assert_eq!(
            first,
            body(&mut other, r#""timestamp":5,"id":"","type":"stop""#)["id"]
        );
        assert_ne!(
            first,
            body(&mut one, r#""type":"stop","timestamp":6"#)["id"]
        );
        let second = body(&mut one, stop)["id"].clone();
        assert_ne!(first, second, "it is another event of the file");
        assert_eq!(second, body(&mut other, stop)["id"]);
    }

    #[test]
    fn moments_are_moved_and_worked_out() {
        let mut importer = Importer::new(1_700_000_000_000, 1_000);
        let at = |importer: &mut Importer, more: &str| body(importer, more)["timestamp"].clone();
        assert_eq!(at(&mut importer, r#""id":"a","timestamp":5"#), 1_005);
        assert_eq!(
            at(&mut importer, r#""id":"a","at":"-1s""#),
            1_700_000_000_000_i64
        );
        let midnight = r#""id":"a","day":0,"time":"00:00:00","after":"sampled""#;
        assert_eq!(at(&mut importer, midnight), 1_699_920_001_000_i64);
        let rfc = r#""id":"a","timestamp":"1970-01-01T01:00:00.005+01:00""#;
        assert_eq!(at(&mut importer, rfc), 1_005);
        for wrong in [
            r#""day":1"#,
            r#""timestamp":"yesterday""#,
            r#""timestamp":1.5"#,
            r#""timestamp":1,"at":"1h""#,
        ] {
            assert!(
                importer.of_json(1, &format!("{{{wrong}}}")).is_err(),
                "{wrong}"
            );
        }
        assert!(importer.of_json(1, "[1]").is_err());
    }
}
