//! Times and usages, small enough to be told apart by a byte.
//!
//! A place is a multiple of half an hour: half a window by the hour. The boundary between two days is at
//! place 6.

use std::fmt;

use sampler_domain::{Interval, Span, Timestamp, usage_guid};

/// 2026-03-10T21:00:00 UTC: place 0.
const ORIGIN: i64 = 1_773_176_400_000;
/// From a place to the next one, ms.
pub(crate) const HALF_WINDOW: i64 = 30 * 60_000;
/// Places are below this.
const PLACES: u8 = 10;

/// The id that another program gave to the usage of the first window.
pub(crate) const FOREIGN_GUID: &str = "foreign";

pub(crate) fn at(place: u8) -> Timestamp {
    Timestamp::clamped(ORIGIN + i64::from(place) * HALF_WINDOW)
}

pub(crate) fn place(time: Timestamp) -> u8 {
    let place = time.as_millis() - ORIGIN;
    let is_one =
        place % HALF_WINDOW == 0 && (0..i64::from(PLACES)).contains(&(place / HALF_WINDOW));
    assert!(is_one, "{time} is no place");
    (place / HALF_WINDOW) as u8
}

/// A usage: from where to where it leads.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Stretch(u8);

/// Usages, one bit for each.
pub(crate) type Stretches = u128;

impl Stretch {
    /// The usage of the first window under [`FOREIGN_GUID`].
    pub(crate) const FOREIGN: Self = Self(PLACES * PLACES);
    /// A usage under an id that follows from nothing.
    pub(crate) const STRAY: Self = Self(PLACES * PLACES + 1);

    pub(crate) fn new(from: u8, to: u8) -> Self {
        Self(from * PLACES + to)
    }

    pub(crate) fn over(interval: Interval) -> Self {
        Self::new(place(interval.start), place(interval.end))
    }

    /// The usage of this id, which is said to be over this interval.
    pub(crate) fn of(span: &Span, guid: &str, interval: Interval) -> Self {
        if guid == usage_guid(span, interval) {
            return Self::over(interval);
        }
        if guid == FOREIGN_GUID {
            return Self::FOREIGN;
        }
        let mut all = (0..PLACES * PLACES).map(Self);
        let same = all.find(|it| guid == usage_guid(span, it.interval()));
        same.unwrap_or(Self::STRAY)
    }

    pub(crate) fn interval(self) -> Interval {
        let (from, to) = self.ends();
        Interval {
            start: at(from),
            end: at(to),
        }
    }

    pub(crate) fn ends(self) -> (u8, u8) {
        if self >= Self::FOREIGN {
            return (0, 2);
        }
        (self.0 / PLACES, self.0 % PLACES)
    }

    pub(crate) fn len(self) -> i32 {
        let (from, to) = self.ends();
        i32::from(to) - i32::from(from)
    }

    pub(crate) fn leads_on(self) -> bool {
        self.len() > 0
    }

    pub(crate) fn set(self) -> Stretches {
        1 << self.0
    }

    pub(crate) fn is_in(self, set: Stretches) -> bool {
        set & self.set() != 0
    }

    /// The lower and the upper end.
    pub(crate) fn range(self) -> (u8, u8) {
        let (from, to) = self.ends();
        (from.min(to), from.max(to))
    }

    /// The places within it, one bit for each.
    pub(crate) fn inside(self) -> u16 {
        let (low, high) = self.range();
        (low + 1..high).fold(0, |set, place| set | 1 << place)
    }
}

pub(crate) fn each(mut set: Stretches) -> impl Iterator<Item = Stretch> {
    std::iter::from_fn(move || {
        let first = (set != 0).then(|| set.trailing_zeros() as u8)?;
        set &= set - 1;
        Some(Stretch(first))
    })
}

impl fmt::Debug for Stretch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Stretch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (from, to) = self.ends();
        write!(f, "[{from} to {to}]")?;
        match *self {
            Self::FOREIGN => f.write_str(" under a foreign id"),
            Self::STRAY => f.write_str(" under a stray id"),
            _ => Ok(()),
        }
    }
}
