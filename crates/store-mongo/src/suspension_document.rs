//! The suspension of a span in its document: `processing.suspended`, `processing.probe`,
//! `processing.skip` and `processing.refusals`.
//!
//! The first three hold the version of the span that they are about. The original Sampler, when it
//! executes the interval, leaves them behind, and increments the version.

use bson::{Bson, Document, doc};
use sampler_domain::{CauseId, Skip, Suspension};

use crate::document::{moment, read_integer, read_moment};

/// A suspension, as it is kept.
pub(crate) fn suspension(suspension: Suspension, version: i64) -> Document {
    let mut document = under(suspension.cause, version);
    document.insert("since", moment(suspension.since));
    document
}

/// A cause that holds for a version of the span: a probe of it, as it is kept.
pub(crate) fn under(cause: CauseId, version: i64) -> Document {
    doc! { "cause": cause.to_string(), "version": version }
}

/// The suspension of a span, if it is suspended.
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
pub(crate) fn skip_mark(skip: &Skip, version: i64) -> Document {
    doc! {
        "usage": &skip.usage_guid,
        "version": version,
        "at": moment(skip.at),
        "not_before": moment(skip.not_before),
        "act": skip.act.to_string(),
    }
}

/// An operator's request to skip, if there is one.
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

/// How often Abacus has refused the planned interval.
pub(crate) fn read_refusals(processing: &Document) -> Option<u32> {
    u32::try_from(read_integer(processing, "refusals").ok()?).ok()
}

/// How many refusals count, as it is kept.
pub(crate) fn refusals(refusals: u32) -> Bson {
    Bson::Int64(i64::from(refusals))
}
