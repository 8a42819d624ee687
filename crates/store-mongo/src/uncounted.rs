//! The intervals of a span that do not count upstream, as its document keeps them:
//! `processing.uncounted`, and `withheld` of the planned interval.

use bson::{Bson, Document, doc};
use sampler_domain::{EntryState, NotCounted, Span, Uncounted};

use crate::document::{Unreadable, interval, moment, read_interval, unreadable};

/// The name of the list.
pub(crate) const FIELD: &str = "processing.uncounted";

/// Why an interval does not count, as it is kept.
pub(crate) fn reason(reason: NotCounted) -> Document {
    let mut document = doc! { "state": reason.state().name() };
    if reason.is_unanswered() {
        document.insert("unanswered", true);
    }
    document
}

/// Reads why an interval does not count.
pub(crate) fn read_reason(document: &Document) -> Result<NotCounted, Unreadable> {
    let state = document
        .get_str("state")
        .ok()
        .and_then(EntryState::from_name);
    let unanswered = document.get_bool("unanswered").unwrap_or(false);
    state
        .and_then(|state| NotCounted::of(state, unanswered))
        .ok_or_else(|| unreadable("state", "is not that of a usage that does not count"))
}

fn written(uncounted: &Uncounted) -> Document {
    let mut document = interval(uncounted.interval);
    document.extend(reason(uncounted.reason));
    document
}

/// Reads the intervals of a span that do not count.
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

/// The condition that the list is as it was read. One is added at its end, or removed by a resend, which
/// is a condition of its own.
pub(crate) fn unchanged(span: &Span) -> Document {
    let known = &span.processing.uncounted;
    let mut condition = doc! { format!("{FIELD}.{}", known.len()): { "$exists": false } };
    if let Some(last) = known.last() {
        let name = format!("{FIELD}.{}.start", known.len() - 1);
        condition.insert(name, moment(last.interval.start));
    }
    condition
}

/// The operator and its argument that make the list of `before` that of `after`; none where they are the
/// same.
pub(crate) fn update(before: &Span, after: &Span) -> Option<(&'static str, Bson)> {
    let (before, after) = (&before.processing.uncounted, &after.processing.uncounted);
    let all = || Bson::from(after.iter().map(written).collect::<Vec<_>>());
    match after.split_last() {
        _ if after == before => None,
        None => Some(("$unset", "".into())),
        Some((last, rest)) if rest == before => Some(("$push", written(last).into())),
        Some(_) => Some(("$set", all())),
    }
}
