//! Spans as documents: figure 6.1 of the paper, with what `docs/data-model.md` adds. Our programs alone
//! write and read them; what the original Sampler has written is converted first (`takeover.rs`).

use std::collections::BTreeMap;

use bson::oid::ObjectId;
use bson::raw::{RawBsonRef, RawDocumentBuf};
use bson::spec::BinarySubtype;
use bson::{Binary, Bson};
use sampler_domain::{
    CauseId, ClientId, Id, Key, Measure, Measures, Quantity, Span, SpanId, Target, Timestamp,
};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use crate::processing::ProcessingDocument;
use crate::raw::{Unreadable, unreadable};

/// The `correlation_id` of open spans. With it, `unique_span` allows one open span of a target.
pub(crate) const OPEN: &str = "00000000-0000-0000-0000-000000000000";

#[derive(Serialize, Deserialize)]
pub(crate) struct SpanDocument {
    #[serde(rename = "_id")]
    id: Bson,
    target: TargetDocument,
    #[serde(deserialize_with = "stored_measures")]
    measured_usage: Measures,
    start: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    start_dedup_id: Option<StoredId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    start_client: Option<String>,
    end: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    end_dedup_id: Option<StoredId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    stop_client: Option<String>,
    processing: ProcessingDocument,
}

/// An id that is in the store, whatever it is.
#[derive(Clone, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
struct StoredId(Id);

impl From<String> for StoredId {
    fn from(text: String) -> Self {
        Self(Id::from_store(text))
    }
}

impl From<StoredId> for String {
    fn from(id: StoredId) -> Self {
        id.0.into()
    }
}

#[derive(Clone, Serialize, Deserialize)]
#[expect(clippy::struct_field_names, reason = "they are those of the paper")]
pub(crate) struct TargetDocument {
    organization_id: StoredId,
    space_id: StoredId,
    consumer_id: StoredId,
    resource_id: StoredId,
    plan_id: StoredId,
    resource_instance_id: StoredId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    correlation_id: Option<String>,
}

/// A measure that is in the store, whatever it is.
#[derive(Deserialize)]
struct StoredMeasure {
    measure: StoredId,
    #[serde(default)]
    quantity: Value,
}

/// Reads measures that are in the store.
pub(crate) fn stored_measures<'d, D: Deserializer<'d>>(reader: D) -> Result<Measures, D::Error> {
    let list: Vec<StoredMeasure> = Deserialize::deserialize(reader)?;
    let measures = list.into_iter().map(|it| Measure {
        measure: it.measure.0,
        quantity: Quantity::from_store(it.quantity),
    });
    Ok(Measures::from_store(measures.collect()))
}

impl SpanDocument {
    /// The document of a span with the key of its target, changed at a time for the last time.
    pub(crate) fn new(span: &Span, key: Key, correlation_id: &str, changed_at: Timestamp) -> Self {
        let client = |client: &Option<ClientId>| client.as_ref().map(|it| it.as_str().to_owned());
        Self {
            id: id_to_bson(&span.id),
            target: TargetDocument {
                correlation_id: Some(correlation_id.to_owned()),
                ..TargetDocument::new(&span.target)
            },
            measured_usage: span.measures.clone(),
            start: span.start,
            start_dedup_id: span.start_id.clone().map(StoredId),
            start_client: client(&span.start_client),
            end: span.end,
            end_dedup_id: span.end_id.clone().map(StoredId),
            stop_client: client(&span.stop_client),
            processing: ProcessingDocument::new(span, key, changed_at),
        }
    }

    /// The span, and its `correlation_id`.
    pub(crate) fn into_span_with_correlation(mut self) -> Result<(Span, String), Unreadable> {
        let correlation_id = self.target.correlation_id.take().unwrap_or_default();
        Ok((self.into_span()?, correlation_id))
    }

    pub(crate) fn into_span(self) -> Result<Span, Unreadable> {
        let client = |client: Option<String>| ClientId::new(&client?);
        Ok(Span {
            id: id_from_bson(&self.id)?,
            target: self.target.into_target(),
            measures: self.measured_usage,
            start: self.start,
            start_id: self.start_dedup_id.map(|id| id.0),
            start_client: client(self.start_client),
            end: self.end,
            end_id: self.end_dedup_id.map(|id| id.0),
            stop_client: client(self.stop_client),
            processing: self.processing.into_processing(),
        })
    }
}

impl TargetDocument {
    pub(crate) fn new(target: &Target) -> Self {
        let id = |id: &Id| StoredId(id.clone());
        Self {
            organization_id: id(&target.organization_id),
            space_id: id(&target.space_id),
            consumer_id: id(&target.consumer_id),
            resource_id: id(&target.resource_id),
            plan_id: id(&target.plan_id),
            resource_instance_id: id(&target.resource_instance_id),
            correlation_id: None,
        }
    }

