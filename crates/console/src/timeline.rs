//! The timeline of a span, as a drawing that the server makes.
//!
//! Places along the time are percentages, so that the drawing is as wide as the page and its texts
//! keep their size. Usages are above the axis where they go forwards, and below it where they take
//! something back, each with what does not count. Those that begin in the same hundredth of the drawing
//! are one bar, which leads to a closer view: there are never more than 200 bars.

use sampler_api::{Interval, Span, Usage};
use sampler_domain::Timestamp;

use crate::api::segment;
use crate::query::Query;
use crate::show;

/// Parts of the drawing, in each of which at most one bar begins above the axis, and one below it.
const SLOTS: f64 = 99.0;

/// The narrowest bar, in percent, so that it is seen.
const VISIBLE: f64 = 0.12;

/// The least width of the drawing on a wide page, in px: only there is something written into bars.
const WIDE: f64 = 672.0;

const MINUTE: i64 = 60_000;
const DAY: i64 = 24 * 60 * MINUTE;

/// Distances between two ticks, in minutes.
const STEPS: [i64; 15] = [
    1, 5, 15, 30, 60, 120, 180, 360, 720, 1_440, 2_880, 5_760, 10_080, 40_320, 120_960,
];

/// The most ticks that are written.
const TICKS_MAX: i64 = 12;

/// What can become of time, by the attention that it needs, each with its sign.
const STATES: [(&str, &str); 5] = [
    ("accepted", ""),
    ("planned", "\u{2026}"),
    ("again", "\u{21bb}"),
    ("skipped", "\u{d7}"),
    ("refused", "!"),
];

/// The time that is drawn. Places and widths are in percent of it.
#[derive(Clone, Copy)]
struct Scale {
    from: Timestamp,
    to: Timestamp,
}

/// A time that is written along the axis, or marked.
pub(crate) struct Mark {
    pub(crate) x: f64,
    pub(crate) name: &'static str,
    pub(crate) label: String,
}

/// A stretch of time with what became of it: a usage, or a part of the time that does not count.
struct Piece<'a> {
    low: Timestamp,
    high: Timestamp,
    duration: i64,
    /// The place in [`STATES`].
    state: usize,
    /// The usage that the ledger has.
    usage: Option<&'a Usage>,
}

/// A piece, or several that begin close to each other.
pub(crate) struct Bar {
    pub(crate) direction: &'static str,
    /// The state of the piece, and its sign; of several, of the one that needs most attention.
    pub(crate) state: &'static str,
    pub(crate) sign: &'static str,
    /// From the left and how wide, in percent, and from above, in px.
    pub(crate) x: f64,
    pub(crate) width: f64,
    pub(crate) y: u8,
    pub(crate) href: String,
    /// The usage, where there is one.
    pub(crate) usage: Option<String>,
    /// The duration, and the interval.
    pub(crate) numbers: [String; 2],
    /// What is written into it.
    pub(crate) label: Option<String>,
}

pub(crate) struct Timeline {
    pub(crate) from: Timestamp,
    pub(crate) ticks: Vec<Mark>,
    pub(crate) bars: Vec<Bar>,
    pub(crate) marks: Vec<Mark>,
    /// The time that is used and not sampled yet.
    pub(crate) open: Option<(f64, f64)>,
    /// Other parts of the time: closer, further away, before, after.
    pub(crate) zoom: Vec<(&'static str, String)>,
}

impl Timeline {
    /// Draws the usages of the time that the query asks for.
    pub(crate) fn new(span: &Span, usages: &[Usage], query: &Query, now: Timestamp) -> Self {
        let until = span.end.unwrap_or(now);
        let scale = Scale::new(span, usages, query, until);
        let last = if span.end.is_some() { "stop" } else { "now" };
        let marks = [("start", span.start), (last, until)].into_iter();
        let marks = marks.filter_map(|(name, at)| {
            let (_, clock) = show::day_and_clock(at);
            scale.mark(
                at,
                name,
                format!("{name} {}", clock.get(..5).unwrap_or_default()),
            )
        });
        Self {
            from: scale.from,
            ticks: scale.ticks(),
            bars: bars(pieces(span, usages), scale, query),
            marks: marks.collect(),
            open: scale.stretch(span.sampled_to, until),
            zoom: scale.zoom(query),
        }
    }
}

impl Scale {
    /// From the first to the last visible time.
    fn new(span: &Span, usages: &[Usage], query: &Query, until: Timestamp) -> Self {
        let ends = usages.iter().map(|usage| usage.interval);
        let ends = ends.map(|interval| interval.start.max(interval.end));
        let last = ends.fold(until.max(span.sampled_to), Timestamp::max);
        let margin = last.since(span.start).max(1_000) / 60;
        let from = query.time("from").unwrap_or(span.start.plus(-margin));
        let to = query.time("to").unwrap_or(last.plus(margin));
        Self {
            from,
            to: to.max(from.plus(1)),
        }
    }

