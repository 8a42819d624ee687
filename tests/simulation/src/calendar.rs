//! Lengths of time, and days of the calendar.

/// A minute in ms.
pub(crate) const MINUTE: i64 = 60_000;

/// An hour in ms.
pub(crate) const HOUR: i64 = 60 * MINUTE;

/// A day in ms.
pub(crate) const DAY: i64 = 24 * HOUR;

/// The moment at the start of a day of the calendar, in ms since 1970.
pub(crate) fn midnight(year: i64, month: usize, day: i64) -> i64 {
    let is_leap = |year: i64| year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let years: i64 = (1970..year)
        .map(|year| 365 + i64::from(is_leap(year)))
        .sum();
    let february = 28 + i64::from(is_leap(year));
    let months = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let months: i64 = months[..month - 1].iter().sum();
    (years + months + day - 1) * DAY
}