    pub(crate) fn into_target(self) -> Target {
        Target {
            organization_id: self.organization_id.0,
            space_id: self.space_id.0,
            consumer_id: self.consumer_id.0,
            resource_id: self.resource_id.0,
            plan_id: self.plan_id.0,
            resource_instance_id: self.resource_instance_id.0,
        }
    }
}

/// Bytes that measures take in a document, and a few more.
pub(crate) fn measures_size(measures: &Measures) -> usize {
    let list = BTreeMap::from([("measured_usage", measures)]);
    bson::serialize_to_vec(&list).map_or(0, |bytes| bytes.len())
}

/// The document of a span that is opened (figure 6.4).
///
/// # Errors
/// If a name of the provider contains what BSON does not allow.
pub(crate) fn open_span_document(
    span: &Span,
    key: Key,
    now: Timestamp,
) -> Result<RawDocumentBuf, bson::error::Error> {
    bson::serialize_to_raw_document_buf(&SpanDocument::new(span, key, OPEN, now))
}

pub(crate) fn moment(timestamp: Timestamp) -> Bson {
    Bson::Int64(timestamp.as_millis())
}

pub(crate) fn key_to_bson(key: Key) -> Bson {
    Bson::Binary(key_as_binary(key))
}

pub(crate) fn key_as_binary(key: Key) -> Binary {
    Binary {
        subtype: BinarySubtype::Generic,
        bytes: key.bytes().to_vec(),
    }
}

pub(crate) fn partition_number(key: Key) -> i32 {
    i32::try_from(key.partition()).expect("there are 64 partitions")
}

pub(crate) fn cause_to_bson(cause: CauseId) -> Bson {
    Bson::Binary(cause_as_binary(cause))
}

pub(crate) fn cause_as_binary(cause: CauseId) -> Binary {
    Binary {
        subtype: BinarySubtype::Generic,
        bytes: uuid::Uuid::from(cause).into_bytes().to_vec(),
    }
}

pub(crate) fn id_to_bson(id: &SpanId) -> Bson {
    match id {
        SpanId::ObjectId(bytes) => Bson::ObjectId(ObjectId::from_bytes(*bytes)),
        SpanId::Text(text) => Bson::String(text.clone()),
    }
}

pub(crate) fn raw_id(id: &SpanId) -> RawBsonRef<'_> {
    match id {
        SpanId::ObjectId(bytes) => ObjectId::from_bytes(*bytes).into(),
        SpanId::Text(text) => text.as_str().into(),
    }
}

pub(crate) fn id_from_bson(bson: &Bson) -> Result<SpanId, Unreadable> {
    match bson {
        Bson::ObjectId(id) => Ok(SpanId::ObjectId(id.bytes())),
        Bson::String(text) => Ok(SpanId::Text(text.clone())),
        _ => Err(unreadable("the _id is neither an ObjectId nor a string")),
    }
}

#[cfg(test)]
mod tests {
    use bson::Document;
    use sampler_domain::number;

    use super::*;

    /// The text of a number, as a usage has it that was made from what is kept of it.
    fn posted(text: &str) -> (Bson, String) {
        let number = number::read(text).expect("a number that can be kept");
        let quantity = Quantity::new(Value::Number(number)).expect("a quantity");
        let measure = Measure::new("m", quantity).expect("a measure");
        let written = bson::serialize_to_vec(&measure).expect("a document");
        let kept = Document::from_reader(&*written).expect("what was written");
        let read: StoredMeasure = bson::deserialize_from_slice(&written).expect("the same");
        let kept = kept.get("quantity").expect("it is there");
        (kept.clone(), read.quantity.to_string())
    }

    #[test]
    fn doubles_are_posted_bit_for_bit_as_they_were_sent() {
        let mut bits = 0_u64;
        for _ in 0..100_000 {
            bits = bits.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let double = f64::from_bits(bits ^ (bits >> 29));
            if double.is_finite() {
                let (kept, text) = posted(&format!("{double:e}"));
                assert_eq!(kept.as_f64().map(f64::to_bits), Some(double.to_bits()));
                assert_eq!(text.parse().map(f64::to_bits), Ok(double.to_bits()));
            }
        }
    }

    #[test]
    fn integers_are_kept_as_they_were_sent_and_greater_ones_as_doubles() {
        for text in ["512", "9007199254740992", "-9007199254740992"] {
            let (kept, posted) = posted(text);
            assert!(matches!(kept, Bson::Int64(_)), "{kept}");
            assert_eq!(posted, text);
        }
        for text in ["9007199254740994", "10000000000000000000000"] {
            let (kept, posted) = posted(text);
            assert!(matches!(kept, Bson::Double(_)), "{kept}");
            assert_eq!(posted.parse::<f64>(), text.parse(), "{posted}");
        }
    }
}
