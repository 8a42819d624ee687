//! The timeline of a span, as a drawing that the server makes.
//!
//! Places along the time are percentages, so that the drawing is as wide as the page and its texts
//! keep their size. Usages are above the axis where they go forwards, and below it where they take
//! something back, each with what does not count. Those that begin in the same hundredth of the drawing are one bar, which leads to
//! a closer view: there are never more than 200 bars.

use askama::Template;
use askama::filters::HtmlSafe;
use sampler_api::{Excluded, Interval, Span, Usage};
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

const MINUTE: i64 = 60_000;
const DAY: i64 = 24 * 60 * MINUTE;

/// Distances between two ticks, in minutes.
const STEPS: [i64; 15] = [
    1, 5, 15, 30, 60, 120, 180, 360, 720, 1_440, 2_880, 5_760, 10_080, 40_320, 120_960,
];

/// The most ticks that are written.
const TICKS_MAX: i64 = 12;

/// The time that is drawn. Places and widths are in percent of it.
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

    /// How much of the drawing a length of time takes, to a thousandth of a percent.
    fn width(self, millis: i64) -> f64 {
        let percent = millis as f64 * 100.0 / self.length() as f64;
        (percent * 1_000.0).round() / 1_000.0
    }

    /// The position of a time; none outside the drawing.
    fn place(self, at: Timestamp) -> Option<f64> {
        let is_drawn = (self.from..=self.to).contains(&at);
        is_drawn.then(|| self.width(at.since(self.from)))
    }

    /// Where a stretch of time begins and how wide it is, as far as it is drawn.
    fn stretch(self, low: Timestamp, high: Timestamp) -> Option<(f64, f64)> {
        let (low, high) = (low.max(self.from), high.min(self.to));
        let x = self.width(low.since(self.from));
        (low <= high && low < self.to).then(|| (x, self.width(high.since(low))))
    }
}

/// A time that is written along the axis, or marked.
struct Mark {
    x: f64,
    name: &'static str,
    label: String,
}

impl Mark {
    /// The side of its line where its label is: a narrow page has room for a label from here on to
    /// the left alone.
    fn anchor(&self) -> &'static str {
        if self.x > 60.0 { "end" } else { "start" }
    }
}

/// A stretch of time with what became of it: a usage, or a part of the time that does not count.
struct Piece<'a> {
    interval: Interval,
    state: &'static str,
    /// The usage that the ledger has.
    usage: Option<&'a Usage>,
}

