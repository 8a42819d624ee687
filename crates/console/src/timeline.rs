//! The timeline of a span, as a drawing that the server makes.
//!
//! Places along the time are percentages, so that the drawing is as wide as the page and its texts
//! keep their size. Usages are above the axis where they go forwards, and below it where they take
//! something back. Those that begin in the same hundredth of the drawing are one bar, which leads to
//! a closer view: there are never more than 200 bars.

use std::fmt;

use askama::Template;
use askama::filters::HtmlSafe;
use sampler_api::{Span, Usage};
use sampler_domain::Timestamp;

use crate::api::{Query, address, segment};
use crate::{parameters, show};

/// Parts of the drawing, in each of which at most one bar begins above the axis, and one below it.
const SLOTS: f64 = 99.0;

/// The narrowest bar, in percent, so that it is seen.
const VISIBLE: f64 = 0.12;

/// The least width of the drawing on a narrow page, and on a wide one, from 720 px on, in px.
const NARROW: f64 = 296.0;
const WIDE: f64 = 672.0;

/// The most that a character of a label takes, in px.
const CHARACTER: f64 = 7.0;

const MINUTE: i64 = 60_000;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;

/// Distances between two ticks, in ms.
const STEPS: [i64; 18] = [
    1_000,
    10_000,
    MINUTE,
    5 * MINUTE,
    15 * MINUTE,
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
    28 * DAY,
    84 * DAY,
    364 * DAY,
];

/// The most ticks that are written.
const TICKS_MAX: i64 = 12;

/// A place along the time, or a width, in percent of the drawing.
#[derive(Clone, Copy, PartialEq, PartialOrd)]
struct Percent(f64);

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3}%", self.0)
    }
}

/// The time that is drawn.
#[derive(Clone, Copy)]
struct Scale {
    from: Timestamp,
    to: Timestamp,
}

impl Scale {
    /// In ms.
    fn length(self) -> i64 {
        self.to.since(self.from).max(1)
    }

    /// How much of the drawing a length of time takes.
    fn width(self, millis: i64) -> Percent {
        Percent(millis as f64 * 100.0 / self.length() as f64)
    }

    /// The position of a time; none outside the drawing.
    fn place(self, at: Timestamp) -> Option<Percent> {
        let is_drawn = (self.from..=self.to).contains(&at);
        is_drawn.then(|| self.width(at.since(self.from)))
    }

    /// Where a stretch of time begins and how wide it is, as far as it is drawn.
    fn stretch(self, low: Timestamp, high: Timestamp) -> Option<(Percent, Percent)> {
        let (low, high) = (low.max(self.from), high.min(self.to));
        (low <= high && low < self.to).then(|| {
            let x = self.width(low.since(self.from));
            (x, self.width(high.since(low)))
        })
    }
}

/// A time that is written along the axis.
struct Tick {
    x: Percent,
    label: String,
    /// Whether it is left out where there is little room.
    is_minor: bool,
}

impl Tick {
    /// Where its label is: in the middle, unless the label would leave the drawing.
    fn anchor(&self) -> &'static str {
        let drawing = if self.is_minor { WIDE } else { NARROW };
        let half = self.label.chars().count() as f64 * CHARACTER * 50.0 / drawing;
        match self.x.0 {
            x if x < half => "start",
            x if x > 100.0 - half => "end",
            _ => "middle",
        }
    }
}

/// A marked time of the span.
struct Mark {
    x: Percent,
    name: &'static str,
    label: String,
    /// The side of its line where the label is: `start` or `end`.
    anchor: &'static str,
}

impl Mark {
    /// Where its label is, in px from above.
    fn y(&self) -> u8 {
        if self.name == "stop" { 187 } else { 49 }
    }
}

/// A usage, or several that begin close to each other.
struct Bar {
    is_backward: bool,
    /// The state of the usage; of several, the one that needs most attention.
    state: String,
    x: Percent,
    width: Percent,
    middle: Percent,
    href: String,
    /// The usage, where there is one.
    usage: Option<String>,
    /// The duration, and the interval.
    numbers: [String; 2],
    label: Option<String>,
    /// The class of a label for which a narrow page has no room.
    label_class: &'static str,
}

