//! Spans as documents: figure 6.1 of the paper, as the original Sampler writes it (times as
//! doubles, nulls for what is absent) and as we do (times as 64-bit integers).

use bson::oid::ObjectId;
use bson::raw::{RawArrayBuf, RawBson, RawBsonRef, RawDocumentBuf, cstr};
use bson::spec::BinarySubtype;
use bson::{Binary, Bson, Document, doc};
use sampler_domain::partition::partition_of;
use sampler_domain::{
    ClientId, Cut, Granularity, Id, Interval, Key, LastError, Measure, Measures, Planned,
    Processing, Quantity, Span, SpanId, Target, Timestamp,
};
use sampler_store::NewSpan;
use serde_json::Value;
use uuid::Uuid;

use crate::entry_document::status_in;
use crate::suspension_document::{read_probe, read_refusals, read_skip, read_suspension};
use crate::totals::{read_resent, read_totals};
use crate::uncounted;

/// The `correlation_id` of open spans. With it, `unique_span` allows one open span of a target.
pub(crate) const OPEN: &str = "00000000-0000-0000-0000-000000000000";

/// Room for the document of a span with the usual ids and one measure or two.
const USUAL_BYTES: usize = 1_024;

/// A document that is not a span.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the member {member} {problem}")]
pub(crate) struct Unreadable {
    member: String,
    problem: String,
}

pub(crate) fn unreadable(member: &str, problem: impl Into<String>) -> Unreadable {
    Unreadable {
        member: member.to_owned(),
        problem: problem.into(),
    }
}

/// The document of a span that is opened (figure 6.4), under the key of its target.
///
/// # Errors
/// If a name of the provider contains what BSON does not allow.
pub(crate) fn open_span_document(
    new: &NewSpan,
    key: Key,
) -> Result<RawDocumentBuf, bson::error::Error> {
    let span = &new.span;
    let mut target = target_document(&span.target);
    target.append(cstr!("correlation_id"), OPEN);
    let mut processing = empty_document();
    processing.append(cstr!("complete"), false);
    processing.append(cstr!("last_interval"), interval(span.processing.last));
    processing.append(cstr!("planned_interval"), RawBsonRef::Null);
    processing.append(cstr!("last_change_at"), new.now.as_millis());
    processing.append(cstr!("version"), 1_i32);
    processing.append(cstr!("due_at"), new.due_at.as_millis());
    processing.append(cstr!("partition"), partition_as_i32(key.partition()));
    processing.append(cstr!("key"), key_as_binary(key));
    let mut document = empty_document();
    document.append(cstr!("_id"), raw_id(&span.id));
    document.append(cstr!("target"), target);
    document.append(cstr!("measured_usage"), measured_usage(&span.measures)?);
    document.append(cstr!("start"), span.start.as_millis());
    document.append(cstr!("end"), RawBsonRef::Null);
    document.append(cstr!("processing"), processing);
    if let Some(id) = &span.start_id {
        document.append(cstr!("start_dedup_id"), id.as_str());
    }
    if let Some(client) = &span.start_client {
        document.append(cstr!("start_client"), client.as_str());
    }
    Ok(document)
}

pub(crate) fn target_document(target: &Target) -> RawDocumentBuf {
    let mut document = empty_document();
    document.append(cstr!("organization_id"), target.organization_id.as_str());
    document.append(cstr!("space_id"), target.space_id.as_str());
    document.append(cstr!("consumer_id"), target.consumer_id.as_str());
    document.append(cstr!("resource_id"), target.resource_id.as_str());
    document.append(cstr!("plan_id"), target.plan_id.as_str());
    let instance = target.resource_instance_id.as_str();
    document.append(cstr!("resource_instance_id"), instance);
    document
}

