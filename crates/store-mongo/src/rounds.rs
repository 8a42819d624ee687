//! The earlier times that the upstream set a usage aside and accepted it again (`earlier_rounds` of an
//! entry).
//!
//! The server compares these times ([`state_at`]), and so does
//! [`Entry::as_of`](sampler_domain::Entry::as_of). For both, a value that is not an integer counts
//! as absent, and so does an invalid list.

use bson::{Bson, Document, doc};
use sampler_domain::{EARLIER_ROUNDS_MAX, EntryState, Round, Timestamp};

use crate::document::moment;

/// A round, as it is kept.
pub(crate) fn written(round: &Round) -> Document {
    let moments = [
        ("set_aside_at", round.set_aside_at),
        ("resent_at", round.resent_at),
    ];
    let known = moments
        .into_iter()
        .filter_map(|(name, at)| Some((name.to_owned(), moment(at?))));
    known.collect()
}

pub(crate) fn read(entry: &Document) -> Vec<Round> {
    let rounds = entry.get_array("earlier_rounds").map(Vec::as_slice);
    let rounds = rounds.unwrap_or_default().iter();
    let rounds = rounds.filter_map(Bson::as_document).map(|round| Round {
        set_aside_at: read_moment(round.get("set_aside_at")),
        resent_at: read_moment(round.get("resent_at")),
    });
    rounds.collect()
}

fn read_moment(bson: Option<&Bson>) -> Option<Timestamp> {
    let millis = match bson? {
        Bson::Int32(millis) => i64::from(*millis),
        Bson::Int64(millis) => *millis,
        _ => return None,
    };
    Timestamp::new(millis).ok()
}

/// The rounds of an entry that is set aside, as an expression on the entry before that: one more, if it
/// was set aside before. Beyond the limit the oldest goes.
pub(crate) fn one_more() -> Document {
    let round = doc! { "set_aside_at": "$set_aside_at", "resent_at": "$resent_at" };
    let before = doc! { "$cond": [{ "$isArray": "$earlier_rounds" }, "$earlier_rounds", []] };
    let all = doc! { "$concatArrays": [before, [round]] };
    let max = i64::try_from(EARLIER_ROUNDS_MAX).unwrap_or(i64::MAX);
    let is_again = doc! { "$isNumber": "$set_aside_at" };
    doc! { "$cond": [is_again, { "$slice": [all, -max] }, "$earlier_rounds"] }
}

/// The state of the usage at a time, as far as the earlier rounds say so: the last change that was
/// made by then decides. Before the first of them, `otherwise` does. All are expressions.
pub(crate) fn state_at(at: Timestamp, otherwise: Document) -> Document {
    // From the oldest round to the latest.
    let after = doc! { "$switch": {
        "branches": [
            { "case": is_past("$$this.resent_at", at), "then": EntryState::Accepted.name() },
            { "case": is_past("$$this.set_aside_at", at), "then": EntryState::SetAside.name() },
        ],
        "default": "$$value",
    } };
    let by_rounds = doc! { "$reduce": {
        "input": "$earlier_rounds",
        "initialValue": otherwise.clone(),
        "in": after,
    } };
    doc! { "$cond": [{ "$isArray": "$earlier_rounds" }, by_rounds, otherwise] }
}

/// The condition that a field is a time up to this one.
fn is_past(name: &str, at: Timestamp) -> Document {
    doc! { "$and": [
        { "$in": [{ "$type": name }, ["int", "long"]] },
        { "$gte": [name, moment(Timestamp::MIN)] },
        { "$lte": [name, moment(at)] },
    ] }
}
