//! Documents as the original Sampler leaves them: times as doubles, nulls for what is absent, ids of events as
//! texts or UUID binaries.

use bson::spec::BinarySubtype;
use bson::{Bson, Document};
use sampler_domain::{
    Cut, Id, Interval, Measures, Planned, Policy, Processing, Span, Target, Timestamp, next_step,
};
use uuid::Uuid;

use crate::document::{id_from_bson, stored_measures};
use crate::raw::{Unreadable, unreadable};

/// A span of the original, with what only its document says.
pub(crate) struct Original {
    pub(crate) span: Span,
    pub(crate) correlation_id: String,
    pub(crate) changed_at: Timestamp,
}

impl Original {
    /// Reads a document. The span is due as the policy says.
    pub(crate) fn read(
        document: &Document,
        policy: &Policy,
        now: Timestamp,
    ) -> Result<Self, Unreadable> {
        let id = document
            .get("_id")
            .ok_or_else(|| unreadable("there is no _id"));
        let (target, processing) = (member(document, "target")?, member(document, "processing")?);
        let start = moment(document, "start")?;
        let changed_at = moment(processing, "last_change_at").unwrap_or(start);
        let end = match document.get("end") {
            None | Some(Bson::Null) => None,
            Some(_) => Some(moment(document, "end")?),
        };
        let mut span = Span {
            id: id_from_bson(id?)?,
            target: read_target(target)?,
            measures: measures(document)?,
            start,
            start_id: event_id(document, "start_dedup_id"),
            start_client: None,
            end,
            end_id: event_id(document, "end_dedup_id"),
            stop_client: None,
            processing: Processing {
                complete: processing.get_bool("complete").unwrap_or(false),
                last: interval(member(processing, "last_interval")?)?,
                planned: planned(processing, changed_at)?,
                version: integer(processing, "version")?,
                due_at: now,
                cuts: Vec::new(),
                failure: None,
                probe: None,
                excluded: Vec::new(),
                again: Vec::new(),
            },
        };
        // Who samples on from there, and what an operator skips, cut the time so.
        span.processing.cuts = vec![Cut {
            from: span.sampled_to(),
            granularity: policy.granularities.of(&span.target),
        }];
        span.processing.due_at = next_step(&span, now, policy).due_at(now, &span);
        Ok(Self {
            span,
            correlation_id: text(target, "correlation_id")?.to_owned(),
            changed_at,
        })
    }
}

fn planned(processing: &Document, changed_at: Timestamp) -> Result<Option<Planned>, Unreadable> {
    let document = match processing.get("planned_interval") {
        None | Some(Bson::Null) => return Ok(None),
        Some(Bson::Document(document)) => document,
        Some(_) => return Err(unreadable("planned_interval is not an object")),
    };
    Ok(Some(Planned {
        interval: interval(document)?,
        usage_guid: text(document, "usage_guid")?.to_owned(),
        // With the last change that the original made.
        planned_at: changed_at,
        by: None,
        // The original may have posted it.
        unanswered: true,
        posts_end_by: None,
    }))
}

fn member<'a>(document: &'a Document, name: &str) -> Result<&'a Document, Unreadable> {
    let member = document.get_document(name);
    member.map_err(|_| unreadable(format!("{name} is not an object")))
}

fn text<'a>(document: &'a Document, name: &str) -> Result<&'a str, Unreadable> {
    let text = document.get_str(name);
    text.map_err(|_| unreadable(format!("{name} is not a string")))
}

fn read_target(document: &Document) -> Result<Target, Unreadable> {
    let mut fields = [""; 6];
    for (field, name) in fields.iter_mut().zip(Target::FIELDS) {
        *field = text(document, name)?;
    }
    Ok(Target::from_store(fields))
}

fn measures(document: &Document) -> Result<Measures, Unreadable> {
    let list = document.get("measured_usage").cloned().unwrap_or_default();
    stored_measures(bson::Deserializer::new(list))
}

fn event_id(document: &Document, name: &str) -> Option<Id> {
    match document.get(name)? {
        Bson::String(text) if !text.is_empty() => Some(Id::from_store(text.clone())),
        Bson::Binary(binary) if binary.subtype == BinarySubtype::Uuid => {
            let uuid = Uuid::from_slice(&binary.bytes).ok()?;
            Some(Id::from_store(uuid.to_string()))
        }
        _ => None,
    }
}

fn interval(document: &Document) -> Result<Interval, Unreadable> {
    Ok(Interval {
        start: moment(document, "start")?,
        end: moment(document, "end")?,
    })
}

fn moment(document: &Document, name: &str) -> Result<Timestamp, Unreadable> {
    let millis = integer(document, name)?;
    Timestamp::new(millis).map_err(|error| unreadable(format!("{name} is not a time: {error}")))
}

/// A whole number in any of the types that it may have been written as.
fn integer(document: &Document, name: &str) -> Result<i64, Unreadable> {
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
        _ => Err(unreadable(format!("{name} is not a whole number"))),
    }
}
