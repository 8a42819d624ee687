//! Entries of the ledger as documents.

use bson::raw::{RawDocument, RawDocumentBuf, cstr};
use bson::{Document, doc};
use sampler_domain::{Entry, EntryState, Granularity, Question, Timestamp};
use serde::Serialize;

use crate::document::{
    OpenInterval, OpenMeasure, Unreadable, id_from_bson, member, open_measure, raw_id,
    read_integer, read_interval, read_measures, read_moment, read_optional_moment, read_target,
    read_text, unreadable,
};
use crate::resends::read_resend;
use crate::rounds;
use crate::unreadable::decoded;

/// Room for the document of an entry with the usual ids and one measure or two.
const USUAL_BYTES: usize = 1_024;

/// The longest reason of a refusal that is kept, in characters.
pub(crate) const ERROR_LEN_MAX: usize = 1_000;

/// The document of an entry. Absent members are left out, not null.
#[derive(Serialize)]
struct EntryDocument<'a> {
    #[serde(rename = "_id")]
    usage_guid: &'a str,
    partition: i32,
    version: i64,
    target: EntryTarget<'a>,
    measured_usage: Vec<OpenMeasure<'a>>,
    interval: OpenInterval,
    timestamp: i64,
    duration: i64,
    state: &'a str,
    attempts: i64,
    planned_at: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    refused_at: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    accepted_at: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    counted_at: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    set_aside_at: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    resent_at: Option<i64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    earlier_rounds: Vec<Document>,
    #[serde(skip_serializing_if = "Option::is_none")]
    skipped_at: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    location: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(skip_serializing_if = "is_false")]
    unanswered: bool,
    #[serde(skip_serializing_if = "is_false")]
    withheld: bool,
    lifetime: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    ask_again: Option<AskAgainDocument>,
}

/// The month, beside the times, so that a search finds the entries of one month.
#[derive(Serialize)]
struct AskAgainDocument {
    month: i64,
    at: i64,
    until: i64,
}

#[derive(Serialize)]
#[expect(clippy::struct_field_names, reason = "these are the names")]
struct EntryTarget<'a> {
    organization_id: &'a str,
    space_id: &'a str,
    consumer_id: &'a str,
    resource_id: &'a str,
    plan_id: &'a str,
    resource_instance_id: &'a str,
}

