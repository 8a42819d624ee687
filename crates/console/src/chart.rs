//! Bars of the sums of usages, one for each window. A bar goes downwards if more was taken back
//! than billed in its window.

use std::collections::BTreeMap;

use askama::Template;
use askama::filters::HtmlSafe;
use sampler_domain::Timestamp;

use crate::documents::Sum;
use crate::show::{self, in_words};

/// Pixels of the longest bar.
const HEIGHT: f64 = 120.0;

/// The drawing.
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
    middle: f64,
    y: f64,
    height: f64,
    is_negative: bool,
    title: String,
    label: Option<String>,
}

impl Chart {
    /// Draws the durations of rows by their windows; none where there is nothing to compare.
    pub(crate) fn of(rows: &[Sum]) -> Option<Self> {
        let mut sums: BTreeMap<(Timestamp, Timestamp), i128> = BTreeMap::new();
        for row in rows {
            let sum = sums.entry((row.window.start, row.window.end)).or_default();
            *sum += i128::from(row.millis()?);
        }
        let most = sums.values().copied().max()?.max(0);
        let least = sums.values().copied().min()?.min(0);
        if most == least || sums.len() < 2 {
            return None;
        }
        let scale = HEIGHT / (most - least) as f64;
        let zero = most as f64 * scale;
        let width = 100.0 / sums.len() as f64;
        let each = sums.len().div_ceil(8);
        let bar = |(index, ((start, end), sum)): (usize, (&(Timestamp, Timestamp), &i128))| {
            let length = *sum as f64 * scale;
            let x = index as f64 * width;
            let held = i64::try_from(*sum).unwrap_or(i64::MAX);
            Bar {
                x: x + width * 0.08,
                width: width * 0.84,
                middle: x + width / 2.0,
                y: zero - length.max(0.0),
                height: length.abs().max(0.5),
                is_negative: *sum < 0,
                title: format!("{start} to {end}: {} ({sum} ms)", in_words(held)),
                label: (index % each == 0).then(|| label(*start, *end)),
            }
        };
        Some(Self {
            bars: sums.iter().enumerate().map(bar).collect(),
            zero,
            height: HEIGHT,
            most: in_words(i64::try_from(most).unwrap_or(i64::MAX)),
            description: format!("The duration of usages in {} windows.", sums.len()),
        })
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

/// The number of due spans over the time in which the page was read.
#[derive(Template)]
#[template(path = "trend.html")]
pub(crate) struct Trend {
    bars: Vec<Bar>,
    height: f64,
    description: String,
}

impl Trend {
    /// Draws what is remembered; none where that is one moment.
    pub(crate) fn of(backlogs: &[(Timestamp, i64)]) -> Option<Self> {
        let [(first, begun), .., (last, due)] = backlogs else {
            return None;
        };
        let most = backlogs.iter().map(|(_, due)| *due).max()?.max(1);
        let width = 100.0 / backlogs.len() as f64;
        let bar = |(index, (at, due)): (usize, &(Timestamp, i64))| {
            let height = *due as f64 * TREND_HEIGHT / most as f64;
            let x = index as f64 * width;
            Bar {
                x,
                width,
                middle: x + width / 2.0,
                y: TREND_HEIGHT - height,
                height,
                is_negative: false,
                title: format!("{at}: {due}"),
                label: None,
            }
        };
        Some(Self {
            bars: backlogs.iter().enumerate().map(bar).collect(),
            height: TREND_HEIGHT,
            description: format!(
                "{} spans due {} ago, {} now",
                show::grouped(*begun),
                in_words(last.since(*first) / 1_000 * 1_000),
                show::grouped(*due)
            ),
        })
    }
}

impl HtmlSafe for Trend {}
