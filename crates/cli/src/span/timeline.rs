//! A span drawn over time, in characters that every terminal has.

use std::fmt::Write;

use sampler_verify::moment::{InWords, Millis};

/// Room for the names of the rows.
const NAMES: usize = 11;

#[derive(Clone, Copy, Debug)]
pub(super) struct Bar {
    pub(super) from: Millis,
    /// Before `from` where usage is taken back.
    pub(super) to: Millis,
    /// Whether it is answered for good.
    pub(super) is_done: bool,
}

/// The content of a drawing.
#[derive(Debug)]
pub(super) struct Timeline {
    pub(super) start: Millis,
    pub(super) end: Option<Millis>,
    pub(super) sampled_to: Millis,
    pub(super) bars: Vec<Bar>,
}

impl Timeline {
    /// The rows, in at most `width` columns. A row without anything is left out.
    pub(super) fn draw(&self, width: usize) -> String {
        let (first, last) = self.bounds();
        let canvas = Canvas {
            first,
            last,
            columns: width.saturating_sub(NAMES).max(1),
        };
        let (done, to_come): (Vec<&Bar>, Vec<_>) = self.bars.iter().partition(|bar| bar.is_done);
        let (forwards, backwards): (Vec<&Bar>, Vec<_>) =
            done.into_iter().partition(|bar| bar.from <= bar.to);
        let windows = self.bars.iter().flat_map(|bar| [bar.from, bar.to]);
        let rows = [
            ("windows", canvas.points(windows.chain([first]), '|')),
            ("forwards", canvas.lengths(&forwards, '=')),
            ("backwards", canvas.lengths(&backwards, '<')),
            ("planned", canvas.lengths(&to_come, '.')),
            ("stop", canvas.points(self.end.into_iter(), '^')),
        ];
        let mut text = canvas.axis();
        for (name, row) in rows {
            if !row.trim().is_empty() {
                let _ = writeln!(text, "{name:NAMES$}{}", row.trim_end());
            }
        }
        text
    }

    /// The first and the last time of all.
    fn bounds(&self) -> (Millis, Millis) {
        let bars = self.bars.iter().flat_map(|bar| [bar.from, bar.to]);
        let all = bars.chain([self.start, self.sampled_to]).chain(self.end);
        all.fold((self.start, self.start), |(first, last), moment| {
            (first.min(moment), last.max(moment))
        })
    }
}

struct Canvas {
    first: Millis,
    last: Millis,
    columns: usize,
}

impl Canvas {
    fn column(&self, moment: Millis) -> usize {
        let length = i128::from(self.last) - i128::from(self.first);
        let distance = i128::from(moment) - i128::from(self.first);
        let columns = self.columns - 1;
        if length == 0 {
            return 0;
        }
        let column = distance * columns as i128 / length;
        usize::try_from(column).unwrap_or(0).min(columns)
    }

    fn points(&self, moments: impl Iterator<Item = Millis>, sign: char) -> String {
        let mut row = vec![' '; self.columns];
        for moment in moments {
            row[self.column(moment)] = sign;
        }
        row.into_iter().collect()
    }

    fn lengths(&self, bars: &[&Bar], sign: char) -> String {
        let mut row = vec![' '; self.columns];
        for bar in bars {
            let (from, to) = (bar.from.min(bar.to), bar.from.max(bar.to));
            row[self.column(from)..=self.column(to)].fill(sign);
        }
        row.into_iter().collect()
    }

    /// The times at both ends.
    fn axis(&self) -> String {
        let (first, last) = (
            InWords(self.first).to_string(),
            InWords(self.last).to_string(),
        );
        let room = self.columns.saturating_sub(first.len());
        format!("{:NAMES$}{first}{last:>room$}\n", "")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Millis = 3_600_000;

    fn bar(from: Millis, to: Millis, is_done: bool) -> Bar {
        let (from, to) = (from * HOUR, to * HOUR);
        Bar { from, to, is_done }
    }

    #[test]
    fn a_late_stop_is_seen() {
        let timeline = Timeline {
            start: 0,
            end: Some(15 * HOUR),
            sampled_to: 20 * HOUR,
            bars: vec![
                bar(0, 10, true),
                bar(10, 30, true),
                bar(30, 20, true),
                bar(20, 15, false),
            ],
        };
        let text = timeline.draw(NAMES + 61);
        let expected = "           1970-01-01T00:00:00.000Z             1970-01-02T06:00:00.000Z\n\
                        windows    |                   |         |         |                   |\n\
                        forwards   =============================================================\n\
                        backwards                                          <<<<<<<<<<<<<<<<<<<<<\n\
                        planned                                  ...........\n\
                        stop                                     ^\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn nothing_is_drawn_of_no_time() {
        let timeline = Timeline {
            start: 5,
            end: Some(5),
            sampled_to: 5,
            bars: Vec::new(),
        };
        let text = timeline.draw(40);
        assert!(text.contains("\nwindows    |\nstop       ^\n"), "{text}");
    }

    #[test]
    fn no_moment_is_too_far() {
        let timeline = Timeline {
            start: i64::MIN,
            end: Some(i64::MAX),
            sampled_to: 0,
            bars: vec![Bar {
                from: i64::MIN,
                to: i64::MAX,
                is_done: true,
            }],
        };
        assert!(timeline.draw(60).contains("forwards"));
    }
}
