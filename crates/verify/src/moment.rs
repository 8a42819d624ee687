//! Moments, lengths of time, and the windows of the calendar.

use std::fmt;
use std::time::Duration;

use chrono::{DateTime, NaiveTime, Timelike};
use serde::{Deserialize, Serialize};

/// Milliseconds since 1970-01-01T00:00:00 UTC, or between two times.
pub type Millis = i64;

pub const HOUR: Millis = 3_600_000;

pub const DAY: Millis = 86_400_000;

/// A text that is not a time, or not a length of time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MomentError {
    /// Neither milliseconds nor RFC 3339.
    #[error("{0:?} is not a valid time: write milliseconds since 1970 or RFC 3339")]
    Moment(String),
    /// No time of a day.
    #[error("{0:?} is not a valid time of a day, like 10:30:00.000")]
    Time(String),
    /// No length of time.
    #[error("{0:?} is not a valid length of time, like 1d12h")]
    Length(String),
    /// Beyond what 64 bits hold.
    #[error("the time is too far away")]
    TooFar,
}

/// Reads milliseconds since 1970, or RFC 3339.
pub fn parse_moment(text: &str) -> Result<Millis, MomentError> {
    let moment = text.parse().ok().or_else(|| parse_rfc3339(text));
    moment.ok_or_else(|| MomentError::Moment(text.to_owned()))
}

/// Reads RFC 3339. A second 60 is a leap second, which can be at 23:59 UTC alone.
pub fn parse_rfc3339(text: &str) -> Option<Millis> {
    let moment = DateTime::parse_from_rfc3339(text).ok()?;
    let utc = moment.to_utc();
    let is_leap = utc.nanosecond() >= 1_000_000_000;
    let may_be = !is_leap || (utc.hour(), utc.minute()) == (23, 59);
    may_be.then(|| utc.timestamp_millis())
}

/// Reads a length of time like `1d12h`, with a sign in front or none.
pub fn parse_length(text: &str) -> Result<Millis, MomentError> {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    let length =
        humantime::parse_duration(digits).map_err(|_| MomentError::Length(text.to_owned()))?;
    let millis = i64::try_from(length.as_millis()).map_err(|_| MomentError::TooFar)?;
    Ok(sign * millis)
}

/// A time of a day (UTC), `days` after the day of `now`.
pub fn time_of_day(now: Millis, days: i64, text: &str) -> Result<Millis, MomentError> {
    let time: NaiveTime = text
        .parse()
        .map_err(|_| MomentError::Time(text.to_owned()))?;
    let seconds = i64::from(time.num_seconds_from_midnight());
    let in_day = seconds * 1000 + i64::from(time.nanosecond() / 1_000_000);
    let day = now.div_euclid(DAY).checked_add(days);
    day.and_then(|day| day.checked_mul(DAY)?.checked_add(in_day))
        .ok_or(MomentError::TooFar)
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

/// A length of time as people read it, in whole minutes.
#[derive(Clone, Copy, Debug)]
pub struct LengthInWords(pub Millis);

impl fmt::Display for LengthInWords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let minutes = u64::try_from(self.0 / 60_000).unwrap_or(0);
        let length = Duration::from_secs(minutes.saturating_mul(60));
        write!(f, "{}", humantime::format_duration(length))
    }
}

/// The windows whose boundaries no usage may cross. All in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Granularity {
    /// 60,000 ms.
    Minute,
    /// 3,600,000 ms.
    Hour,
    /// 86,400,000 ms.
    Day,
    /// A month of the Gregorian calendar.
    Month,
}

impl Granularity {
    /// The number of the window that holds `moment`; equal numbers are the same window.
    pub fn window(self, moment: Millis) -> i64 {
        match self {
            Self::Minute => moment.div_euclid(60_000),
            Self::Hour => moment.div_euclid(HOUR),
            Self::Day => moment.div_euclid(DAY),
            Self::Month => month_of_day(moment.div_euclid(DAY)),
        }
    }

    /// The last boundary at or before `moment`.
    pub fn boundary(self, moment: Millis) -> Millis {
        self.first_of(self.window(moment))
    }

    /// The first boundary after `moment`.
    pub fn boundary_after(self, moment: Millis) -> Millis {
        self.first_of(self.window(moment).saturating_add(1))
    }

    /// Where a window begins, by its number.
    fn first_of(self, window: i64) -> Millis {
        let (first, length) = match self {
            Self::Minute => (window, 60_000),
            Self::Hour => (window, HOUR),
            Self::Day => (window, DAY),
            Self::Month => (first_day_of_month(window), DAY),
        };
        first.saturating_mul(length)
    }

    /// Whether one usage from `start` to `end`, in either direction, would be in two windows.
    pub fn is_crossed(self, start: Millis, end: Millis) -> bool {
        let (first, last) = (start.min(end), start.max(end));
        first < last && self.window(first) != self.window(last - 1)
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Minute => "minute",
            Self::Hour => "hour",
            Self::Day => "day",
            Self::Month => "month",
        }
    }
}