    /// In ms.
    fn length(self) -> i64 {
        self.to.since(self.from).max(1)
    }

    /// How much of the drawing a length of time takes, to a thousandth of a percent.
    fn width(self, millis: i64) -> f64 {
        let percent = millis as f64 * 100.0 / self.length() as f64;
        (percent * 1_000.0).round() / 1_000.0
    }

    /// A mark at a time; none outside the drawing.
    fn mark(self, at: Timestamp, name: &'static str, label: String) -> Option<Mark> {
        let x = self.width(at.since(self.from));
        let is_drawn = (self.from..=self.to).contains(&at);
        is_drawn.then_some(Mark { x, name, label })
    }

    /// Where a stretch of time begins and how wide it is, as far as it is drawn.
    fn stretch(self, low: Timestamp, high: Timestamp) -> Option<(f64, f64)> {
        let (low, high) = (low.max(self.from), high.min(self.to));
        let x = self.width(low.since(self.from));
        (low <= high && low < self.to).then(|| (x, self.width(high.since(low))))
    }

    /// Ticks at whole steps since the epoch, but not where a label would leave the drawing.
    fn ticks(self) -> Vec<Mark> {
        let steps = STEPS.iter().map(|minutes| minutes * MINUTE);
        let years = 364 * DAY * (1 + self.length() / (364 * DAY * TICKS_MAX));
        let mut fitting = steps.filter(|step| self.length() / step <= TICKS_MAX);
        let step = fitting.next().unwrap_or(years);
        let first = self.from.as_millis().div_euclid(step) + 1;
        let drawn = (first..=first + TICKS_MAX).filter_map(|number| {
            let at = Timestamp::clamped(number * step);
            let name = if number % 3 == 0 { "" } else { "minor" };
            self.mark(at, name, tick_label(at, step))
        });
        drawn
            .filter(|tick| (3.0..=97.0).contains(&tick.x))
            .collect()
    }

    fn zoom(self, query: &Query) -> Vec<(&'static str, String)> {
        let half = self.length() / 2;
        let part = |from, to| query.between(self.from.plus(from), self.to.plus(to)).at("");
        let mut links = vec![("zoom in", part(half / 2, -half / 2))];
        if query.has_time() {
            links.extend([
                ("zoom out", part(-half, half)),
                ("\u{2190} earlier", part(-half, -half)),
                ("later \u{2192}", part(half, half)),
                ("whole span", "?".to_owned()),
            ]);
        }
        links
    }
}

/// The time of a tick. A midnight is its day, and far apart ticks have the year.
fn tick_label(at: Timestamp, step: i64) -> String {
    let (day, clock) = show::day_and_clock(at);
    let shown = match (at.as_millis() % DAY == 0, step > 7 * DAY) {
        (true, true) => Some(&*day),
        (true, false) => day.get(5..),
        (false, _) => clock.get(..5),
    };
    shown.unwrap_or_default().to_owned()
}

/// What became of the time of a span, by time: what is accepted, what does not count, and what is planned.
fn pieces<'a>(span: &Span, usages: &'a [Usage]) -> Vec<Piece<'a>> {
    let accepted = usages.iter().map(|usage| (usage.interval, 0, Some(usage)));
    let again = span.again.iter().map(|range| (range.interval(), 2, None));
    let skipped = span
        .excluded
        .iter()
        .map(|range| (range.interval(), 3, None));
    let planned = span.planned.iter().map(|plan| {
        let (start, end) = (plan.start, plan.end);
        let is_refused = span.delivery.last_error.is_some();
        (
            Interval { start, end },
            if is_refused { 4 } else { 1 },
            None,
        )
    });
    let all = accepted.chain(again).chain(skipped).chain(planned);
    let all = all.filter(|(interval, ..)| interval.start != interval.end);
    let pieces = all.map(|(Interval { start, end }, state, usage)| Piece {
        low: start.min(end),
        high: start.max(end),
        duration: end.since(start),
        state,
        usage,
    });
    let mut pieces: Vec<_> = pieces.collect();
    pieces.sort_by_key(|piece| piece.low);
    pieces
}

