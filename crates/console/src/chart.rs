//! Bars of the sums of usages, one for each window. A bar goes downwards if more was taken back
//! than billed in its window.

use std::collections::BTreeMap;

use askama::Template;
use askama::filters::HtmlSafe;
use sampler_api::Sum;
use sampler_domain::{Granularity, Timestamp};

use crate::estimate::counted;
use crate::show::{self, in_words};

/// Pixels of the longest bar.
const HEIGHT: f64 = 120.0;

/// Half of the width of a label on a narrow screen, in percent; and where the last one begins to leave
/// the drawing.
const LABEL_HALF: f64 = 5.0;
const LEAST_LAST: f64 = 95.0;

/// Windows of one query at the most.
const WINDOWS_MAX: usize = 366;

#[derive(Template)]
#[template(path = "chart.html")]
pub(crate) struct Chart {
    bars: Vec<Bar>,
    /// Where nothing is, in pixels from above.
    zero: f64,
    height: f64,
    most: String,
    description: String,
}

struct Bar {
    x: f64,
    width: f64,
    y: f64,
    height: f64,
    is_negative: bool,
    title: String,
    label: Option<Label>,
}

/// The text below a bar: in its middle, or at the edge of the drawing where it would leave that.
struct Label {
    text: String,
    x: f64,
    anchor: &'static str,
}

impl Label {
    fn new(text: String, middle: f64) -> Self {
        let (x, anchor) = match middle {
            ..LABEL_HALF => (0.0, "start"),
            LEAST_LAST.. => (100.0, "end"),
            _ => (middle, "middle"),
        };
        Self { text, x, anchor }
    }
}

impl Chart {
    /// Draws the durations of rows by their windows; none where there is nothing to compare.
    pub(crate) fn of(rows: &[Sum]) -> Option<Self> {
        let mut sums: BTreeMap<(Timestamp, Timestamp), i128> = BTreeMap::new();
        for row in rows {
            let sum = sums.entry((row.window.start, row.window.end)).or_default();
            *sum += i128::from(row.millis()?);
        }
        fill(&mut sums);
        let most = sums.values().copied().max()?.max(0);
        let least = sums.values().copied().min()?.min(0);
        if most == least || sums.len() < 2 {
            return None;
        }
        let scale = HEIGHT / (most - least) as f64;
        let zero = most as f64 * scale;
        let width = 100.0 / sums.len() as f64;
        let each = sums.len().div_ceil(8);
        let bars = sums.iter().enumerate().map(|(index, ((start, end), sum))| {
            let length = *sum as f64 * scale;
            let x = index as f64 * width;
            let held = i64::try_from(*sum).unwrap_or(i64::MAX);
            Bar {
                x: x + width * 0.08,
                width: width * 0.84,
                y: zero - length.max(0.0),
                height: length.abs().max(0.5),
                is_negative: *sum < 0,
                title: format!("{start} to {end}: {} ({sum} ms)", in_words(held)),
                label: (index % each == 0)
                    .then(|| Label::new(label(*start, *end), x + width / 2.0)),
            }
        });
        Some(Self {
            bars: bars.collect(),
            zero,
            height: HEIGHT,
            most: in_words(i64::try_from(most).unwrap_or(i64::MAX)),
            description: format!("The duration of usages in {} windows.", sums.len()),
        })
    }
}

/// Adds the windows between the first and the last that have no usage: a gap in time is a gap in the
/// drawing.
fn fill(sums: &mut BTreeMap<(Timestamp, Timestamp), i128>) {
    let finest = Granularity::ALL.into_iter().find(|granularity| {
        sums.keys().all(|(start, end)| {
            let next = granularity.boundary_after(*start);
            next.is_some_and(|next| *end <= next)
        })
    });
    let Some(granularity) = finest else {
        return;
    };
    let (Some((_, first)), Some((last, _))) = (
        sums.keys().next().copied(),
        sums.keys().next_back().copied(),
    ) else {
        return;
    };
    let mut at = first;
    for _ in 0..WINDOWS_MAX {
        let Some(next) = granularity.boundary_after(at) else {
            return;
        };
        if next > last {
            return;
        }
        sums.entry((at, next)).or_default();
        at = next;
    }
}