/// A piece, or several that begin close to each other.
struct Bar {
    direction: &'static str,
    /// The state of the piece; of several, the one that needs most attention.
    state: &'static str,
    x: f64,
    width: f64,
    href: String,
    /// The usage, where there is one.
    usage: Option<String>,
    /// The duration, and the interval.
    numbers: [String; 2],
    /// What is written into it, and the class of a text for which a narrow page has no room.
    label: Option<(String, &'static str)>,
}

#[derive(Template)]
#[template(path = "timeline.html")]
pub(crate) struct Timeline {
    description: String,
    from: Timestamp,
    ticks: Vec<Mark>,
    bars: Vec<Bar>,
    marks: Vec<Mark>,
    /// The time that is used and not sampled yet.
    open: Option<(f64, f64)>,
    /// Other parts of the time: closer, further away, before, after.
    zoom: Vec<(&'static str, String)>,
}

impl HtmlSafe for Timeline {}

impl Timeline {
    /// Draws the usages of the time that the query asks for.
    pub(crate) fn draw(span: &Span, usages: &[Usage], query: &Query, now: Timestamp) -> Self {
        let scale = scale(span, usages, query, now);
        let until = span.end.unwrap_or(now);
        let has_open = until > span.sampled_to;
        let open = has_open.then(|| scale.stretch(span.sampled_to, until));
        Self {
            description: description(span, usages),
            from: scale.from,
            ticks: ticks(scale),
            bars: bars(pieces(span, usages), scale, query),
            marks: marks(span, now, scale),
            open: open.flatten(),
            zoom: zoom(scale, query),
        }
    }
}

/// From the first to the last visible time.
fn scale(span: &Span, usages: &[Usage], query: &Query, now: Timestamp) -> Scale {
    let intervals = usages.iter().map(|usage| usage.interval);
    let ends = intervals.map(|interval| interval.start.max(interval.end));
    let last = ends.fold(span.end.unwrap_or(now).max(span.sampled_to), Timestamp::max);
    let margin = last.since(span.start).max(1_000) / 60;
    let [from, to] = ["from", "to"].map(|name| parameters::moment(query, name));
    let from = from.unwrap_or(span.start.plus(-margin));
    let to = to.unwrap_or(last.plus(margin)).max(from.plus(1));
    Scale { from, to }
}

/// The address of the page with another part of the time.
fn part(query: &Query, from: Timestamp, to: Timestamp) -> String {
    let [from, to] = [from, to].map(|at| at.as_millis().to_string());
    let query = parameters::with(query, "cursor", None);
    let query = parameters::with(&query, "from", Some(&from));
    address("", &parameters::with(&query, "to", Some(&to)))
}

fn zoom(scale: Scale, query: &Query) -> Vec<(&'static str, String)> {
    let half = scale.length() / 2;
    let at = |from: i64, to: i64| part(query, scale.from.plus(from), scale.to.plus(to));
    let mut links = vec![("zoom in", at(half / 2, -half / 2))];
    if parameters::is_part(query) {
        links.extend([
            ("zoom out", at(-half, half)),
            ("\u{2190} earlier", at(-half, -half)),
            ("later \u{2192}", at(half, half)),
            ("whole span", "?".to_owned()),
        ]);
    }
    links
}

fn description(span: &Span, usages: &[Usage]) -> String {
    let backward = usages.iter().filter(|usage| usage.duration < 0).count();
    let forward = usages.len() - backward;
    let (start, sampled_to) = (span.start, span.sampled_to);
    let end = span.end.map(|end| format!("stopped at {end}"));
    let end = end.unwrap_or_else(|| "has no stop".to_owned());
    format!(
        "The span started at {start}, {end} and is sampled to {sampled_to}. Usages: {forward} forwards, \
         {backward} backwards."
    )
}

/// Ticks at whole steps since the epoch, but not where a label would leave the drawing.
fn ticks(scale: Scale) -> Vec<Mark> {
    let steps = STEPS.iter().map(|minutes| minutes * MINUTE);
    let fitting = |step: &i64| scale.length() / step <= TICKS_MAX;
    let years = 364 * DAY * (1 + scale.length() / (364 * DAY * TICKS_MAX));
    let step = steps.chain([years]).find(fitting).unwrap_or(years);
    let first = scale.from.as_millis().div_euclid(step) + 1;
    let all = (first..=first + TICKS_MAX).map(|number| (number, Timestamp::clamped(number * step)));
    let drawn = all.filter_map(|(number, at)| {
        Some(Mark {
            x: scale.place(at).filter(|x| (3.0..=97.0).contains(x))?,
            name: if number % 3 == 0 { "" } else { "minor" },
            label: label(at, step),
        })
    });
    drawn.collect()
}

/// The time of a tick. A midnight is its day, and far apart ticks have the year.
fn label(at: Timestamp, step: i64) -> String {
    let is_midnight = at.as_millis() % DAY == 0;
    let text = if is_midnight {
        show::date(at)
    } else {
        show::clock(at)
    };
    let shown = match (is_midnight, step > 7 * DAY) {
        (true, true) => Some(&*text),
        (true, false) => text.get(5..),
        (false, _) => text.get(..5),
    };
    shown.unwrap_or_default().to_owned()
}

fn marks(span: &Span, now: Timestamp, scale: Scale) -> Vec<Mark> {
    let last = span.end.map_or(("now", now), |end| ("stop", end));
    let marks = [("start", span.start), last].into_iter();
    let drawn = marks.filter_map(|(name, at)| {
        let clock = show::clock(at);
        Some(Mark {
            x: scale.place(at)?,
            name,
            label: format!("{name} {}", clock.get(..5).unwrap_or_default()),
        })
    });
    drawn.collect()
}

/// What became of the time of a span: what is accepted, what does not count, and what is planned.
fn pieces<'a>(span: &'a Span, usages: &'a [Usage]) -> Vec<Piece<'a>> {
    let accepted = usages.iter().map(|usage| Piece {
        interval: usage.interval,
        state: "accepted",
        usage: Some(usage),
    });
    let without_usage = |interval: Interval, state: &'static str| Piece {
        interval,
        state,
        usage: None,
    };
    let ranges = |ranges: &'a [Excluded], state| {
        let intervals = ranges.iter().map(Excluded::interval);
        let intervals = intervals.filter(|it| it.start != it.end);
        intervals.map(move |interval| without_usage(interval, state))
    };
    let planned = span.planned.as_ref().map(|plan| {
        let is_refused = span.delivery.last_error.is_some();
        let (start, end) = (plan.start, plan.end);
        let state = if is_refused { "refused" } else { "planned" };
        without_usage(Interval { start, end }, state)
    });
    let excluded = ranges(&span.excluded, "skipped").chain(ranges(&span.again, "again"));
    accepted.chain(excluded).chain(planned).collect()
}

/// A piece and where it is drawn.
struct Placed<'a> {
    piece: Piece<'a>,
    low: Timestamp,
    high: Timestamp,
    x: f64,
    width: f64,
}

impl<'a> Placed<'a> {
    fn new(piece: Piece<'a>, scale: Scale) -> Option<Self> {
        let (one, other) = (piece.interval.start, piece.interval.end);
        let (low, high) = (one.min(other), one.max(other));
        let (x, width) = scale.stretch(low, high)?;
        Some(Self {
            piece,
            low,
            high,
            x,
            width,
        })
    }

    fn duration(&self) -> i64 {
        let Interval { start, end } = self.piece.interval;
        end.since(start)
    }

