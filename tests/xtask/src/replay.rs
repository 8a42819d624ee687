//! Events to replay, read from a file.
//!
//! # NDJSON (`.ndjson`, `.jsonl`, `.json`)
//!
//! One event per line; empty lines and lines that begin with `#` are left out. An event has the
//! fields that the receiver takes, and besides:
//!
//! - `"type"`: `"start"`, `"stop"` or `"update"`.
//! - Its moment, in one of three ways: `"timestamp"` in ms since epoch; or `"day"` and `"time"`, a
//!   day (UTC) counted from today and a time of that day, like `-3` and `"10:30:00.000"`; or `"at"`,
//!   an offset from now like `"-2d3h"` (units `d`, `h`, `m`, `s`, `ms`).
//! - `"after": "sampled"`, for a stop only: it is held back until Abacus has counted a usage of its
//!   target that reaches beyond it. That makes it a late stop, which Sampler has to correct.
//!
//! # CSV (`.csv`)
//!
//! One span per row. Either the columns are `start`, `end` (ms since epoch; an empty `end` leaves
//! the span open) and the six fields of the target, and every other column of integers is a measure.
//! Or they are those of a cluster trace: `name`, `creation_time`, `deletion_time` (in seconds), and
//! every other column of integers is a measure, except times.
//!
//! # Shifting
//!
//! All moments can be moved by the same length, so that the last lies a given time ago.
//!
//! Events of one target are sent in the order of the file, also those of targets that an update
//! joins; others do not wait for each other.

mod moment;
mod ndjson;
mod table;

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use sampler_testkit::build::{self, Target, with};
use serde_json::Value;

pub(crate) use moment::parse_duration;

/// What an event reports.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Kind {
    Start,
    Stop,
    /// The span of this target, which may be another one, goes on as the event says.
    Update(Target),
}

impl Kind {
    /// Where it is posted.
    pub(crate) fn path(&self) -> &'static str {
        match self {
            Self::Start => build::Kind::Start.path(),
            Self::Stop => build::Kind::Stop.path(),
            Self::Update(_) => "/v1/events/update",
        }
    }
}

/// An event to send.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Event {
    pub(crate) kind: Kind,
    pub(crate) timestamp: i64,
    pub(crate) target: Target,
    /// The body; its timestamp does not count.
    fields: Value,
    /// Whether it is held back until usages reach beyond it.
    pub(crate) after_sampled: bool,
}

impl Event {
    /// Its body as the receiver takes it.
    pub(crate) fn body(&self) -> Value {
        with(self.fields.clone(), "timestamp", self.timestamp)
    }

    /// The target whose span it ends, if it ends one.
    pub(crate) fn ended(&self) -> Option<&Target> {
        match &self.kind {
            Kind::Start => None,
            Kind::Stop => Some(&self.target),
            Kind::Update(previous) => Some(previous),
        }
    }

    /// The measures of a start or an update; null for a stop.
    pub(crate) fn measures(&self) -> &Value {
        &self.fields["measured_usage"]
    }
}

/// The events of one target, or of those that updates join, in order.
pub(crate) type Queue = Vec<Event>;

/// Reads a file. `now` is what relative moments count from.
pub(crate) fn read(path: &Path, now: i64) -> Result<Vec<Queue>> {
    let text = std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()));
    let text = text?;
    let extension = path
        .extension()
        .and_then(|extension| extension.to_str())
        .unwrap_or_default();
    let events = match extension {
        "csv" => table::parse(&text),
        "ndjson" | "jsonl" | "json" => ndjson::parse(&text, now),
        other => bail!(
            "{}: neither CSV nor NDJSON by its extension {other:?}",
            path.display()
        ),
    };
    let events = events.with_context(|| format!("in {}", path.display()))?;
    ensure!(!events.is_empty(), "{} holds no events", path.display());
    Ok(by_target(events))
}

fn by_target(events: Vec<Event>) -> Vec<Queue> {
    let mut numbers: HashMap<Target, usize> = HashMap::new();
    for event in &events {
        let next = numbers.len();
        let number = *numbers.entry(event.target.clone()).or_insert(next);
        if let Kind::Update(previous) = &event.kind {
            let joined = *numbers.entry(previous.clone()).or_insert(number);
            if joined != number {
                let others = numbers.values_mut().filter(|other| **other == joined);
                for other in others {
                    *other = number;
                }
            }
        }
    }
    let mut queues: BTreeMap<usize, Queue> = BTreeMap::new();
    for event in events {
        let number = numbers[&event.target];
        queues.entry(number).or_default().push(event);
    }
    queues.into_values().collect()
}

/// Moves all events by the same length, so that the last lies `ago` ms before `now`. Returns the
/// length in ms.
pub(crate) fn shift(queues: &mut [Queue], now: i64, ago: i64) -> i64 {
    let last = queues
        .iter()
        .flatten()
        .map(|event| event.timestamp)
        .max()
        .unwrap_or_default();
    let length = now - ago - last;
    for event in queues.iter_mut().flatten() {
        event.timestamp += length;
    }
    length
}

/// The first moment of all.
pub(crate) fn earliest(queues: &[Queue]) -> Option<i64> {
    queues.iter().flatten().map(|event| event.timestamp).min()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn event(instance: &str, timestamp: i64) -> Event {
        let mut target = Target::default();
        target.0[5] = instance.to_owned();
        let fields = json!({ "resource_instance_id": instance });
        Event {
            kind: Kind::Start,
            timestamp,
            target,
            fields,
            after_sampled: false,
        }
    }

    #[test]
    fn keeps_the_order_of_each_target() {
        let queues = by_target(vec![event("a", 3), event("b", 2), event("a", 1)]);
        assert_eq!(
            queues,
            [vec![event("a", 3), event("a", 1)], vec![event("b", 2)]]
        );
    }

    #[test]
    fn keeps_the_order_of_targets_that_an_update_joins() {
        let mut update = event("b", 3);
        update.kind = Kind::Update(event("a", 0).target);
        let all = [event("b", 1), event("a", 2), update, event("b", 4)];
        let [first, second, third, last] = all.clone();
        let queues = by_target(vec![first, event("c", 0), second, third, last]);
        assert_eq!(queues, [all.to_vec(), vec![event("c", 0)]]);
    }

    #[test]
    fn shifts_so_that_the_last_lies_a_while_ago() {
        let mut queues = vec![vec![event("a", 10), event("a", 50)], vec![event("b", 30)]];
        assert_eq!(shift(&mut queues, 1000, 100), 850);
        let moments: Vec<i64> = queues
            .iter()
            .flatten()
            .map(|event| event.timestamp)
            .collect();
        assert_eq!(moments, [860, 900, 880]);
        assert_eq!(earliest(&queues), Some(860));
    }

    #[test]
    fn a_body_has_the_timestamp() {
        let expected = json!({ "timestamp": 7, "resource_instance_id": "a" });
        assert_eq!(event("a", 7).body(), expected);
    }

    #[test]
    fn the_example_of_the_repository_can_be_read() {
        let path = sampler_testkit::workspace_dir().join("examples/events.ndjson");
        let now = 1_700_000_000_000;
        let queues = read(&path, now).unwrap();
        assert!(queues.len() >= 8);
        assert!(queues.iter().flatten().all(|event| event.timestamp < now));
        assert!(queues.iter().flatten().any(|event| event.after_sampled));
    }
}