/// Months since January of the year 0, from days since 1970.
///
/// Years begin in March here, so that the leap day is the last of its year; 400 years have 146,097
/// days.
fn month_of_day(day: i64) -> i64 {
    let shifted = day.saturating_add(719_468);
    let (era, in_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year = (in_era - in_era / 1_460 + in_era / 36_524 - in_era / 146_096) / 365;
    let in_year = in_era - (365 * year + year / 4 - year / 100);
    let month_from_march = (5 * in_year + 2) / 153;
    (era * 400 + year) * 12 + month_from_march + 2
}

/// The first day of a month that [`month_of_day`] numbers, in days since 1970.
fn first_day_of_month(month: i64) -> i64 {
    let from_march = month - 2;
    let (year, month) = (from_march.div_euclid(12), from_march.rem_euclid(12));
    let (era, in_era) = (year.div_euclid(400), year.rem_euclid(400));
    let in_year = (153 * month + 2) / 5;
    era * 146_097 + in_era * 365 + in_era / 4 - in_era / 100 + in_year - 719_468
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(text: &str) -> Millis {
        parse_moment(text).unwrap()
    }

    #[test]
    fn moments_are_milliseconds_or_rfc_3339() {
        assert_eq!(at("1795186800000"), 1_795_186_800_000);
        assert_eq!(at("1970-01-01T01:00:00.005+01:00"), 5);
        assert!(parse_moment("yesterday").is_err());
        let new_year = at("2027-01-01T00:00:00Z");
        assert_eq!(at("2026-12-31T23:59:60Z"), new_year);
        assert_eq!(at("2027-01-01T04:29:60.000+04:30"), new_year);
        for wrong in [
            "2026-11-20T15:10:60Z",
            "2026-12-31T23:59:60+01:00",
            "2026-12-31T23:59:61Z",
        ] {
            assert!(parse_moment(wrong).is_err(), "{wrong}");
        }
        assert_eq!(parse_length("1d1h1m1s1ms"), Ok(90_061_001));
        assert_eq!(parse_length("-90m"), Ok(-5_400_000));
        for wrong in ["", "5", "--1h", "99999999999999d"] {
            assert!(parse_length(wrong).is_err(), "{wrong}");
        }
        let now = at("2026-11-22T13:00:00Z");
        let moment = time_of_day(now, -3, "10:30:00.250").unwrap();
        assert_eq!(moment, at("2026-11-19T10:30:00.250Z"));
        assert!(time_of_day(now, 0, "25:00:00").is_err());
        assert!(time_of_day(now, i64::MAX, "10:00:00").is_err());
    }

    #[test]
    fn moments_are_read_aloud() {
        let moment = at("2024-02-29T23:59:59.999Z");
        assert_eq!(InWords(moment).to_string(), "2024-02-29T23:59:59.999Z");
        assert_eq!(InWords(i64::MAX).to_string(), format!("{} ms", i64::MAX));
        assert_eq!(LengthInWords(10 * DAY + 90_000).to_string(), "10days 1m");
        assert_eq!(LengthInWords(-5).to_string(), "0s");
        assert!(!LengthInWords(i64::MAX).to_string().is_empty());
    }

    #[test]
    fn a_usage_may_touch_a_boundary_and_not_cross_it() {
        let (eve, year) = (at("2023-12-31T23:59:59.999Z"), at("2024-01-01T00:00:00Z"));
        for granularity in [
            Granularity::Minute,
            Granularity::Hour,
            Granularity::Day,
            Granularity::Month,
        ] {
            assert!(!granularity.is_crossed(eve, year), "{granularity:?}");
            assert!(!granularity.is_crossed(year, eve), "{granularity:?}");
            assert!(!granularity.is_crossed(year, year), "{granularity:?}");
            assert!(granularity.is_crossed(eve, year + 1), "{granularity:?}");
            assert!(granularity.is_crossed(year + 1, eve), "{granularity:?}");
            assert_eq!(granularity.boundary(year), year);
            assert_eq!(granularity.boundary_after(eve), year);
            assert!(granularity.boundary_after(year) > year);
        }
        assert_eq!(Granularity::Month.boundary(eve), at("2023-12-01T00:00:00Z"));
        assert_eq!(
            Granularity::Month.boundary(at("2024-02-29T12:00:00Z")),
            at("2024-02-01T00:00:00Z")
        );
        assert_eq!(Granularity::Day.boundary(eve), at("2023-12-31T00:00:00Z"));
    }

    proptest! {
        /// A second calendar, from a library.
        #[test]
        fn months_are_those_of_the_calendar(moment in 0_i64..253_402_300_800_000) {
            use chrono::Datelike;
            let date = DateTime::from_timestamp_millis(moment).unwrap();
            let month = i64::from(date.year()) * 12 + i64::from(date.month0());
            prop_assert_eq!(Granularity::Month.window(moment), month);
            let first = DateTime::from_timestamp_millis(Granularity::Month.boundary(moment)).unwrap();
            prop_assert_eq!((first.day(), first.month()), (1, date.month()));
            prop_assert_eq!(first.time(), NaiveTime::MIN);
        }

        #[test]
        fn no_moment_is_too_far(moment: i64, other: i64) {
            for granularity in [Granularity::Minute, Granularity::Month] {
                granularity.boundary(moment);
                granularity.boundary_after(moment);
                granularity.is_crossed(moment, other);
            }
        }
    }
}