pub(crate) fn measured_usage(measures: &Measures) -> Result<RawArrayBuf, bson::error::Error> {
    let mut all = RawArrayBuf::new();
    for measure in measures.as_slice() {
        let mut document = empty_document();
        document.append(cstr!("measure"), measure.measure.as_str());
        let quantity = RawBson::try_from(to_bson(measure.quantity.as_json()))?;
        document.append(cstr!("quantity"), quantity);
        all.push(document);
    }
    Ok(all)
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

/// The members of `processing` that follow from the key: itself, and the partition.
pub(crate) fn placed_by(key: Key) -> Document {
    doc! {
        "processing.partition": partition_as_i32(key.partition()),
        "processing.key": key_to_bson(key),
    }
}

pub(crate) fn partition_number(target: &Target) -> i32 {
    partition_as_i32(partition_of(target))
}

fn partition_as_i32(partition: u32) -> i32 {
    i32::try_from(partition).expect("there are 64 partitions")
}

pub(crate) fn interval(interval: Interval) -> RawDocumentBuf {
    let mut document = empty_document();
    document.append(cstr!("start"), interval.start.as_millis());
    document.append(cstr!("end"), interval.end.as_millis());
    document
}

pub(crate) fn planned(planned: &Planned) -> RawDocumentBuf {
    let mut document = executed(planned);
    document.append(cstr!("planned_at"), planned.planned_at.as_millis());
    if let Some(granularity) = planned.granularity {
        document.append(cstr!("dimension"), granularity.name());
    }
    if let Some(by) = planned.posts_end_by {
        document.append(cstr!("posts_end_by"), by.as_millis());
    }
    if let Some(reason) = planned.withheld {
        document.append(cstr!("withheld"), uncounted::reason(reason));
    }
    document
}

/// A planned interval once it is executed.
pub(crate) fn executed(planned: &Planned) -> RawDocumentBuf {
    let mut document = interval(planned.interval);
    document.append(cstr!("usage_guid"), planned.usage_guid.as_str());
    document
}

/// A document without members, and room for the usual ones of a statement.
pub(crate) fn empty_document() -> RawDocumentBuf {
    let mut bytes = Vec::with_capacity(USUAL_BYTES);
    // Its length, and the zero that ends it.
    bytes.extend([5, 0, 0, 0, 0]);
    RawDocumentBuf::from_bytes(bytes).expect("a document")
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

pub(crate) fn raw_moment_or_null(timestamp: Option<Timestamp>) -> RawBsonRef<'static> {
    timestamp.map_or(RawBsonRef::Null, |it| it.as_millis().into())
}

pub(crate) fn id_from_bson(bson: Option<&Bson>) -> Result<SpanId, Unreadable> {
    match bson {
        Some(Bson::ObjectId(id)) => Ok(SpanId::ObjectId(id.bytes())),
        Some(Bson::String(text)) => Ok(SpanId::Text(text.clone())),
        _ => Err(unreadable("_id", "is neither an ObjectId nor a string")),
    }
}

/// JSON as BSON, member by member. The `bson` crate's own conversion would read an object such as
/// `{"$oid": …}` as something else.
fn to_bson(value: &Value) -> Bson {
    match value {
        Value::Null => Bson::Null,
        Value::Bool(value) => Bson::Boolean(*value),
        Value::Number(number) => match number.as_i64() {
            Some(integer) => Bson::Int64(integer),
            None => Bson::Double(number.as_f64().unwrap_or(f64::NAN)),
        },
        Value::String(text) => Bson::String(text.clone()),
        Value::Array(items) => Bson::Array(items.iter().map(to_bson).collect()),
        Value::Object(members) => Bson::Document(
            members
                .iter()
                .map(|(name, member)| (name.clone(), to_bson(member)))
                .collect(),
        ),
    }
}

/// BSON as JSON; a double that JSON cannot hold becomes null, which Abacus refuses.
pub(crate) fn to_json(bson: &Bson) -> Value {
    match bson {
        Bson::Boolean(value) => Value::Bool(*value),
        Bson::Int32(integer) => Value::from(*integer),
        Bson::Int64(integer) => Value::from(*integer),
        Bson::Double(double) => Value::from(*double),
        Bson::String(text) => Value::String(text.clone()),
        Bson::Array(items) => Value::Array(items.iter().map(to_json).collect()),
        Bson::Document(members) => Value::Object(
            members
                .iter()
                .map(|(name, bson)| (name.clone(), to_json(bson)))
                .collect(),
        ),
        // Nothing else comes from JSON. A value that was put in by hand is for Abacus to refuse.
        _ => Value::Null,
    }
}

/// The span that a document holds, whoever wrote it.
pub(crate) fn read(document: &Document) -> Result<Span, Unreadable> {
    let processing = member(document, "processing")?;
    let version = read_integer(processing, "version")?;
    let last = read_interval(member(processing, "last_interval")?)?;
    let has_failed = is_failure_of(processing, version);
    let was_refused = has_failed && processing.contains_key("failed_version");
    Ok(Span {
        id: id_from_bson(document.get("_id"))?,
        target: read_target(member(document, "target")?)?,
        measures: read_measures(document)?,
        start: read_moment(document, "start")?,
        start_id: read_event_id(document, "start_dedup_id"),
        start_client: read_client(document, "start_client"),
        end: read_optional_moment(document, "end")?,
        end_id: read_event_id(document, "end_dedup_id"),
        stop_client: read_client(document, "stop_client"),
        processing: Processing {
            complete: processing.get_bool("complete").unwrap_or(false),
            last,
            planned: read_planned(processing)?,
            version,
            attempts: read_attempts(processing)
                .filter(|_| has_failed)
                .unwrap_or(0),
            refusals: read_refusals(processing)
                .filter(|_| was_refused)
                .unwrap_or(0),
            refused_at: read_refused_at(processing).filter(|_| was_refused),
            unanswered: read_integer(processing, "unanswered") == Ok(version),
            last_error: read_last_error(processing).filter(|_| has_failed),
            suspended: read_suspension(processing, version),
            probe: read_probe(processing, version),
            skip: read_skip(processing, version),
            resent: read_resent(processing),
            uncounted: uncounted::read(processing)?,
            cuts: read_cuts(processing)?,
            totals: read_totals(processing, last),
        },
    })
}

/// Whether what is kept of failures is about the planned interval. The original leaves it behind
/// when it executes the interval; it increments the version, and what failed at another version is
/// not what is planned now. Spans that failed before that version was kept count as they always did.
fn is_failure_of(processing: &Document, version: i64) -> bool {
    read_integer(processing, "failed_version").unwrap_or(version) == version
}

/// How often the planned interval has failed.
fn read_attempts(processing: &Document) -> Option<u32> {
    u32::try_from(read_integer(processing, "attempts").ok()?).ok()
}

fn read_refused_at(processing: &Document) -> Option<Timestamp> {
    read_moment(processing, "refused_at").ok()
}

/// Why it failed the last time; or why the span could not be read for a while.
fn read_last_error(processing: &Document) -> Option<LastError> {
    let error = processing.get_document("last_error").ok()?;
    Some(LastError {
        at: read_moment(error, "at").ok()?,
        status: status_in(error),
        error: error.get_str("message").ok()?.to_owned(),
    })
}

/// The condition, as an expression, that a span has failed and not been executed since: the same as
/// a count of attempts that is read to be more than none.
pub(crate) fn has_failed() -> Document {
    let failed_version = doc! { "$ifNull": ["$processing.failed_version", "$processing.version"] };
    doc! { "$and": [
        { "$isNumber": "$processing.attempts" },
        { "$gt": ["$processing.attempts", 0] },
        { "$eq": [failed_version, "$processing.version"] },
    ] }
}

pub(crate) fn member<'a>(document: &'a Document, name: &str) -> Result<&'a Document, Unreadable> {
    document
        .get_document(name)
        .map_err(|_| unreadable(name, "is not an object"))
}

