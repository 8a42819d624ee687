//! The positions of times in the drawing.

use std::fmt;

use sampler_domain::Timestamp;

/// The least width of the drawing on a narrow page, and on a wide one, from 720 px on, in px.
pub(crate) const NARROW: f64 = 296.0;
pub(crate) const WIDE: f64 = 672.0;

/// The most that a character of a label takes, in px.
pub(crate) const CHARACTER: f64 = 7.0;

/// A place along the time, or a width, in percent of the drawing.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub(crate) struct Percent(pub(crate) f64);

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3}%", self.0)
    }
}

/// The time that is drawn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale {
    pub(crate) from: Timestamp,
    pub(crate) to: Timestamp,
}

impl Scale {
    pub(crate) fn new(from: Timestamp, to: Timestamp) -> Self {
        let to = to.max(from.plus(1));
        Self { from, to }
    }

    /// In ms.
    pub(crate) fn length(self) -> i64 {
        self.to.since(self.from).max(1)
    }

    /// How much of the drawing a length of time takes.
    pub(crate) fn width(self, millis: i64) -> Percent {
        Percent(millis as f64 * 100.0 / self.length() as f64)
    }

    /// The position of a time; none outside the drawing.
    pub(crate) fn place(self, at: Timestamp) -> Option<Percent> {
        (self.from..=self.to)
            .contains(&at)
            .then(|| self.width(at.since(self.from)))
    }

    /// Where a stretch of time begins and how wide it is, as far as it is drawn.
    pub(crate) fn stretch(self, one: Timestamp, other: Timestamp) -> Option<(Percent, Percent)> {
        let (low, high) = (one.min(other).max(self.from), one.max(other).min(self.to));
        (low <= high && low < self.to).then(|| {
            let x = self.width(low.since(self.from));
            (x, self.width(high.since(low)))
        })
    }
}
