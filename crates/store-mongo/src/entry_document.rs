//! Entries of the ledger as documents.

use bson::raw::{RawDocument, RawDocumentBuf};
use bson::{Bson, DateTime};
use sampler_domain::{Acceptance, Entry, Granularity, Interval, Measures, Timestamp};
use serde::{Deserialize, Serialize};

use crate::document::{TargetDocument, id_from_bson, id_to_bson, stored_measures};
use crate::raw::{self, Unreadable};

#[derive(Serialize, Deserialize)]
struct EntryDocument {
    #[serde(rename = "_id")]
    id: String,
    span: Bson,
    target: TargetDocument,
    #[serde(deserialize_with = "stored_measures")]
    measured_usage: Measures,
    interval: Interval,
    /// The midpoint of the interval, by which it is summed up.
    timestamp: Timestamp,
    duration: i64,
    dimension: Granularity,
    /// True, or not there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    again: Option<bool>,
    accepted_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    status: Option<u16>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    location: Option<String>,
    /// When the server removes it.
    expires_at: DateTime,
}

pub(crate) fn entry_document(
    entry: &Entry,
    expires_at: Timestamp,
) -> Result<RawDocumentBuf, bson::error::Error> {
    bson::serialize_to_raw_document_buf(&EntryDocument {
        id: entry.usage_guid.clone(),
        span: id_to_bson(&entry.span),
        target: TargetDocument::new(&entry.target),
        measured_usage: entry.measures.clone(),
        interval: entry.interval,
        timestamp: entry.interval.midpoint(),
        duration: entry.interval.duration(),
        dimension: entry.dimension,
        again: entry.is_again.then_some(true),
        accepted_at: entry.acceptance.at,
        status: entry.acceptance.status,
        location: entry.acceptance.location.clone(),
        expires_at: DateTime::from_millis(expires_at.as_millis()),
    })
}

pub(crate) fn entry_in(raw: &RawDocument) -> Result<Entry, Unreadable> {
    let document: EntryDocument = raw::read(raw)?;
    Ok(Entry {
        usage_guid: document.id,
        span: id_from_bson(&document.span)?,
        target: document.target.into_target(),
        measures: document.measured_usage,
        interval: document.interval,
        dimension: document.dimension,
        is_again: document.again.is_some(),
        acceptance: Acceptance {
            at: document.accepted_at,
            status: document.status,
            location: document.location,
        },
    })
}
