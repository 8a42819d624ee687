//! The calendar, written the slow and obvious way: an oracle for the real one.
//!
//! It counts years, months and days one by one from 1970 and shares no code, and no idea, with
//! what it checks.

use sampler_domain::Granularity;

pub(crate) const MINUTE: i64 = 60_000;
pub(crate) const HOUR: i64 = 60 * MINUTE;
pub(crate) const DAY: i64 = 24 * HOUR;

/// A month: a year such as 2026, and 1 to 12.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Month {
    year: i64,
    month: i64,
}

/// Whether a year has 366 days.
fn is_leap(year: i64) -> bool {
    year % 400 == 0 || year % 4 == 0 && year % 100 != 0
}

impl Month {
    /// How many days it has.
    pub(crate) fn days(self) -> i64 {
        match self.month {
            4 | 6 | 9 | 11 => 30,
            2 if is_leap(self.year) => 29,
            2 => 28,
            _ => 31,
        }
    }

    /// The month after it.
    fn next(self) -> Self {
        let (year, month) = match self.month {
            12 => (self.year + 1, 1),
            month => (self.year, month + 1),
        };
        Self { year, month }
    }
}

/// All months from January 1970 up to and with December 9999, each with its first moment in ms.
pub(crate) fn months() -> impl Iterator<Item = (Month, i64)> {
    let mut month = Month {
        year: 1970,
        month: 1,
    };
    let mut start = 0;
    std::iter::from_fn(move || {
        if month.year == 10_000 {
            return None;
        }
        let this = (month, start);
        start += month.days() * DAY;
        month = month.next();
        Some(this)
    })
}

/// The moment at the start of a day of the calendar, in ms.
///
/// # Panics
/// Where there is no such day between the years 1970 and 9999.
pub(crate) fn midnight(year: i64, month: i64, day: i64) -> i64 {
    let wanted = Month { year, month };
    let (month, start) = months()
        .find(|(month, _)| *month == wanted)
        .expect("a month of the years 1970 to 9999");
    assert!((1..=month.days()).contains(&day), "there is no day {day}");
    start + (day - 1) * DAY
}

/// Every boundary between two windows after `from` and before `to`, found by walking through the
/// calendar month by month, day by day, hour by hour, minute by minute.
fn boundaries(window: Granularity, from: i64, to: i64) -> Vec<i64> {
    let mut found = Vec::new();
    let mut tick = |moment: i64| {
        if from < moment && moment < to {
            found.push(moment);
        }
    };
    for (month, start) in months() {
        if start >= to {
            break;
        }
        if start + month.days() * DAY <= from {
            continue;
        }
        if window == Granularity::Month {
            tick(start);
            continue;
        }
        for day in 0..month.days() {
            walk_day(window, start + day * DAY, &mut tick);
        }
    }
    found
}

fn walk_day(window: Granularity, midnight: i64, tick: &mut impl FnMut(i64)) {
    for hour in 0..24 {
        for minute in 0..60 {
            let is_boundary = match window {
                Granularity::Minute => true,
                Granularity::Hour => minute == 0,
                Granularity::Day | Granularity::Month => minute == 0 && hour == 0,
            };
            if is_boundary {
                tick(midnight + hour * HOUR + minute * MINUTE);
            }
        }
    }
}

/// The pieces, from first to last, into which the boundaries cut what lies from `start` to `end`;
/// none where nothing lies between.
pub(crate) fn pieces(window: Granularity, start: i64, end: i64) -> Vec<(i64, i64)> {
    if start == end {
        return Vec::new();
    }
    let mut cuts = vec![start];
    cuts.extend(boundaries(window, start, end));
    cuts.push(end);
    cuts.windows(2).map(|pair| (pair[0], pair[1])).collect()
}