#[derive(Template)]
#[template(path = "timeline.html")]
pub(crate) struct Timeline {
    description: String,
    from: Timestamp,
    ticks: Vec<Tick>,
    bars: Vec<Bar>,
    marks: Vec<Mark>,
    /// The time that is used and not sampled yet.
    open: Option<(Percent, Percent)>,
    /// Other parts of the time: closer, further away, before, after.
    zoom: Vec<(&'static str, String)>,
}

impl HtmlSafe for Timeline {}

impl Timeline {
    /// Draws the usages, which are in their order, of the time that the query asks for.
    pub(crate) fn draw(span: &Span, usages: &[Usage], query: &Query, now: Timestamp) -> Self {
        let scale = scale(span, usages, query, now);
        let until = span.end.unwrap_or(now);
        let has_open = until > span.sampled_to;
        let open = has_open.then(|| scale.stretch(span.sampled_to, until));
        Self {
            description: description(span, usages),
            from: scale.from,
            ticks: ticks(scale),
            bars: bars(usages, scale, query),
            marks: marks(span, now, scale),
            open: open.flatten(),
            zoom: zoom(scale, span, query, now),
        }
    }
}

/// The address of the page with another part of the time.
fn part(query: &Query, from: Timestamp, to: Timestamp) -> String {
    let query = parameters::with(query, "cursor", None);
    let query = parameters::with(&query, "from", Some(&from.as_millis().to_string()));
    address(
        "",
        &parameters::with(&query, "to", Some(&to.as_millis().to_string())),
    )
}

/// From the first to the last visible time.
fn scale(span: &Span, usages: &[Usage], query: &Query, now: Timestamp) -> Scale {
    let ends = usages
        .iter()
        .map(|it| it.interval.start.max(it.interval.end));
    let last = ends.chain([span.sampled_to, span.end.unwrap_or(now)]).max();
    let last = last.unwrap_or(span.start);
    let margin = last.since(span.start).max(1_000) / 60;
    let [from, to] = ["from", "to"].map(|name| parameters::moment(query, name));
    let from = from.unwrap_or(span.start.plus(-margin));
    let to = to.unwrap_or(last.plus(margin)).max(from.plus(1));
    Scale { from, to }
}

fn zoom(scale: Scale, span: &Span, query: &Query, now: Timestamp) -> Vec<(&'static str, String)> {
    let (length, is_part) = (scale.length(), parameters::is_part(query));
    let at = |from: i64, to: i64| part(query, scale.from.plus(from), scale.to.plus(to));
    let half = length / 2;
    let links = [
        (is_part, "whole span", "?".to_owned()),
        (length > MINUTE, "zoom in", at(length / 4, -length / 4)),
        (is_part, "zoom out", at(-half, half)),
        (
            is_part && scale.from > span.start,
            "\u{2190} earlier",
            at(-half, -half),
        ),
        (
            is_part && scale.to < span.end.unwrap_or(now),
            "later \u{2192}",
            at(half, half),
        ),
    ];
    let links = links.into_iter().filter(|(is_there, ..)| *is_there);
    links.map(|(_, name, address)| (name, address)).collect()
}

fn description(span: &Span, usages: &[Usage]) -> String {
    let backward = usages.iter().filter(|usage| usage.is_backward()).count();
    let forward = show::counted((usages.len() - backward) as u64, "usage");
    let end = span
        .end
        .map_or("has no stop".to_owned(), |end| format!("stopped at {end}"));
    let (start, sampled_to) = (span.start, span.sampled_to);
    format!(
        "The span started at {start}, {end} and is sampled to {sampled_to}: {forward} forwards and \
         {backward} backwards."
    )
}

/// Ticks at whole steps since the epoch. The label of a midnight is its day.
fn ticks(scale: Scale) -> Vec<Tick> {
    let longest = STEPS[STEPS.len() - 1];
    let fitting = STEPS
        .into_iter()
        .find(|step| scale.length() / step <= TICKS_MAX);
    // A span of centuries has steps of several years.
    let years = scale.length() / (longest * TICKS_MAX) + 1;
    let step = fitting.unwrap_or(longest * years);
    let first = scale.from.as_millis().div_euclid(step) + 1;
    let all = (first..=first + TICKS_MAX).map(|number| (number, Timestamp::clamped(number * step)));
    let drawn = all.filter_map(|(number, at)| {
        Some(Tick {
            x: scale.place(at)?,
            label: label(at, step),
            is_minor: number % 3 != 0,
        })
    });
    drawn.collect()
}

fn label(at: Timestamp, step: i64) -> String {
    let (date, clock) = (show::date(at), show::clock(at));
    if step > 7 * DAY {
        return date;
    }
    match (at.as_millis() % DAY, step < MINUTE) {
        (0, _) => date.get(5..).unwrap_or_default().to_owned(),
        (_, true) => clock,
        (_, false) => clock.get(..5).unwrap_or_default().to_owned(),
    }
}

fn marks(span: &Span, now: Timestamp, scale: Scale) -> Vec<Mark> {
    let last = span.end.map_or(("now", now), |end| ("stop", end));
    let marks = [("start", span.start), last]
        .into_iter()
        .filter_map(|(name, at)| {
            let x = scale.place(at)?;
            let clock = show::clock(at);
            Some(Mark {
                x,
                name,
                label: format!("{name} {}", clock.get(..5).unwrap_or_default()),
                // A narrow page has room for a label from here on to the left alone.
                anchor: if x.0 > 60.0 { "end" } else { "start" },
            })
        });
    marks.collect()
}

/// A usage and where it is drawn.
struct Placed<'a> {
    usage: &'a Usage,
    low: Timestamp,
    high: Timestamp,
    x: Percent,
    width: Percent,
}

