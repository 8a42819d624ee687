//! Moments, lengths of time, and the windows of the calendar.

use std::fmt;
use std::ops::Range;

use chrono::{DateTime, Datelike, Months, NaiveDate, NaiveTime, Timelike};
use serde::{Deserialize, Serialize};

/// Milliseconds since 1970-01-01T00:00:00 UTC, or between two times.
pub type Millis = i64;

pub const HOUR: Millis = 3_600_000;
pub const DAY: Millis = 24 * HOUR;

/// A time that 64 bits do not hold.
pub(crate) const TOO_FAR: &str = "the time is too far away";

/// Reads milliseconds since 1970, or RFC 3339.
pub fn parse_moment(text: &str) -> Result<Millis, String> {
    let moment = text.parse().ok().or_else(|| parse_rfc3339(text));
    moment.ok_or_else(|| {
        format!("{text:?} is not a valid time: write milliseconds since 1970 or RFC 3339")
    })
}

/// Reads RFC 3339. A second 60 is a leap second, which can be at 23:59 UTC alone.
pub fn parse_rfc3339(text: &str) -> Option<Millis> {
    let utc = DateTime::parse_from_rfc3339(text).ok()?.to_utc();
    let is_leap = utc.nanosecond() >= 1_000_000_000;
    let may_be = !is_leap || (utc.hour(), utc.minute()) == (23, 59);
    may_be.then(|| utc.timestamp_millis())
}

/// Reads a length of time like `1d12h`, with a sign in front or none.
pub fn parse_length(text: &str) -> Result<Millis, String> {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    let length = humantime::parse_duration(digits)
        .map_err(|_| format!("{text:?} is not a valid length of time, like 1d12h"))?;
    let millis = Millis::try_from(length.as_millis()).map_err(|_| TOO_FAR)?;
    Ok(sign * millis)
}

/// A time of a day (UTC), `days` after the day of `now`.
pub(crate) fn time_of_day(now: Millis, days: i64, text: &str) -> Result<Millis, String> {
    let time: NaiveTime = text
        .parse()
        .map_err(|_| format!("{text:?} is not a valid time of a day, like 10:30:00.000"))?;
    let day = now.div_euclid(DAY).checked_add(days);
    let midnight = day.and_then(|day| day.checked_mul(DAY)).ok_or(TOO_FAR)?;
    let in_day = time.signed_duration_since(NaiveTime::MIN);
    Ok(midnight.saturating_add(in_day.num_milliseconds()))
}

/// A time as people read it.
#[derive(Clone, Copy, Debug)]
pub struct InWords(pub Millis);

impl fmt::Display for InWords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match DateTime::from_timestamp_millis(self.0) {
            Some(moment) => write!(f, "{}", moment.format("%FT%T%.3fZ")),
            None => write!(f, "{} ms", self.0),
        }
    }
}

/// The windows whose boundaries no usage may cross. All in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Granularity {
    Minute,
    Hour,
    Day,
    /// A month of the Gregorian calendar.
    Month,
}

impl Granularity {
    /// The length of the longest window, ms.
    pub(crate) fn length(self) -> Millis {
        match self {
            Self::Minute => 60_000,
            Self::Hour => HOUR,
            Self::Day => DAY,
            Self::Month => 31 * DAY,
        }
    }

    /// The window that holds a time.
    pub fn window(self, moment: Millis) -> Range<Millis> {
        if self == Self::Month {
            return month(moment).unwrap_or(Millis::MIN..Millis::MAX);
        }
        let start = moment.saturating_sub(moment.rem_euclid(self.length()));
        start..start.saturating_add(self.length())
    }
}

/// The month that holds a time, if the calendar has it.
fn month(moment: Millis) -> Option<Range<Millis>> {
    let day = DateTime::from_timestamp_millis(moment)?.date_naive();
    let first = day.with_day(1)?;
    let millis = |day: NaiveDate| day.and_time(NaiveTime::MIN).and_utc().timestamp_millis();
    Some(millis(first)..millis(first.checked_add_months(Months::new(1))?))
}
