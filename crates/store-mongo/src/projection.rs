//! How much of the measures is read with spans: a span can have half a megabyte of them, however small the
//! event is that it decides about.

use bson::{Document, doc};
use sampler_domain::{EventId, Key};

use crate::document::key_to_bson;

/// Bytes that kept measures may take beyond those of the start that they are compared with: another
/// program may have added what is not compared.
const SPARE_BYTES: usize = 1 << 10;

/// A whole document, but with an empty list of measures.
pub(crate) fn without_measures() -> Document {
    doc! { "measured_usage": { "$slice": 0 } }
}

/// All that a span is read from. Starts with these keys and ids are compared with it, whose measures
/// take so many bytes. Where those of the span take more, and so differ, it gets one without a name, which no start
/// has.
pub(crate) fn comparable<'a>(starts: impl Iterator<Item = (Key, &'a EventId, usize)>) -> Document {
    let mut starts: Vec<_> = starts.collect();
    // The first of several with the same id counts.
    starts.sort_by_key(|(_, _, bytes)| std::cmp::Reverse(*bytes));
    let (mut events, mut limits) = (Vec::new(), Vec::new());
    for (key, id, bytes) in starts {
        events.push(doc! { "key": key_to_bson(key), "id": id.as_str() });
        limits.push(i64::try_from(bytes + SPARE_BYTES).unwrap_or(i64::MAX));
    }
    let event = doc! { "key": "$processing.key", "id": "$start_dedup_id" };
    let index = doc! { "$indexOfArray": [{ "$literal": events }, event] };
    let limit = doc! { "$arrayElemAt": [{ "$literal": limits }, index] };
    let bytes = doc! { "$bsonSize": { "all": "$measured_usage" } };
    let another = doc! { "$literal": [{ "measure": "", "quantity": 0 }] };
    doc! {
        "measured_usage": { "$cond": [{ "$gt": [bytes, limit] }, another, "$measured_usage"] },
        "target": 1, "start": 1, "end": 1, "processing": 1,
        "start_dedup_id": 1, "start_client": 1,
        "end_dedup_id": 1, "stop_client": 1,
    }
}