impl<'a> Placed<'a> {
    fn new(usage: &'a Usage, scale: Scale) -> Option<Self> {
        let (one, other) = (usage.interval.start, usage.interval.end);
        let (low, high) = (one.min(other), one.max(other));
        let (x, width) = scale.stretch(low, high)?;
        Some(Self {
            usage,
            low,
            high,
            x,
            width,
        })
    }

    fn begins_with(&self, other: &Self) -> bool {
        let [one, other] = [self, other].map(|it| (it.x.0 * SLOTS / 100.0).floor());
        one.total_cmp(&other).is_eq()
    }
}

fn bars(usages: &[Usage], scale: Scale, query: &Query) -> Vec<Bar> {
    let mut bars = Vec::new();
    for is_backward in [false, true] {
        let lane = usages.iter().filter(|it| it.is_backward() == is_backward);
        let mut lane: Vec<Placed<'_>> =
            lane.filter_map(|usage| Placed::new(usage, scale)).collect();
        lane.sort_by_key(|placed| placed.low);
        let groups = lane.chunk_by(Placed::begins_with);
        bars.extend(groups.filter_map(|group| Bar::new(group, is_backward, query)));
    }
    bars
}

impl Bar {
    fn new(group: &[Placed<'_>], is_backward: bool, query: &Query) -> Option<Self> {
        let (first, last) = (group.first()?, group.last()?);
        let width = Percent((last.x.0 + last.width.0 - first.x.0).max(VISIBLE));
        let duration = group.iter().map(|it| it.usage.duration).sum();
        let length = show::in_words(duration);
        let states = group.iter().map(|it| it.usage.state.as_str());
        let state = states.max_by_key(|state| attention(state))?.to_owned();
        let alone = (group.len() == 1).then_some(first.usage);
        let is_billed = matches!(state.as_str(), "accepted" | "counted");
        let (label, label_class) = inner_label(&length, is_backward, width);
        Some(Self {
            is_backward,
            x: first.x,
            width,
            middle: Percent(first.x.0 + width.0 / 2.0),
            href: match alone {
                Some(usage) => format!("#u-{}", segment(&usage.id)),
                None => part(query, first.low, last.high),
            },
            usage: alone.map(|usage| usage.id.clone()),
            numbers: [
                match alone {
                    Some(usage) => told(usage, &length),
                    None => format!("{} usages, {length} ({duration} ms)", group.len()),
                },
                match alone {
                    Some(usage) => {
                        format!("{} \u{2192} {}", usage.interval.start, usage.interval.end)
                    }
                    None => format!("{} \u{2013} {}", first.low, last.high),
                },
            ],
            label: label.filter(|_| is_billed),
            label_class,
            state,
        })
    }

    fn direction(&self) -> &'static str {
        if self.is_backward {
            "backward"
        } else {
            "forward"
        }
    }

