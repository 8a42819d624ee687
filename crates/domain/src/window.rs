//! The windows by which usages are summed up: of the calendar, in UTC.

use serde::Serialize;

use crate::{Granularity, Timestamp, named};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WindowLength {
    Hour,
    Day,
    Month,
    /// All the time that is asked for.
    #[default]
    All,
}

/// A stretch of time: from `start` up to, but without, `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Window {
    /// Its first millisecond.
    pub start: Timestamp,
    /// The first millisecond after it.
    pub end: Timestamp,
}

// From the shortest to the longest.
named! { pub WindowLength: Hour = "hour", Day = "day", Month = "month", All = "all" }

impl WindowLength {
    /// The windows of this length between two times, in order, if there are no more than `max`.
    /// The first and the last one are cut off there.
    pub fn windows(self, from: Timestamp, to: Timestamp, max: usize) -> Option<Vec<Window>> {
        let (mut windows, mut start) = (Vec::new(), from);
        while start < to {
            if windows.len() == max {
                return None;
            }
            let boundary = self.granularity().and_then(|it| it.boundary_after(start));
            let end = boundary.unwrap_or(to).min(to);
            windows.push(Window { start, end });
            start = end;
        }
        Some(windows)
    }

    const fn granularity(self) -> Option<Granularity> {
        match self {
            Self::Hour => Some(Granularity::Hour),
            Self::Day => Some(Granularity::Day),
            Self::Month => Some(Granularity::Month),
            Self::All => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timestamp::at;

    fn shown(length: WindowLength, from: &str, to: &str) -> Vec<String> {
        let windows = length.windows(at(from), at(to), 366).unwrap();
        let shown = |window: Window| format!("{} {}", window.start, window.end);
        windows.into_iter().map(shown).collect()
    }

    #[test]
    fn the_first_and_the_last_window_are_cut_off() {
        let (from, to) = ("2024-01-31T23:30:00Z", "2024-03-01T00:00:00.001Z");
        assert_eq!(
            shown(WindowLength::Month, from, to),
            [
                "2024-01-31T23:30:00.000Z 2024-02-01T00:00:00.000Z",
                "2024-02-01T00:00:00.000Z 2024-03-01T00:00:00.000Z",
                "2024-03-01T00:00:00.000Z 2024-03-01T00:00:00.001Z",
            ]
        );
        assert_eq!(shown(WindowLength::Day, from, to).len(), 31);
        assert_eq!(
            shown(
                WindowLength::Hour,
                "2024-02-29T10:00:00Z",
                "2024-02-29T11:00:00Z"
            ),
            ["2024-02-29T10:00:00.000Z 2024-02-29T11:00:00.000Z"]
        );
        assert_eq!(shown(WindowLength::All, from, to).len(), 1);
    }

    #[test]
    fn there_are_no_more_than_asked_for() {
        let (from, to) = (at("2024-01-01T00:00:00Z"), at("2025-01-01T00:00:00Z"));
        assert_eq!(WindowLength::Day.windows(from, to, 366).unwrap().len(), 366);
        assert_eq!(WindowLength::Day.windows(from, to.plus(1), 366), None);
        assert_eq!(
            WindowLength::Hour.windows(Timestamp::MIN, Timestamp::MAX, 366),
            None
        );
        let all = WindowLength::All.windows(Timestamp::MIN, Timestamp::MAX, 366);
        assert_eq!(all.unwrap().len(), 1);
        let month = WindowLength::Month.windows(Timestamp::MAX.plus(-1), Timestamp::MAX, 1);
        assert_eq!(month.unwrap().len(), 1);
    }

    #[test]
    fn names_are_read_as_they_are_written() {
        for length in WindowLength::ALL {
            assert_eq!(WindowLength::from_name(length.name()), Some(length));
        }
        assert_eq!(WindowLength::from_name("minute"), None);
    }
}
