//! Events: which come next, and what they look like on the wire.

use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Result;
use sampler_domain::{
    Id, Measure, Measures, Quantity, Span, SpanId, StartEvent, Target, Timestamp,
};
use sampler_store::{Arrival, NewSpan};
use sampler_testkit::build::Kind;
use sampler_testkit::rng::mix;
use serde_json::Value;

use crate::template::{START_TEXT, STOP_TEXT, Template, Values};

/// The resource of all events but those of a quiet client.
const RESOURCE: &str = "postgresql";

/// The fields of a target; the signs are filled in (see [`Template`]). They are as long as the ids of
/// Cloud Foundry are.
const TARGET: [&str; 6] = [
    "6f2d4b8a-1c3e-4d5f-8a9b-0000000000##",
    "1b7e9c20-5a64-4f0d-b3c8-000000000###",
    "d94a0f6e-82b1-4c75-a1e6-############",
    RESOURCE,
    "v9.6-large",
    "8a5c1f0e-3b7d-4c2e-9f61-############",
];

/// The id of a start event.
pub(crate) const START_ID: &str = "3c0b7a91-64de-4a1f-8f25-############";
/// The id of a stop event.
pub(crate) const STOP_ID: &str = "e17f52c4-9a0d-4b86-9d3c-############";
/// The `correlation_id` of a span that is open.
pub(crate) const OPEN: &str = "00000000-0000-0000-0000-000000000000";

/// A day in ms.
pub(crate) const DAY: i64 = 86_400_000;
/// How long spans last in ms; also how long before now the first one starts.
const LENGTH: i64 = 3_600_000;

/// One event, about the target of that number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    /// What it says.
    pub(crate) kind: Kind,
    /// About which target.
    pub(crate) number: u64,
}

/// Which events come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Mix {
    /// Starts of new targets.
    Starts,
    /// Stops of targets that were started before.
    Stops,
}

impl Mix {
    pub(crate) const ALL: [Self; 2] = [Self::Starts, Self::Stops];
}

/// Hands out events to the senders, each once.
#[derive(Debug)]
pub(crate) struct Feed {
    mix: Mix,
    handed_out: AtomicU64,
    limit: u64,
    first_start: u64,
    first_stop: u64,
}

impl Feed {
    /// Starts count up from `first_start`; there are `open` spans to stop, from `first_stop` on.
    pub(crate) fn new(mix: Mix, first_start: u64, first_stop: u64, open: u64) -> Self {
        let limit = match mix {
            Mix::Starts => u64::MAX,
            Mix::Stops => open,
        };
        Self {
            mix,
            handed_out: AtomicU64::new(0),
            limit,
            first_start,
            first_stop,
        }
    }

    /// At most this many events.
    #[must_use]
    pub(crate) fn at_most(mut self, events: u64) -> Self {
        self.limit = self.limit.min(events);
        self
    }

    /// The next event; none when all were handed out.
    pub(crate) fn next(&self) -> Option<Event> {
        let index = self.handed_out.fetch_add(1, Ordering::Relaxed);
        if index >= self.limit {
            return None;
        }
        let (kind, number) = match self.mix {
            Mix::Starts => (Kind::Start, self.first_start + index),
            Mix::Stops => (Kind::Stop, self.first_stop + index),
        };
        Some(Event { kind, number })
    }
}

/// The moments of events: one ms apart, the first an hour before now.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    first: i64,
    now: i64,
}

impl Times {
    /// For a run that begins now.
    pub(crate) fn beginning(now: i64) -> Self {
        Self {
            first: now - 3 * LENGTH,
            now,
        }
    }

    /// Of spans that are so many days behind.
    pub(crate) fn behind(now: i64, days: i64) -> Self {
        Self {
            first: now.div_euclid(DAY) * DAY - days * DAY,
            now,
        }
    }

    /// The values of the target of that number.
    pub(crate) fn values(self, number: u64) -> Values {
        let start = self.first + i64::try_from(number).unwrap_or(0);
        Values {
            number,
            start,
            due_at: (start.div_euclid(DAY) + 1) * DAY,
            now: self.now,
            stop: start + LENGTH,
        }
    }
}

/// The requests of events, as bytes.
#[derive(Clone, Debug)]
pub(crate) struct Requests {
    start: Template,
    stop: Template,
}

impl Requests {
    /// For a server at that address.
    pub(crate) fn new(address: &str) -> Self {
        Self::of_resource(address, RESOURCE)
    }

    /// The same of another resource.
    pub(crate) fn of_resource(address: &str, resource: &str) -> Self {
        let start = format!(
            r#"{{"id":"{START_ID}","timestamp":{START_TEXT},{},"measured_usage":[{{"measure":"memory","quantity":512}}]}}"#,
            target_json(resource)
        );
        let stop = format!(
            r#"{{"id":"{STOP_ID}","timestamp":{STOP_TEXT},{}}}"#,
            target_json(resource)
        );
        Self {
            start: request(address, Kind::Start, &start),
            stop: request(address, Kind::Stop, &stop),
        }
    }

