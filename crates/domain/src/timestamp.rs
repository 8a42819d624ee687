//! A point in time.

use std::fmt;

use chrono::{DateTime, SecondsFormat, Timelike, Utc};
use serde::{Deserialize, Serialize};

/// A time: whole milliseconds since 1970-01-01T00:00:00 UTC, up to 10000-01-01T00:00:00 UTC.
///
/// The upper limit is a boundary of every granularity, so an interval that starts below it always
/// finds its end; every value is exact as a BSON double, the type the original Sampler writes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "i64", into = "i64")]
pub struct Timestamp(i64);

/// A number of milliseconds that is not a [`Timestamp`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} ms is outside 0 (the year 1970) to 253402300800000 (the year 10000)")]
pub struct TimestampError(pub i64);

impl Timestamp {
    /// 1970-01-01T00:00:00 UTC.
    pub const MIN: Self = Self(0);
    /// 10000-01-01T00:00:00 UTC.
    pub const MAX: Self = Self(253_402_300_800_000);

    /// Takes milliseconds since the epoch.
    pub const fn new(millis: i64) -> Result<Self, TimestampError> {
        if millis < Self::MIN.0 || millis > Self::MAX.0 {
            return Err(TimestampError(millis));
        }
        Ok(Self(millis))
    }

    /// The nearest timestamp to `millis`, for clocks and arithmetic, never for input.
    pub const fn clamped(millis: i64) -> Self {
        if millis < Self::MIN.0 {
            Self::MIN
        } else if millis > Self::MAX.0 {
            Self::MAX
        } else {
            Self(millis)
        }
    }

    pub const fn as_millis(self) -> i64 {
        self.0
    }

    /// Reads what people write: whole milliseconds since the epoch, or RFC 3339, where anything
    /// finer than milliseconds is cut off.
    pub fn from_text(text: &str) -> Option<Self> {
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let millis = if is_number {
            text.parse().ok()?
        } else {
            of_rfc_3339(text)?
        };
        Self::new(millis).ok()
    }

    /// `millis` later (earlier where negative), held at the limits of the type.
    #[must_use]
    pub const fn plus(self, millis: i64) -> Self {
        Self::clamped(self.0.saturating_add(millis))
    }

    /// Milliseconds from `earlier` to `self`; negative where `earlier` is later.
    pub const fn since(self, earlier: Self) -> i64 {
        self.0 - earlier.0
    }

    /// The same time for calendar arithmetic.
    pub(crate) fn to_utc(self) -> DateTime<Utc> {
        DateTime::from_timestamp_millis(self.0).expect("chrono reaches far beyond the year 10000")
    }
}

impl TryFrom<i64> for Timestamp {
    type Error = TimestampError;
    fn try_from(millis: i64) -> Result<Self, Self::Error> {
        Self::new(millis)
    }
}

impl From<Timestamp> for i64 {
    fn from(timestamp: Timestamp) -> Self {
        timestamp.0
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_utc().to_rfc3339_opts(SecondsFormat::Millis, true))
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Milliseconds since the epoch. Second 60 is a leap second: there are none but at the end of a day, UTC.
fn of_rfc_3339(text: &str) -> Option<i64> {
    let time = DateTime::parse_from_rfc3339(text).ok()?.to_utc();
    let is_leap = time.nanosecond() >= 1_000_000_000;
    let is_end_of_day = (time.hour(), time.minute()) == (23, 59);
    (!is_leap || is_end_of_day).then(|| time.timestamp_millis())
}

#[cfg(test)]
pub(crate) fn at(text: &str) -> Timestamp {
    Timestamp::from_text(text).unwrap()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holds_only_the_years_1970_to_10000() {
        assert_eq!(Timestamp::new(-1), Err(TimestampError(-1)));
        assert_eq!(Timestamp::new(0), Ok(Timestamp::MIN));
        assert_eq!(Timestamp::new(253_402_300_800_000), Ok(Timestamp::MAX));
        assert!(Timestamp::new(253_402_300_800_001).is_err());
        assert!(Timestamp::new(i64::MAX).is_err());
    }

    #[test]
    fn arithmetic_stays_within_the_type() {
        assert_eq!(Timestamp::MAX.plus(i64::MAX), Timestamp::MAX);
        assert_eq!(Timestamp::MIN.plus(i64::MIN), Timestamp::MIN);
        assert_eq!(Timestamp::MIN.since(Timestamp::MAX), -253_402_300_800_000);
    }

    #[test]
    fn is_read_as_milliseconds_or_as_a_date() {
        let time = Timestamp::new(1_533_254_400_000).ok();
        for text in [
            "1533254400000",
            "2018-08-03T00:00:00Z",
            "2018-08-03T00:00:00.000Z",
            "2018-08-03T02:00:00+02:00",
            "2018-08-03t00:00:00.0009999z",
            "2018-08-02T23:59:60Z",
            "2018-08-03T01:59:60+02:00",
        ] {
            assert_eq!(Timestamp::from_text(text), time, "{text}");
        }
        for text in [
            "",
            "-1",
            "+1",
            "1.5",
            "1e3",
            " 1",
            "soon",
            "2018-08-03",
            "2018-08-03T00:00:00",
            "1969-12-31T23:59:59Z",
            "2018-08-03T00:00:60Z",
            "2018-08-03T23:58:60Z",
            "2018-08-03T23:59:60+02:00",
            "2018-08-03T23:59:61Z",
            "253402300800001",
            "99999999999999999999",
        ] {
            assert_eq!(Timestamp::from_text(text), None, "{text}");
        }
    }

    #[test]
    fn reads_as_a_date() {
        let time = Timestamp::new(1_533_254_400_000).unwrap();
        assert_eq!(time.to_string(), "2018-08-03T00:00:00.000Z");
    }
}