fn bars(pieces: Vec<Piece<'_>>, scale: Scale, query: &Query) -> Vec<Bar> {
    let placed = pieces.into_iter();
    let placed = placed.filter_map(|piece| Some((scale.stretch(piece.low, piece.high)?, piece)));
    let (backward, forward): (Vec<_>, Vec<_>) = placed.partition(|(_, piece)| piece.duration < 0);
    let mut bars = Vec::new();
    for lane in [forward, backward] {
        let slot = |x: f64| (x * SLOTS / 100.0).floor();
        let groups = lane
            .chunk_by(|((one, _), _), ((other, _), _)| slot(*one).total_cmp(&slot(*other)).is_eq());
        bars.extend(groups.filter_map(|group| Bar::new(group, query)));
    }
    bars
}

impl Bar {
    /// The bar of pieces that begin close to each other, with where each begins and how wide it is.
    fn new(group: &[((f64, f64), Piece<'_>)], query: &Query) -> Option<Self> {
        let ((x, _), first) = group.first()?;
        let ((last_x, last_width), last) = group.last()?;
        let width = (last_x + last_width - x).max(VISIBLE);
        let duration = group.iter().map(|(_, piece)| piece.duration).sum();
        let length = show::in_words(duration);
        let attention = group.iter().map(|(_, piece)| piece.state).max()?;
        let (state, sign) = *STATES.get(attention)?;
        let usage = first.usage.filter(|_| group.len() == 1);
        let told = match usage.and_then(|usage| usage.status) {
            _ if group.len() > 1 => format!("{} usages", group.len()),
            Some(status) => format!("{state} {status}"),
            None => state.to_owned(),
        };
        let (direction, y, label) = if duration < 0 {
            ("backward", 112, format!("\u{25c2} {length}"))
        } else {
            ("forward", 56, format!("{length} \u{25b8}"))
        };
        // At 7 px a character all of a label must have room: a part of a number would be another number.
        let needed = label.chars().count() as f64 * 7.0 + 8.0;
        let closer = || query.between(first.low, last.high).at("");
        Some(Self {
            direction,
            state,
            sign,
            x: *x,
            width,
            y,
            href: usage.map_or_else(closer, |usage| format!("#u-{}", segment(&usage.id))),
            usage: usage.map(|usage| usage.id.clone()),
            numbers: [
                format!("{length} ({duration} ms), {told}"),
                format!("{} \u{2013} {}", first.low, last.high),
            ],
            label: (attention == 0 && width / 100.0 * WIDE >= needed).then_some(label),
        })
    }
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
            let ticks = Scale { from, to }.ticks();
            ticks.into_iter().map(|tick| tick.label).collect()
        };
        let days = labels(-60, 9 * 1_440 + 240);
        assert_eq!((days[0].as_str(), days.len()), ("11-15", 8));
        let hours = labels(-120, 120);
        assert!(hours.contains(&"11-14".to_owned()) && hours.contains(&"23:30".to_owned()));
        let long = labels(-20_000 * 1_440, 2_000_000 * 1_440);
        assert!((6..=13).contains(&long.len()), "{long:?}");
    }
}
