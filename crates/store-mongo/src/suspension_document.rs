//! The suspension of a span in its document: `processing.suspended`, `processing.probe`,
//! `processing.skip` and `processing.refusals`.
//!
//! The first three hold the version of the span that they are about. The original Sampler, when it
//! executes the interval, leaves them behind, and increments the version.

use bson::{Bson, Document, RawDocumentBuf, doc, rawdoc};
use sampler_domain::{CauseId, Skip, Suspension};

use crate::document::{read_integer, read_moment};

/// A suspension, as it is kept.
pub(crate) fn suspension(suspension: Suspension, version: i64) -> RawDocumentBuf {
    rawdoc! {
        "cause": suspension.cause.to_string(),
        "version": version,
        "since": suspension.since.as_millis(),
    }
}

/// A cause that holds for a version of the span: a probe of it, as it is kept.
pub(crate) fn under(cause: CauseId, version: i64) -> Document {
    doc! { "cause": cause.to_string(), "version": version }
}

pub(crate) fn read_suspension(processing: &Document, version: i64) -> Option<Suspension> {
    let document = processing.get_document("suspended").ok()?;
    Some(Suspension {
        cause: cause_of(document, version)?,
        since: read_moment(document, "since").ok()?,
    })
}

/// The cause that a span is tried for, if there is one.
pub(crate) fn read_probe(processing: &Document, version: i64) -> Option<CauseId> {
    cause_of(processing.get_document("probe").ok()?, version)
}

fn cause_of(document: &Document, version: i64) -> Option<CauseId> {
    let is_current = read_integer(document, "version") == Ok(version);
    let cause = document.get_str("cause").ok().filter(|_| is_current)?;
    cause.parse().ok()
}

/// An operator's request to skip, as it is kept.
pub(crate) fn skip_mark(skip: &Skip, version: i64) -> RawDocumentBuf {
    rawdoc! {
        "usage": skip.usage_guid.as_str(),
        "version": version,
        "at": skip.at.as_millis(),
        "not_before": skip.not_before.as_millis(),
        "act": skip.act.to_string(),
    }
}

pub(crate) fn read_skip(processing: &Document, version: i64) -> Option<Skip> {
    let document = processing.get_document("skip").ok()?;
    let is_current = read_integer(document, "version") == Ok(version);
    let usage_guid = document.get_str("usage").ok().filter(|_| is_current)?;
    Some(Skip {
        usage_guid: usage_guid.to_owned(),
        at: read_moment(document, "at").ok()?,
        not_before: read_moment(document, "not_before").ok()?,
        act: document.get_str("act").ok()?.parse().ok()?,
    })
}

/// How often the upstream has refused the planned interval.
pub(crate) fn read_refusals(processing: &Document) -> Option<u32> {
    u32::try_from(read_integer(processing, "refusals").ok()?).ok()
}

/// How many refusals count, as it is kept.
pub(crate) fn refusals(refusals: u32) -> Bson {
    Bson::Int64(i64::from(refusals))
}