pub(crate) fn read_text<'a>(document: &'a Document, name: &str) -> Result<&'a str, Unreadable> {
    document
        .get_str(name)
        .map_err(|_| unreadable(name, "is not a string"))
}

pub(crate) fn read_target(target: &Document) -> Result<Target, Unreadable> {
    Ok(Target {
        organization_id: member_of_target(target, "organization_id")?,
        space_id: member_of_target(target, "space_id")?,
        consumer_id: member_of_target(target, "consumer_id")?,
        resource_id: member_of_target(target, "resource_id")?,
        plan_id: member_of_target(target, "plan_id")?,
        resource_instance_id: member_of_target(target, "resource_instance_id")?,
    })
}

fn member_of_target(target: &Document, name: &str) -> Result<Id, Unreadable> {
    match target.get(name) {
        Some(Bson::String(text)) => Ok(Id::from_store(text.clone())),
        _ => Err(unreadable(&format!("target.{name}"), "is not a string")),
    }
}

pub(crate) fn read_measures(document: &Document) -> Result<Measures, Unreadable> {
    let Ok(list) = document.get_array("measured_usage") else {
        return Err(unreadable("measured_usage", "is not a list"));
    };
    let measures = list.iter().map(|bson| {
        let (measure, quantity) = read_measure(bson)?;
        let quantity = Quantity::from_store(quantity);
        Some(Measure { measure, quantity })
    });
    let measures: Option<Vec<Measure>> = measures.collect();
    measures
        .map(Measures::from_store)
        .ok_or_else(|| unreadable("measured_usage", "holds something that is not a measure"))
}