    /// Where it is, in px from above: over the axis, or below it.
    fn y(&self) -> u8 {
        if self.is_backward { 112 } else { 56 }
    }

    /// A sign for a state that is not the usual one.
    fn sign(&self) -> &'static str {
        match self.state.as_str() {
            "planned" => "\u{2026}",
            "refused" => "!",
            "skipped" => "\u{d7}",
            "set_aside" => "\u{2298}",
            _ => "",
        }
    }
}

fn told(usage: &Usage, length: &str) -> String {
    let status = usage
        .status
        .map_or(String::new(), |status| format!(" {status}"));
    let state = usage.state.replace('_', " ");
    format!("{length} ({} ms), {state}{status}", usage.duration)
}

/// How much attention a state needs.
fn attention(state: &str) -> u8 {
    match state {
        "refused" => 4,
        "set_aside" => 3,
        "skipped" => 2,
        "planned" => 1,
        _ => 0,
    }
}

/// A label that all of has room: a part of a number would be another number.
fn inner_label(length: &str, is_backward: bool, width: Percent) -> (Option<String>, &'static str) {
    let text = if is_backward {
        format!("\u{25c2} {length}")
    } else {
        format!("{length} \u{25b8}")
    };
    let needed = text.chars().count() as f64 * CHARACTER + 8.0;
    let fits = |drawing: f64| width.0 / 100.0 * drawing >= needed;
    let class = if fits(NARROW) { "" } else { "minor" };
    (fits(WIDE).then_some(text), class)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-11-14T00:00:00 UTC.
    const MIDNIGHT: i64 = 1_794_614_400_000;

    fn scale(from: i64, to: i64) -> Scale {
        let [from, to] = [from, to].map(|at| Timestamp::clamped(MIDNIGHT + at));
        Scale { from, to }
    }

    #[test]
    fn ticks_stay_within_the_drawing_and_have_room() {
        let ticks_of = |from: i64, to: i64| -> Vec<(String, &'static str)> {
            let ticks = ticks(scale(from, to));
            let ticks = ticks.iter().map(|it| (it.label.clone(), it.anchor()));
            ticks.collect()
        };
        let days = ticks_of(-HOUR, 9 * DAY + 4 * HOUR);
        assert_eq!(days[0], ("11-14".to_owned(), "start"));
        assert_eq!(days[1], ("11-15".to_owned(), "middle"));
        assert_eq!(days[9], ("11-23".to_owned(), "end"));
        let hours = ticks_of(-2 * HOUR, 2 * HOUR);
        assert!(hours.iter().any(|(label, _)| label == "11-14"));
        assert!(hours.iter().any(|(label, _)| label == "23:30"));
        assert_eq!(ticks_of(-5_000, 0).len(), 5);
        let long = ticks_of(-20_000 * DAY, 2_000_000 * DAY);
        assert!((6..=13).contains(&long.len()), "{long:?}");
    }

    #[test]
    fn a_label_has_room_for_all_of_it_or_is_left_out() {
        let of = |length: &str, is_backward: bool, percent: f64| {
            inner_label(length, is_backward, Percent(percent))
        };
        assert_eq!(
            of("1 d", false, 10.0),
            (Some("1 d \u{25b8}".to_owned()), "minor")
        );
        assert_eq!(of("1 d", false, 16.0).1, "");
        let long = "\u{2212}19 h 54 min 28.054 s";
        assert_eq!(of(long, true, 10.0).0, None);
        assert_eq!(of(long, true, 60.0), (Some(format!("\u{25c2} {long}")), ""));
    }
}
