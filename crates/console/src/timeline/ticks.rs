//! The times that are written along the axis.

use sampler_domain::{Granularity, Timestamp};

use super::scale::{CHARACTER, NARROW, Percent, Scale, WIDE};
use crate::show;

const MINUTE: i64 = 60_000;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;

/// Distances between two ticks, in ms.
const STEPS: [i64; 18] = [
    1_000,
    5_000,
    15_000,
    MINUTE,
    5 * MINUTE,
    10 * MINUTE,
    30 * MINUTE,
    HOUR,
    2 * HOUR,
    3 * HOUR,
    6 * HOUR,
    12 * HOUR,
    DAY,
    2 * DAY,
    4 * DAY,
    7 * DAY,
    14 * DAY,
    28 * DAY,
];

/// The most that are written, on a wide page. A narrow one shows every third.
const TICKS_MAX: i64 = 12;

/// A time with a label.
pub(crate) struct Tick {
    pub(crate) x: Percent,
    pub(crate) label: String,
    /// Whether it is left out where there is little room.
    pub(crate) is_minor: bool,
}

impl Tick {
    /// On which side of the tick its label is: in the middle, unless it would leave the drawing.
    pub(crate) fn anchor(&self) -> &'static str {
        let drawing = if self.is_minor { WIDE } else { NARROW };
        let half = self.label.chars().count() as f64 * CHARACTER * 50.0 / drawing;
        if self.x.0 < half {
            "start"
        } else if self.x.0 > 100.0 - half {
            "end"
        } else {
            "middle"
        }
    }
}

/// Where a day begins, or a year where days are short.
pub(crate) struct Day {
    pub(crate) x: Percent,
    pub(crate) label: String,
    pub(crate) is_minor: bool,
}

pub(crate) fn draw(scale: Scale) -> (Vec<Tick>, Vec<Day>) {
    let step = STEPS
        .into_iter()
        .find(|step| scale.length() / step <= TICKS_MAX);
    match step {
        Some(step) if step < DAY => (ticks(scale, step, false), days(scale)),
        Some(step) => (ticks(scale, step, true), first_year(scale)),
        None => (months(scale), Vec::new()),
    }
}

fn ticks(scale: Scale, step: i64, is_date: bool) -> Vec<Tick> {
    let first = scale.from.as_millis().div_euclid(step) + 1;
    let mut ticks = Vec::new();
    for number in first.. {
        let at = Timestamp::clamped(number * step);
        let Some(x) = scale.place(at) else { break };
        let label = if is_date {
            day_and_month(at)
        } else if step < MINUTE {
            show::clock(at)
        } else {
            show::clock(at)[..5].to_owned()
        };
        ticks.push(Tick {
            x,
            label,
            is_minor: number % 3 != 0,
        });
        if at == Timestamp::MAX {
            break;
        }
    }
    ticks
}

/// The first days of months, as many as fit.
fn months(scale: Scale) -> Vec<Tick> {
    let mut starts = Vec::new();
    let mut at = scale.from;
    while let Some(next) = Granularity::Month
        .boundary_after(at)
        .filter(|it| *it <= scale.to)
    {
        starts.push(next);
        at = next;
    }
    let each = starts.len().div_ceil(12).max(1);
    let shown = starts
        .iter()
        .enumerate()
        .filter(|(index, _)| index % each == 0);
    shown
        .filter_map(|(index, at)| {
            Some(Tick {
                x: scale.place(*at)?,
                label: show::date(*at)[..7].to_owned(),
                is_minor: (index / each) % 3 != 0,
            })
        })
        .collect()
}

/// The days, the first where the drawing begins.
fn days(scale: Scale) -> Vec<Day> {
    let mut days = vec![Day {
        x: Percent(0.0),
        label: show::date(scale.from),
        is_minor: false,
    }];
    let mut at = scale.from;
    while let Some(next) = Granularity::Day
        .boundary_after(at)
        .filter(|it| *it < scale.to)
    {
        let x = scale.width(next.since(scale.from));
        let before = days.last().map_or(0.0, |day| day.x.0);
        if days.len() == 1 && x.0 < 9.0 {
            // The day before is hardly seen.
            days.clear();
        }
        if days.is_empty() || (x.0 - before >= 9.0 && x.0 <= 89.0) {
            days.push(Day {
                x,
                label: show::date(next),
                is_minor: before > 0.0 && (x.0 - before < 28.0 || x.0 > 75.0),
            });
        }
        at = next;
    }
    days
}

fn first_year(scale: Scale) -> Vec<Day> {
    vec![Day {
        x: Percent(0.0),
        label: show::date(scale.from)[..4].to_owned(),
        is_minor: false,
    }]
}

/// A time as the drawing needs it: with its day where there are several.
pub(crate) fn label(scale: Scale, at: Timestamp) -> String {
    let clock = &show::clock(at)[..5];
    if scale.length() > DAY + DAY / 10 {
        format!("{} {clock}", day_and_month(at))
    } else {
        clock.to_owned()
    }
}

/// `20 Nov`.
fn day_and_month(at: Timestamp) -> String {
    const MONTHS: [&str; 12] = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    let date = show::date(at);
    let month = date.get(5..7).and_then(|month| month.parse::<usize>().ok());
    let name = month.and_then(|month| MONTHS.get(month.saturating_sub(1)));
    let day = date.get(8..10).unwrap_or_default().trim_start_matches('0');
    format!("{day}\u{a0}{}", name.copied().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-11-14T00:00:00 UTC.
    const MIDNIGHT: i64 = 1_794_614_400_000;

    #[test]
    fn labels_stay_within_the_drawing() {
        let at = |hours: i64| Timestamp::clamped(MIDNIGHT + hours * HOUR);
        let (ticks, _) = draw(Scale::new(at(-1), at(9 * 24 + 4)));
        let labels: Vec<_> = ticks.iter().map(|it| (it.anchor(), &*it.label)).collect();
        assert_eq!(labels[0], ("start", "14\u{a0}Nov"));
        assert_eq!(labels[1], ("middle", "15\u{a0}Nov"));
        assert_eq!(labels[9], ("end", "23\u{a0}Nov"));
        let (_, days) = draw(Scale::new(at(-140), at(13)));
        assert!(days.iter().all(|day| day.x.0 <= 89.0));
    }
}
