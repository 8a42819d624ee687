//! Times as people write them on a command line.

use chrono::{Days, NaiveDate, NaiveDateTime, NaiveTime};
use sampler_verify::moment::{Millis, parse_length, parse_moment, parse_rfc3339};
use serde::de::Error;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::clock;

/// The help of every option that takes a time.
pub(crate) const FORMS: &str = "\
TIME is 2026-11-20, 2026-11-20T15:10, yesterday, today, now, -2d, -1h30m, RFC 3339 with an offset
(2026-11-20T15:10:11+01:00), or milliseconds since 1970. Without an offset it is UTC, and a date means
00:00.";

/// A time without an offset, from the longest form to the shortest.
const FORMS_OF_TIME: [&str; 4] = [
    "%Y-%m-%dT%H:%M:%S%.f",
    "%Y-%m-%d %H:%M:%S%.f",
    "%Y-%m-%dT%H:%M",
    "%Y-%m-%d %H:%M",
];

/// Reads a time: a value parser of the command line.
pub(crate) fn time(text: &str) -> Result<Millis, String> {
    time_at(text, clock::now())
}

fn time_at(text: &str, now: Millis) -> Result<Millis, String> {
    if let Ok(moment) = parse_moment(text) {
        if text.len() == 8 && text.starts_with("20") {
            return Err(format!("{text:?} could be a date: write it with hyphens"));
        }
        return Ok(moment);
    }
    let found = match text {
        "now" => Some(now),
        "today" => day_of(now, 0),
        "yesterday" => day_of(now, 1),
        _ if text.starts_with(['-', '+']) => from_now(text, now),
        _ => date(text).or_else(|| date_time(text)),
    };
    found.ok_or_else(|| {
        format!(
            "{text:?} is not a valid time: write 2026-11-20, 2026-11-20T15:10:00Z, yesterday, -2d, or \
             milliseconds since 1970"
        )
    })
}

/// A time in JSON: milliseconds since 1970, or RFC 3339.
pub(crate) fn in_json<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Millis, D::Error> {
    let moment = match Value::deserialize(deserializer)? {
        Value::String(text) => parse_rfc3339(&text),
        value => value.as_i64(),
    };
    moment.ok_or_else(|| D::Error::custom("a time is neither milliseconds since 1970 nor RFC 3339"))
}

pub(crate) fn in_json_if_any<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Millis>, D::Error> {
    in_json(deserializer).map(Some)
}

/// A length of time from now, such as `-2d`.
fn from_now(text: &str, now: Millis) -> Option<Millis> {
    now.checked_add(parse_length(text).ok()?)
}

/// The first millisecond (UTC) of the day that is `before` days before `now`.
fn day_of(now: Millis, before: u64) -> Option<Millis> {
    let today = chrono::DateTime::from_timestamp_millis(now)?.date_naive();
    Some(first_of(today.checked_sub_days(Days::new(before))?))
}

fn date(text: &str) -> Option<Millis> {
    NaiveDate::parse_from_str(text, "%Y-%m-%d")
        .ok()
        .map(first_of)
}

fn date_time(text: &str) -> Option<Millis> {
    let mut read = FORMS_OF_TIME
        .iter()
        .filter_map(|form| NaiveDateTime::parse_from_str(text, form).ok());
    Some(read.next()?.and_utc().timestamp_millis())
}

fn first_of(day: NaiveDate) -> Millis {
    day.and_time(NaiveTime::MIN).and_utc().timestamp_millis()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-11-22T13:00:00Z
    const NOW: Millis = 1_795_352_400_000;
    const HOUR: Millis = 3_600_000;

    #[test]
    fn times_are_read_as_people_write_them() {
        for (text, at) in [
            ("5", 5),
            ("1795352400000", NOW),
            ("2026-11-22T14:00:00+01:00", NOW),
            ("2026-11-22", NOW - 13 * HOUR),
            ("2026-11-22T13:00", NOW),
            ("2026-11-22 13:00", NOW),
            ("2026-11-22T13:00:00.250", NOW + 250),
            ("2026-11-22 13:00:01", NOW + 1_000),
            ("now", NOW),
            ("today", NOW - 13 * HOUR),
            ("yesterday", NOW - 37 * HOUR),
            ("-2d", NOW - 48 * HOUR),
            ("+1h30m", NOW + HOUR + HOUR / 2),
        ] {
            assert_eq!(time_at(text, NOW), Ok(at), "{text}");
        }
    }

    /// What could mean two things, or nothing, is refused: it decides what is billed.
    #[test]
    fn what_is_not_clear_is_no_time() {
        for text in [
            "",
            "2d",
            "-",
            "--1h",
            "20261120",
            "20.11.2026",
            "11/20/2026",
            "2026-11-31",
            "2026-11",
            "tuesday",
            "2026-11-20T25:00",
            "-9999999999999d",
            "15:10",
        ] {
            assert!(time_at(text, NOW).is_err(), "{text}");
        }
    }
}