    fn begins_with(&self, other: &Self) -> bool {
        let [one, other] = [self, other].map(|it| (it.x * SLOTS / 100.0).floor());
        one.total_cmp(&other).is_eq()
    }
}

fn bars(pieces: Vec<Piece<'_>>, scale: Scale, query: &Query) -> Vec<Bar> {
    let pieces = pieces.into_iter();
    let placed = pieces.filter_map(|piece| Placed::new(piece, scale));
    let (mut backward, mut forward): (Vec<_>, Vec<_>) =
        placed.partition(|placed| placed.duration() < 0);
    let mut bars = Vec::new();
    for (direction, lane) in [("forward", &mut forward), ("backward", &mut backward)] {
        lane.sort_by_key(|placed| placed.low);
        let groups = lane.chunk_by(Placed::begins_with);
        bars.extend(groups.filter_map(|group| Bar::new(group, direction, query)));
    }
    bars
}

impl Bar {
    fn new(group: &[Placed<'_>], direction: &'static str, query: &Query) -> Option<Self> {
        let (first, last) = (group.first()?, group.last()?);
        let width = (last.x + last.width - first.x).max(VISIBLE);
        let duration = group.iter().map(Placed::duration).sum();
        let length = show::in_words(duration);
        let all = group.iter().map(|it| it.piece.state);
        let state = all.max_by_key(|state| attention(state))?;
        let usage = first.piece.usage.filter(|_| group.len() == 1);
        let told = match usage.and_then(|usage| usage.status) {
            _ if group.len() > 1 => format!("{} usages", group.len()),
            Some(status) => format!("{state} {status}"),
            None => state.to_owned(),
        };
        let href = match usage {
            Some(usage) => format!("#u-{}", segment(&usage.id)),
            None => part(query, first.low, last.high),
        };
        Some(Self {
            direction,
            x: first.x,
            width,
            href,
            usage: usage.map(|usage| usage.id.clone()),
            label: inner_label(&length, direction, width).filter(|_| attention(state) == 0),
            numbers: [
                format!("{length} ({duration} ms), {told}"),
                format!("{} \u{2013} {}", first.low, last.high),
            ],
            state,
        })
    }

    /// Over the axis or below it, in px from above.
    fn y(&self) -> u8 {
        if self.direction == "forward" { 56 } else { 112 }
    }

    fn middle(&self) -> f64 {
        self.x + self.width / 2.0
    }

    /// A sign for a state that is not the usual one.
    fn sign(&self) -> &'static str {
        match self.state {
            "planned" => "\u{2026}",
            "again" => "\u{21bb}",
            "skipped" => "\u{d7}",
            "refused" => "!",
            _ => "",
        }
    }
}

/// How much attention a state needs.
fn attention(state: &str) -> usize {
    let states = ["planned", "again", "skipped", "refused"];
    let place = states.iter().position(|known| *known == state);
    place.map_or(0, |place| place + 1)
}

/// A label that all of has room, at 7 px a character: a part of a number would be another number.
fn inner_label(length: &str, direction: &str, width: f64) -> Option<(String, &'static str)> {
    let text = match direction {
        "forward" => format!("{length} \u{25b8}"),
        _ => format!("\u{25c2} {length}"),
    };
    let needed = text.chars().count() as f64 * 7.0 + 8.0;
    let fits = |drawing: f64| width / 100.0 * drawing >= needed;
    let class = if fits(NARROW) { "" } else { "minor" };
    fits(WIDE).then_some((text, class))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-11-14T00:00:00 UTC.
    const MIDNIGHT: i64 = 1_794_614_400_000;

    #[test]
    fn ticks_stay_within_the_drawing_and_have_room() {
        let labels = |from: i64, to: i64| -> Vec<String> {
            let [from, to] = [from, to].map(|at| Timestamp::clamped(MIDNIGHT + at * MINUTE));
            let ticks = ticks(Scale { from, to });
            ticks.into_iter().map(|tick| tick.label).collect()
        };
        let days = labels(-60, 9 * 1_440 + 240);
        assert_eq!((days[0].as_str(), days.len()), ("11-15", 8));
        let hours = labels(-120, 120);
        assert!(hours.contains(&"11-14".to_owned()) && hours.contains(&"23:30".to_owned()));
        let long = labels(-20_000 * 1_440, 2_000_000 * 1_440);
        assert!((6..=13).contains(&long.len()), "{long:?}");
    }

    #[test]
    fn a_label_has_room_for_all_of_it_or_is_left_out() {
        let label = inner_label("1 d", "forward", 10.0);
        assert_eq!(label, Some(("1 d \u{25b8}".to_owned(), "minor")));
        let long = "\u{2212}19 h 54 min 28.054 s";
        assert_eq!(inner_label(long, "backward", 10.0), None);
        let label = inner_label(long, "backward", 60.0);
        assert_eq!(label, Some((format!("\u{25c2} {long}"), "")));
    }
}
