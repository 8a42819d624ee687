//! Events: which come next, and what they look like on the wire.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

use sampler_testkit::build::{Kind, Target};

/// The resource of all events but those of a quiet client.
const RESOURCE: &str = "postgresql";
/// A day in ms.
pub(crate) const DAY: i64 = 86_400_000;

/// The multiplier that permutes numbers: consecutive numbers get ids without order, as real ones are, so
/// that the indexes are filled in no order.
const MULTIPLIER: u128 = 618_033_988_749;
/// One more than the greatest number.
const NUMBERS: u128 = 1_000_000_000_000;

/// One event, about the target of that number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) kind: Kind,
    pub(crate) number: u64,
}

/// Hands out events to the senders, each once.
#[derive(Debug)]
pub(crate) struct Feed {
    kind: Kind,
    first: u64,
    count: u64,
    handed_out: AtomicU64,
}

impl Feed {
    /// So many events, of the targets from `first` on.
    pub(crate) fn new(kind: Kind, first: u64, count: u64) -> Self {
        Self {
            kind,
            first,
            count,
            handed_out: AtomicU64::new(0),
        }
    }

    /// The next event; none when all were handed out.
    pub(crate) fn next(&self) -> Option<Event> {
        let index = self.handed_out.fetch_add(1, Ordering::Relaxed);
        (index < self.count).then_some(Event {
            kind: self.kind,
            number: self.first + index,
        })
    }
}

/// The requests to a server about the targets of a resource.
#[derive(Clone, Debug)]
pub(crate) struct Requests {
    pub(crate) address: String,
    resource: &'static str,
    /// When the span of the first number starts; others start one ms apart. Ms since epoch.
    first: i64,
    /// How long each lasts, in ms.
    length: i64,
}

impl Requests {
    pub(crate) fn new(address: &str, first: i64, length: i64) -> Self {
        Self {
            address: address.to_owned(),
            resource: RESOURCE,
            first,
            length,
        }
    }

    /// The same of another resource.
    pub(crate) fn of_resource(self, resource: &'static str) -> Self {
        Self { resource, ..self }
    }

    /// The request of one event.
    pub(crate) fn single(&self, event: Event) -> String {
        let body = self.body(event, "");
        self.request(event.kind.path(), "application/json", &body)
    }

    /// The request of a batch of starts.
    pub(crate) fn batch(&self, starts: &[Event]) -> String {
        let line = |start: &Event| self.body(*start, r#""type":"start","#) + "\n";
        let body: String = starts.iter().map(line).collect();
        self.request("/v1/events", "application/x-ndjson", &body)
    }

    fn body(&self, Event { kind, number }: Event, begin: &str) -> String {
        let start = self.first + i64::try_from(number).unwrap_or(0);
        let (id, moment, end) = match kind {
            Kind::Start => (
                start_id(number),
                start,
                r#","measured_usage":[{"measure":"memory","quantity":512}]}"#,
            ),
            Kind::Stop => (stop_id(number), start + self.length, "}"),
        };
        let mut body = format!(r#"{{{begin}"id":"{id}","timestamp":{moment}"#);
        for (name, value) in Target::FIELDS.iter().zip(target(number, self.resource)) {
            let _ = write!(body, r#","{name}":"{value}""#);
        }
        body + end
    }

    fn request(&self, path: &str, media_type: &str, body: &str) -> String {
        let (address, length) = (&self.address, body.len());
        format!(
            "POST {path} HTTP/1.1\r\nhost: {address}\r\ncontent-type: {media_type}\r\n\
             content-length: {length}\r\n\r\n{body}"
        )
    }
}

/// Another number for each number.
fn permuted(number: u64) -> u128 {
    u128::from(number) * MULTIPLIER % NUMBERS
}

fn start_id(number: u64) -> String {
    format!("3c0b7a91-64de-4a1f-8f25-{:012}", permuted(number))
}

fn stop_id(number: u64) -> String {
    format!("e17f52c4-9a0d-4b86-9d3c-{:012}", permuted(number))
}

/// The fields of a target. They are as long as the ids of Cloud Foundry are.
fn target(number: u64, resource: &str) -> [String; 6] {
    let number = permuted(number);
    [
        format!("6f2d4b8a-1c3e-4d5f-8a9b-0000000000{:02}", number % 100),
        format!("1b7e9c20-5a64-4f0d-b3c8-000000000{:03}", number % 1_000),
        format!("d94a0f6e-82b1-4c75-a1e6-{number:012}"),
        resource.to_owned(),
        "v9.6-large".to_owned(),
        format!("8a5c1f0e-3b7d-4c2e-9f61-{number:012}"),
    ]
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn each_event_is_handed_out_once() {
        let feed = Feed::new(Kind::Stop, 5, 2);
        let numbers: Vec<u64> = std::iter::from_fn(|| feed.next())
            .map(|event| event.number)
            .collect();
        assert_eq!(numbers, [5, 6]);
    }

    #[test]
    fn requests_say_how_long_they_are_and_no_two_are_of_one_target() {
        let now = 1_800_000_000_000;
        let requests = Requests::new("127.0.0.1:1", now - 10_000_000, 3_600_000);
        let mut instances = HashSet::new();
        for (number, kind) in [(1, Kind::Start), (2, Kind::Stop), (2_000_000, Kind::Stop)] {
            let request = requests.single(Event { kind, number });
            let (head, body) = request.split_once("\r\n\r\n").unwrap();
            let length = format!("content-length: {}", body.len());
            assert!(head.contains(&length), "{head}");
            let body: serde_json::Value = serde_json::from_str(body).unwrap();
            assert!(body["timestamp"].as_i64().unwrap() < now, "{body}");
            let instance = body["resource_instance_id"].as_str().unwrap();
            assert_eq!(instance.len(), 36);
            assert!(instances.insert(instance.to_owned()));
        }
    }
}
