//! Entries of the ledger as documents.

use bson::raw::{RawArrayBuf, RawDocument, RawDocumentBuf, cstr};
use bson::{Document, doc};
use sampler_domain::{Entry, EntryState, Granularity, Question};

use crate::document::{
    Unreadable, empty_document, id_from_bson, interval, measured_usage, member, raw_id,
    read_integer, read_interval, read_measures, read_moment, read_optional_moment, read_target,
    read_text, target_document, unreadable,
};
use crate::resends::read_resend;
use crate::rounds;
use crate::unreadable::decoded;

/// The longest reason of a refusal that is kept, in characters.
pub(crate) const ERROR_LEN_MAX: usize = 1_000;

/// The document of an entry, without members that it does not have. Once its span is complete, it is kept
/// until `lifetime` ms after its usage was accepted or skipped. Entries are marked for a resend later.
pub(crate) fn written(
    entry: &Entry,
    partition: i32,
    lifetime: i64,
) -> Result<RawDocumentBuf, bson::error::Error> {
    let mut document = empty_document();
    document.append(cstr!("_id"), entry.usage_guid.as_str());
    document.append(cstr!("partition"), partition);
    document.append(cstr!("version"), entry.version);
    document.append(cstr!("target"), target_document(&entry.target));
    document.append(cstr!("measured_usage"), measured_usage(&entry.measures)?);
    document.append(cstr!("interval"), interval(entry.interval));
    document.append(cstr!("timestamp"), entry.interval.midpoint().as_millis());
    document.append(cstr!("duration"), entry.interval.duration());
    document.append(cstr!("state"), entry.state.name());
    document.append(cstr!("attempts"), i64::from(entry.attempts));
    document.append(cstr!("planned_at"), entry.planned_at.as_millis());
    for (name, moment) in [
        (cstr!("refused_at"), entry.refused_at),
        (cstr!("accepted_at"), entry.accepted_at),
        (cstr!("counted_at"), entry.counted_at),
        (cstr!("set_aside_at"), entry.set_aside_at),
        (cstr!("resent_at"), entry.resent_at),
        (cstr!("skipped_at"), entry.skipped_at),
    ] {
        if let Some(moment) = moment {
            document.append(name, moment.as_millis());
        }
    }
    if !entry.earlier_rounds.is_empty() {
        let mut earlier = RawArrayBuf::new();
        for round in &entry.earlier_rounds {
            earlier.push(RawDocumentBuf::try_from(&rounds::written(round))?);
        }
        document.append(cstr!("earlier_rounds"), earlier);
    }
    if let Some(status) = entry.status {
        document.append(cstr!("status"), i32::from(status));
    }
    if let Some(location) = &entry.location {
        document.append(cstr!("location"), location.as_str());
    }
    if let Some(error) = &entry.error {
        let error: String = error.chars().take(ERROR_LEN_MAX).collect();
        document.append(cstr!("error"), error);
    }
    for (name, flag) in [
        (cstr!("unanswered"), entry.unanswered),
        (cstr!("withheld"), entry.withheld),
    ] {
        if flag {
            document.append(name, true);
        }
    }
    document.append(cstr!("lifetime"), lifetime);
    if let Some(ask_again) = ask_again_document(entry) {
        document.append(cstr!("ask_again"), RawDocumentBuf::try_from(&ask_again)?);
    }
    document.append(cstr!("span"), raw_id(&entry.span));
    Ok(document)
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

/// The part of an entry's document that says when the upstream is asked for its usage, if it is to be.
pub(crate) fn ask_again_document(entry: &Entry) -> Option<Document> {
    let ask = entry.question?;
    let month = Granularity::Month.window_of(entry.interval.midpoint());
    Some(doc! {
        "month": month.as_millis(),
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
