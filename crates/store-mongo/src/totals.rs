//! The totals of a span, as its document keeps them: `processing.totals`.
//!
//! `to` is how far the span was sampled when they were written. If it is sampled further now, a program
//! that knows no totals did that. Then the totals begin again at that time, as they do for a span that
//! the original Sampler has sampled in part.

use bson::raw::cstr;
use bson::{Document, RawDocumentBuf, rawdoc};
use sampler_domain::{Interval, Resent, Span, Totals};

use crate::document::{empty_document, read_integer, read_moment};

/// The totals of a span that is sampled to the end of `last`.
pub(crate) fn read_totals(processing: &Document, last: Interval) -> Totals {
    let kept = processing.get_document("totals").ok();
    let kept = kept.filter(|kept| read_moment(kept, "to") == Ok(last.end));
    kept.and_then(kept_totals)
        .unwrap_or_else(|| Totals::from(last.end))
}

fn kept_totals(kept: &Document) -> Option<Totals> {
    Some(Totals {
        since: read_moment(kept, "since").ok()?,
        first_version: read_integer(kept, "first_version").ok(),
        billed: read_integer(kept, "billed").ok()?,
        skipped: read_integer(kept, "skipped").ok()?,
        unanswered: read_integer(kept, "unanswered").unwrap_or(0),
        usages: u64::try_from(read_integer(kept, "usages").ok()?).ok()?,
    })
}

/// The last resend that the totals count, as it is kept: `processing.resent`.
pub(crate) fn resent_mark(resent: &Resent) -> RawDocumentBuf {
    rawdoc! { "usage": resent.usage_guid.as_str(), "act": resent.act.to_string() }
}

/// The last resend that the totals count, if there is one.
pub(crate) fn read_resent(processing: &Document) -> Option<Resent> {
    let document = processing.get_document("resent").ok()?;
    Some(Resent {
        usage_guid: document.get_str("usage").ok()?.to_owned(),
        act: document.get_str("act").ok()?.parse().ok()?,
    })
}

pub(crate) fn totals(span: &Span) -> RawDocumentBuf {
    let totals = &span.processing.totals;
    let mut document = empty_document();
    document.append(cstr!("since"), totals.since.as_millis());
    document.append(cstr!("to"), span.sampled_to().as_millis());
    document.append(cstr!("billed"), totals.billed);
    document.append(cstr!("skipped"), totals.skipped);
    let usages = i64::try_from(totals.usages).unwrap_or(i64::MAX);
    document.append(cstr!("usages"), usages);
    if totals.unanswered != 0 {
        document.append(cstr!("unanswered"), totals.unanswered);
    }
    if let Some(first_version) = totals.first_version {
        document.append(cstr!("first_version"), first_version);
    }
    document
}
