//! The usage documents that the upstream is given.

use serde::Serialize;
use uuid::Uuid;

use crate::measure::DURATION;
use crate::target::push_text;
use crate::{
    Delivery, Entry, Id, Interval, Measure, Measures, Quantity, Span, SpanId, Target, Timestamp,
};

/// Sampler's own namespace for name-based ids (UUID version 5).
const NAMESPACE: Uuid = Uuid::from_u128(0x5a1c_86d0_4f0e_5b7e_9d52_0c9b_7e3a_11f4);

/// A discrete usage, in the fields and the order in which it is sent (section 5.1 of the paper).
///
/// It follows from the span and the planned interval alone. So a retry is the same bytes; as a CloudEvent, as
/// long as the settings of its source and type stay the same.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Usage {
    /// The `usage_guid`, which Abacus calls so. By it the upstream recognises a repeat, together with the target,
    /// `start` and `end`.
    pub dedup_id: String,
    /// The midpoint of the interval, ms since epoch.
    pub start: Timestamp,
    /// The same as `start`.
    pub end: Timestamp,
    #[serde(flatten)]
    pub target: Target,
    /// The measures of the start event, untouched, and `duration`.
    pub measured_usage: Vec<Measure>,
    /// The interval that it covers. It is not sent to the upstream.
    #[serde(skip)]
    pub interval: Interval,
}

impl Usage {
    pub fn new(span: &Span, delivery: &Delivery) -> Self {
        Self::of(
            &delivery.usage_guid,
            delivery.interval,
            &span.target,
            &span.measures,
        )
    }

    /// The usage of an entry of the ledger. A usage that is sent again has the same bytes, also
    /// when the span is gone.
    pub fn of_entry(entry: &Entry) -> Self {
        Self::of(
            &entry.usage_guid,
            entry.interval,
            &entry.target,
            &entry.measures,
        )
    }

    fn of(guid: &str, interval: Interval, target: &Target, measures: &Measures) -> Self {
        let midpoint = interval.midpoint();
        let mut measured_usage = measures.as_slice().to_vec();
        measured_usage.push(Measure {
            measure: Id::from_store(DURATION),
            quantity: Quantity::from_store(interval.duration().into()),
        });
        Self {
            dedup_id: guid.to_owned(),
            start: midpoint,
            end: midpoint,
            target: target.clone(),
            measured_usage,
            interval,
        }
    }
}

/// The id of the usage for `interval` of `span`. It is derived from the span and the interval:
/// after a database is restored from a backup, the same ids are planned, and the upstream recognises
/// them.
///
/// A span without a start id is identified by its document's `_id`: two such spans of one
/// target can start at the same time, and their usages are not repeats of each other.
pub fn usage_guid(span: &Span, interval: Interval) -> String {
    let mut name = span.target.to_bytes();
    name.extend_from_slice(&span.start.as_millis().to_be_bytes());
    match (&span.start_id, &span.id) {
        (Some(start_id), _) => push_tagged(&mut name, b'e', start_id.as_str()),
        (None, SpanId::ObjectId(_)) => push_tagged(&mut name, b'o', &span.id.to_string()),
        (None, SpanId::Text(text)) => push_tagged(&mut name, b't', text),
    }
    name.extend_from_slice(&interval.start.as_millis().to_be_bytes());
    name.extend_from_slice(&interval.end.as_millis().to_be_bytes());
    Uuid::new_v5(&NAMESPACE, &name).to_string()
}

fn push_tagged(name: &mut Vec<u8>, tag: u8, text: &str) {
    name.push(tag);
    push_text(name, text);
}