fn label(start: Timestamp, end: Timestamp) -> String {
    const DAY: i64 = 86_400_000;
    let date = show::date(start);
    if end.since(start) > DAY {
        return date[..7].to_owned();
    }
    if end.since(start) == DAY {
        return date[5..].to_owned();
    }
    show::clock(start)[..5].to_owned()
}

impl HtmlSafe for Chart {}

/// Pixels of a trend.
const TREND_HEIGHT: f64 = 48.0;

/// The number of due spans over time. A bar spans two times, and has the height at the first.
#[derive(Template)]
#[template(path = "trend.html")]
pub(crate) struct Trend {
    bars: Vec<Bar>,
    height: f64,
    description: String,
}

impl Trend {
    /// Draws backlogs in the order of their times; none if there is only one.
    pub(crate) fn of(backlogs: &[(Timestamp, i64)]) -> Option<Self> {
        let [(first, begun), .., (last, due)] = backlogs else {
            return None;
        };
        let most = backlogs.iter().map(|(_, due)| *due).max()?.max(1);
        let all = last.since(*first).max(1) as f64;
        let bars = backlogs.windows(2).filter_map(|pair| {
            let [(from, due), (to, _)] = pair else {
                return None;
            };
            let height = *due as f64 * TREND_HEIGHT / most as f64;
            let [x, end] = [from, to].map(|at| at.since(*first) as f64 * 100.0 / all);
            Some(Bar {
                x,
                width: end - x,
                y: TREND_HEIGHT - height,
                height,
                is_negative: false,
                title: format!("{from}: {due}"),
                label: None,
            })
        });
        Some(Self {
            bars: bars.collect(),
            height: TREND_HEIGHT,
            description: in_a_sentence(&(*first, *begun), most, &(*last, *due)),
        })
    }
}

/// The labels of a trend: where it began, its highest bar where that is neither end, and where it is now.
fn in_a_sentence(first: &(Timestamp, i64), most: i64, last: &(Timestamp, i64)) -> String {
    let ago = in_words(last.0.since(first.0) / 1_000 * 1_000);
    let begun = counted(first.1, "span");
    let [now, highest] = [last.1, most].map(show::grouped);
    let between = if most > first.1.max(last.1).max(1) {
        format!(", {highest} at most")
    } else {
        String::new()
    };
    format!("{begun} due {ago} ago{between}, {now} now")
}

impl HtmlSafe for Trend {}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_trend_names_its_highest_bar() {
        let moments = |all: [i64; 3]| {
            let moment = |(second, due): (i64, i64)| (Timestamp::clamped(second * 1_000), due);
            let moments: Vec<_> = (0..).zip(all).map(moment).collect();
            Trend::of(&moments).unwrap().description
        };
        let told = moments([3, 4_000, 5]).replace('\u{a0}', " ");
        assert_eq!(told, "3 spans due 2 s ago, 4,000 at most, 5 now");
        let told = moments([30, 4, 5]).replace('\u{a0}', " ");
        assert_eq!(told, "30 spans due 2 s ago, 5 now");
        assert!(Trend::of(&[(Timestamp::clamped(0), 3)]).is_none());
    }

    #[test]
    fn days_without_usage_are_gaps_in_the_drawing() {
        const DAY: i64 = 86_400_000;
        let row = |start: i64, end: i64| -> Sum {
            let sum = json!({
                "window": { "start": start, "end": end }, "group": {}, "usages": 1,
                "duration": 3_600_000, "measures": [],
            });
            serde_json::from_value(sum).unwrap()
        };
        // The first and the last are cut off by what was asked for.
        let rows = [
            row(DAY / 2, DAY),
            row(3 * DAY, 4 * DAY),
            row(5 * DAY, 5 * DAY + 7),
        ];
        let chart = Chart::of(&rows).unwrap();
        assert_eq!(chart.bars.len(), 6);
        let empty = chart.bars.iter().filter(|bar| bar.title.contains("(0 ms)"));
        assert_eq!(empty.count(), 3);
    }

    #[test]
    fn a_label_stays_within_the_drawing() {
        for (middle, place) in [
            (0.8, (0.0, "start")),
            (50.0, (50.0, "middle")),
            (99.2, (100.0, "end")),
        ] {
            let label = Label::new(String::new(), middle);
            assert_eq!((label.x, label.anchor), place);
        }
    }
}