    /// The request of that kind.
    pub(crate) fn of(&self, kind: Kind) -> &Template {
        match kind {
            Kind::Start => &self.start,
            Kind::Stop => &self.stop,
        }
    }
}

/// The span of a start, as a receiver makes it.
pub(crate) fn new_span(values: &Values) -> Result<NewSpan> {
    let filled = |text: &str| {
        let bytes = Template::new(text.as_bytes().to_vec()).filled(values);
        Id::new(String::from_utf8(bytes)?).map_err(anyhow::Error::from)
    };
    let [organization, space, consumer, resource, plan, instance] = TARGET.map(filled);
    let memory = Measure::new("memory", Quantity::new(Value::from(512))?)?;
    let event = StartEvent {
        id: Some(filled(START_ID)?),
        timestamp: Timestamp::new(values.start)?,
        target: Target {
            organization_id: organization?,
            space_id: space?,
            consumer_id: consumer?,
            resource_id: resource?,
            plan_id: plan?,
            resource_instance_id: instance?,
        },
        measures: Measures::from_store(vec![memory]),
    };
    Ok(NewSpan {
        span: Span::open(SpanId::ObjectId(object_id(values)), event),
        due_at: Timestamp::new(values.due_at)?,
        now: Timestamp::new(values.now)?,
        may_overlap: true,
        arrival: Arrival::Alone,
    })
}

/// The time in seconds, then bytes without order.
fn object_id(values: &Values) -> [u8; 12] {
    let mut id = [0; 12];
    let seconds = u32::try_from(values.now / 1000).unwrap_or(u32::MAX);
    id[..4].copy_from_slice(&seconds.to_be_bytes());
    id[4..].copy_from_slice(&mix(values.number).to_be_bytes());
    id
}

fn target_json(resource: &str) -> String {
    let members = Target::FIELDS.into_iter().zip(TARGET).map(|(name, value)| {
        let value = if value == RESOURCE { resource } else { value };
        format!(r#""{name}":"{value}""#)
    });
    members.collect::<Vec<_>>().join(",")
}

fn request(address: &str, kind: Kind, body: &str) -> Template {
    let (path, length) = (kind.path(), body.len());
    let request = format!(
        "POST {path} HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\n\
         content-length: {length}\r\n\r\n{body}"
    );
    Template::new(request.into_bytes())
}

/// A start as a line of a batch.
pub(crate) fn batch_line() -> Template {
    let line = format!(
        "{{\"type\":\"start\",\"id\":\"{START_ID}\",\"timestamp\":{START_TEXT},{},\
         \"measured_usage\":[{{\"measure\":\"memory\",\"quantity\":512}}]}}\n",
        target_json(RESOURCE)
    );
    Template::new(line.into_bytes())
}

/// Appends the request of a batch with these lines.
pub(crate) fn batch_request(address: &str, lines: &[u8], into: &mut Vec<u8>) {
    let length = lines.len();
    let head = format!(
        "POST /v1/events HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/x-ndjson\r\n\
         content-length: {length}\r\n\r\n"
    );
    into.extend_from_slice(head.as_bytes());
    into.extend_from_slice(lines);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_event_is_handed_out_once() {
        let feed = Feed::new(Mix::Stops, 0, 5, 2);
        let events: Vec<Event> = std::iter::from_fn(|| feed.next()).collect();
        let stop = |number| Event {
            kind: Kind::Stop,
            number,
        };
        assert_eq!(events, [stop(5), stop(6)]);
        assert!(Feed::new(Mix::Starts, 0, 0, 0).at_most(0).next().is_none());
    }

    #[test]
    fn requests_say_how_long_they_are() {
        let requests = Requests::new("127.0.0.1:1");
        let values = Times::beginning(1_800_000_000_000).values(42);
        for (kind, moment) in [(Kind::Start, values.start), (Kind::Stop, values.stop)] {
            let request = String::from_utf8(requests.of(kind).filled(&values)).unwrap();
            let (head, body) = request.split_once("\r\n\r\n").unwrap();
            let length = format!("content-length: {}", body.len());
            assert!(head.contains(&length), "{head}");
            let body: Value = serde_json::from_str(body).unwrap();
            assert_eq!(body["timestamp"].as_i64(), Some(moment));
            let id = body["resource_instance_id"].as_str().unwrap();
            assert_eq!((id.len(), id.contains('#')), (36, false));
        }
    }

    #[test]
    fn spans_stop_after_they_start_and_before_now() {
        let now = 1_800_000_000_000;
        for number in [0, 1, 2_000_000] {
            let values = Times::beginning(now).values(number);
            assert!(values.start < values.stop && values.stop < now, "{number}");
            assert!(values.due_at > values.start && values.due_at % DAY == 0);
        }
    }
}