pub(crate) fn read_measure(bson: &Bson) -> Option<(Id, Value)> {
    let measure = bson.as_document()?;
    let name = Id::from_store(measure.get_str("measure").ok()?);
    Some((name, measure.get("quantity").map_or(Value::Null, to_json)))
}

pub(crate) fn read_event_id(document: &Document, name: &str) -> Option<Id> {
    match document.get(name)? {
        Bson::String(text) if !text.is_empty() => Some(Id::from_store(text.clone())),
        Bson::Binary(binary) if binary.subtype == BinarySubtype::Uuid => {
            Uuid::from_slice(&binary.bytes)
                .ok()
                .map(|uuid| Id::from_store(uuid.to_string()))
        }
        _ => None,
    }
}

fn read_client(document: &Document, name: &str) -> Option<ClientId> {
    ClientId::new(document.get_str(name).ok()?)
}

pub(crate) fn read_interval(document: &Document) -> Result<Interval, Unreadable> {
    Ok(Interval {
        start: read_moment(document, "start")?,
        end: read_moment(document, "end")?,
    })
}

fn read_planned(processing: &Document) -> Result<Option<Planned>, Unreadable> {
    let document = match processing.get("planned_interval") {
        None | Some(Bson::Null) => return Ok(None),
        Some(Bson::Document(document)) => document,
        Some(_) => return Err(unreadable("planned_interval", "is not an object")),
    };
    let usage_guid = document
        .get_str("usage_guid")
        .map_err(|_| unreadable("planned_interval.usage_guid", "is not a string"))?;
    let interval = read_interval(document)?;
    // The original does not say when: with the last change it made.
    let planned_at =
        read_moment(document, "planned_at").or_else(|_| read_moment(processing, "last_change_at"));
    Ok(Some(Planned {
        interval,
        usage_guid: usage_guid.to_owned(),
        planned_at: planned_at.unwrap_or(interval.end),
        granularity: read_granularity(document),
        posts_end_by: read_optional_moment(document, "posts_end_by")?,
        withheld: match document.get_document("withheld") {
            Ok(reason) => Some(uncounted::read_reason(reason)?),
            Err(_) => None,
        },
    }))
}

