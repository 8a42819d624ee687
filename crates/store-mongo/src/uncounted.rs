//! The intervals of a span that do not count upstream, as its document keeps them:
//! `processing.uncounted`, and `withheld` of the planned interval.

use bson::raw::{CStr, CString, RawArrayBuf, cstr};
use bson::{Bson, Document, RawDocumentBuf, rawdoc};
use sampler_domain::{EntryState, Span, Uncounted, UncountedReason};

use crate::document::{Unreadable, interval, read_interval, unreadable};

/// The name of the list.
pub(crate) const LIST: &CStr = cstr!("processing.uncounted");

/// Why an interval does not count, as it is kept.
pub(crate) fn reason(reason: UncountedReason) -> RawDocumentBuf {
    let mut document = RawDocumentBuf::new();
    append_reason(&mut document, reason);
    document
}

fn append_reason(document: &mut RawDocumentBuf, reason: UncountedReason) {
    document.append(cstr!("state"), reason.state().name());
    if reason.is_unanswered() {
        document.append(cstr!("unanswered"), true);
    }
}

pub(crate) fn read_reason(document: &Document) -> Result<UncountedReason, Unreadable> {
    let state = document
        .get_str("state")
        .ok()
        .and_then(EntryState::from_name);
    let unanswered = document.get_bool("unanswered").unwrap_or(false);
    state
        .and_then(|state| UncountedReason::of(state, unanswered))
        .ok_or_else(|| unreadable("state", "is not that of a usage that does not count"))
}

fn written(uncounted: &Uncounted) -> RawDocumentBuf {
    let mut document = interval(uncounted.interval);
    append_reason(&mut document, uncounted.reason);
    document
}

pub(crate) fn read(processing: &Document) -> Result<Vec<Uncounted>, Unreadable> {
    let list = processing
        .get_array("uncounted")
        .map_or(&[][..], Vec::as_slice);
    list.iter().map(read_one).collect()
}

fn read_one(bson: &Bson) -> Result<Uncounted, Unreadable> {
    let Some(document) = bson.as_document() else {
        return Err(unreadable("uncounted", "is not a list of objects"));
    };
    Ok(Uncounted {
        interval: read_interval(document)?,
        reason: read_reason(document)?,
    })
}

/// Adds the condition that the list is as it was read. One is added at its end (beyond the most that are kept,
/// two become one, or the oldest goes), or removed by a resend, which is a condition of its own.
pub(crate) fn require_unchanged(span: &Span, condition: &mut RawDocumentBuf) {
    let absent = rawdoc! { "$exists": false };
    let known = &span.processing.uncounted;
    match known.last() {
        None => condition.append(cstr!("processing.uncounted.0"), absent),
        Some(last) => {
            condition.append(name(&known.len().to_string()), absent);
            let start = name(&format!("{}.start", known.len() - 1));
            condition.append(start, last.interval.start.as_millis());
        }
    }
}

/// The name of what is at this place of the list.
fn name(place: &str) -> CString {
    CString::try_from(format!("{LIST}.{place}")).expect("no zero byte")
}

/// What makes one list another one.
pub(crate) enum ListUpdate {
    Remove,
    Add(RawDocumentBuf),
    Replace(RawArrayBuf),
}

/// What makes the list of `before` that of `after`; none where they are the same.
pub(crate) fn update(before: &Span, after: &Span) -> Option<ListUpdate> {
    let (before, after) = (&before.processing.uncounted, &after.processing.uncounted);
    match after.split_last() {
        _ if after == before => None,
        None => Some(ListUpdate::Remove),
        Some((last, rest)) if rest == before => Some(ListUpdate::Add(written(last))),
        Some(_) => Some(ListUpdate::Replace(after.iter().map(written).collect())),
    }
}