/// The document of an entry. Once its span is complete, it is kept until `lifetime` ms after its
/// usage was accepted or skipped. Entries are marked for a resend later.
///
/// # Errors
/// If a name of the provider's has bytes that a name cannot have.
pub(crate) fn written(
    entry: &Entry,
    partition: i32,
    lifetime: i64,
) -> Result<RawDocumentBuf, bson::error::Error> {
    let target = &entry.target;
    let millis = |moment: Option<Timestamp>| moment.map(Timestamp::as_millis);
    let measures = entry.measures.as_slice().iter();
    let error = entry.error.as_ref();
    let document = EntryDocument {
        usage_guid: &entry.usage_guid,
        partition,
        version: entry.version,
        target: EntryTarget {
            organization_id: target.organization_id.as_str(),
            space_id: target.space_id.as_str(),
            consumer_id: target.consumer_id.as_str(),
            resource_id: target.resource_id.as_str(),
            plan_id: target.plan_id.as_str(),
            resource_instance_id: target.resource_instance_id.as_str(),
        },
        measured_usage: measures.map(open_measure).collect(),
        interval: OpenInterval {
            start: entry.interval.start.as_millis(),
            end: entry.interval.end.as_millis(),
        },
        timestamp: entry.interval.midpoint().as_millis(),
        duration: entry.interval.duration(),
        state: entry.state.name(),
        attempts: i64::from(entry.attempts),
        planned_at: entry.planned_at.as_millis(),
        refused_at: millis(entry.refused_at),
        accepted_at: millis(entry.accepted_at),
        counted_at: millis(entry.counted_at),
        set_aside_at: millis(entry.set_aside_at),
        resent_at: millis(entry.resent_at),
        earlier_rounds: entry.earlier_rounds.iter().map(rounds::written).collect(),
        skipped_at: millis(entry.skipped_at),
        status: entry.status.map(i32::from),
        location: entry.location.as_deref(),
        error: error.map(|error| error.chars().take(ERROR_LEN_MAX).collect()),
        unanswered: entry.unanswered,
        withheld: entry.withheld,
        lifetime,
        ask_again: entry.question.map(|ask| AskAgainDocument {
            month: month_of(entry.interval.midpoint()).as_millis(),
            at: ask.at.as_millis(),
            until: ask.until.as_millis(),
        }),
    };
    let mut bytes = Vec::with_capacity(USUAL_BYTES);
    bson::serialize_to_buffer(&document, &mut bytes)?;
    let mut document = RawDocumentBuf::from_bytes(bytes)?;
    // serde would write an ObjectId as a text, and read that again.
    document.append(cstr!("span"), raw_id(&entry.span));
    Ok(document)
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_false(flag: &bool) -> bool {
    !flag
}

pub(crate) fn entry_in(raw: &RawDocument) -> Result<Entry, Unreadable> {
    let document = decoded(raw)?;
    Ok(Entry {
        usage_guid: read_text(&document, "_id")?.to_owned(),
        span: id_from_bson(document.get("span"))?,
        target: read_target(member(&document, "target")?)?,
        measures: read_measures(&document)?,
        interval: read_interval(member(&document, "interval")?)?,
        version: read_integer(&document, "version")?,
        planned_at: read_moment(&document, "planned_at")?,
        attempts: u32::try_from(read_integer(&document, "attempts")?).unwrap_or(0),
        refused_at: read_optional_moment(&document, "refused_at")?,
        accepted_at: read_optional_moment(&document, "accepted_at")?,
        counted_at: read_optional_moment(&document, "counted_at")?,
        set_aside_at: read_optional_moment(&document, "set_aside_at")?,
        resent_at: read_optional_moment(&document, "resent_at")?,
        earlier_rounds: rounds::read(&document),
        skipped_at: read_optional_moment(&document, "skipped_at")?,
        state: state_in(&document)?,
        status: status_in(&document),
        location: text(&document, "location"),
        error: text(&document, "error"),
        unanswered: document.get_bool("unanswered").unwrap_or(false),
        withheld: document.get_bool("withheld").unwrap_or(false),
        resend: read_resend(&document),
        question: ask_again_in(&document),
    })
}

/// The start of the month of a time.
fn month_of(moment: Timestamp) -> Timestamp {
    Granularity::Month.window_of(moment)
}

/// The part of an entry's document that says when the upstream is asked for its usage, if it is to be.
pub(crate) fn ask_again_document(entry: &Entry) -> Option<Document> {
    let ask = entry.question?;
    Some(doc! {
        "month": month_of(entry.interval.midpoint()).as_millis(),
        "at": ask.at.as_millis(),
        "until": ask.until.as_millis(),
    })
}

/// When the upstream is asked for the usage of an entry, if it is to be.
pub(crate) fn ask_again_in(document: &Document) -> Option<Question> {
    let ask = document.get_document("ask_again").ok()?;
    Some(Question {
        at: read_moment(ask, "at").ok()?,
        until: read_moment(ask, "until").ok()?,
        is_missing: ask.get_bool("lost").unwrap_or(false),
    })
}

/// The state of an entry, whatever else its document holds.
pub(crate) fn state_in(document: &Document) -> Result<EntryState, Unreadable> {
    let name = document.get_str("state").ok();
    let state = name.and_then(EntryState::from_name);
    state.ok_or_else(|| unreadable("state", "is not the state of an entry"))
}

/// The status of an answer that is kept.
pub(crate) fn status_in(document: &Document) -> Option<u16> {
    u16::try_from(read_integer(document, "status").ok()?).ok()
}

fn text(document: &Document, name: &str) -> Option<String> {
    document.get_str(name).ok().map(str::to_owned)
}