/// How the time of a span was cut, as `processing.dimensions` has it.
pub(crate) fn cut(cut: &Cut) -> RawDocumentBuf {
    let mut document = empty_document();
    document.append(cstr!("from"), cut.from.as_millis());
    document.append(cstr!("dimension"), cut.granularity.name());
    document
}

fn read_granularity(document: &Document) -> Option<Granularity> {
    Granularity::from_name(document.get_str("dimension").ok()?)
}

fn read_cuts(processing: &Document) -> Result<Vec<Cut>, Unreadable> {
    let Some(cuts) = processing.get("dimensions") else {
        return Ok(Vec::new());
    };
    let cuts = cuts.as_array().map(|cuts| cuts.iter().map(read_cut));
    let cuts = cuts.and_then(Iterator::collect::<Option<Vec<_>>>);
    cuts.ok_or_else(|| unreadable("dimensions", "is not a list of times and dimensions"))
}

fn read_cut(cut: &Bson) -> Option<Cut> {
    let cut = cut.as_document()?;
    Some(Cut {
        from: read_moment(cut, "from").ok()?,
        granularity: read_granularity(cut)?,
    })
}

pub(crate) fn read_moment(document: &Document, name: &str) -> Result<Timestamp, Unreadable> {
    let millis = read_integer(document, name)?;
    Timestamp::new(millis).map_err(|error| unreadable(name, format!("is not a time: {error}")))
}

pub(crate) fn read_optional_moment(
    document: &Document,
    name: &str,
) -> Result<Option<Timestamp>, Unreadable> {
    match document.get(name) {
        None | Some(Bson::Null) => Ok(None),
        Some(_) => read_moment(document, name).map(Some),
    }
}

/// A whole number in any of the types that it may have been written as.
pub(crate) fn read_integer(document: &Document, name: &str) -> Result<i64, Unreadable> {
    match document.get(name) {
        Some(Bson::Int32(integer)) => Ok(i64::from(*integer)),
        Some(Bson::Int64(integer)) => Ok(*integer),
        #[expect(
            clippy::cast_possible_truncation,
            reason = "whole, and exact up to 2^53"
        )]
        Some(Bson::Double(double)) if double.fract() == 0.0 && double.abs() <= 2_f64.powi(53) => {
            Ok(*double as i64)
        }
        _ => Err(unreadable(name, "is not a whole number")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sampler_domain::number;

    /// The text of a number, as a usage has it that was made from what is kept of it.
    fn posted(text: &str) -> (Bson, String) {
        let number = number::read(text).expect("a number that can be kept");
        let quantity = Quantity::new(Value::Number(number)).expect("a quantity");
        let document = doc! { "quantity": to_bson(quantity.as_json()) };
        let bytes = document.to_vec().expect("a document");
        let kept = Document::from_reader(&*bytes).expect("what was written");
        let kept = kept.get("quantity").expect("it is there");
        (kept.clone(), to_json(kept).to_string())
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

    /// An original's driver reads an int64 beyond 2^53 as an object, which its worker posts as a
    /// text; a double it reads as the number that it is.
    #[test]
    fn integers_are_kept_as_ones_that_every_worker_posts_alike() {
        for text in ["512", "9007199254740992", "-9007199254740992"] {
            let (kept, posted) = posted(text);
            assert!(matches!(kept, Bson::Int64(_)), "{kept}");
            assert_eq!(posted, text);
        }
        for text in [
            "9007199254740994",
            "-9223372036854775808",
            "10000000000000000000000",
        ] {
            let (kept, posted) = posted(text);
            assert!(matches!(kept, Bson::Double(_)), "{kept}");
            assert_eq!(posted.parse::<f64>(), text.parse(), "{posted}");
        }
        // A number that was kept before stays as it is.
        let kept = to_json(&Bson::Int64(9_007_199_254_740_993));
        assert_eq!(kept.to_string(), "9007199254740993");
    }
}
