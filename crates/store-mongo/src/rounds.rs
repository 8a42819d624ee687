//! The earlier times that the upstream set a usage aside and accepted it again (`earlier_rounds` of an
//! entry). A value that is not an integer counts as absent, and so does an invalid list.

use bson::{Bson, Document, doc};
use sampler_domain::{EARLIER_ROUNDS_MAX, Round, Timestamp};

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
