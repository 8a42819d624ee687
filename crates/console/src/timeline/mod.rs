//! The timeline of a span, as a drawing that the server makes.
//!
//! Places along the time are percentages, so that the drawing is as wide as the page and its texts
//! keep their size. Usages are above the axis where they go forwards, and below it where they take
//! something back.

mod bars;
mod scale;
mod ticks;
mod windows;

use askama::Template;
use askama::filters::HtmlSafe;
use sampler_api::{Span, Usage};
use sampler_domain::Timestamp;

pub(crate) use bars::words_of;
use bars::{Bar, Bars};
use scale::{Percent, Scale};
use ticks::{Day, Tick};
use windows::Windows;
pub(crate) use windows::{is_boundary, shortest as shortest_window};

/// The most usages that have an element of their own.
pub(crate) const DRAWN_MAX: usize = 1_500;

#[derive(Template)]
#[template(path = "timeline.html")]
pub(crate) struct Timeline {
    from: Timestamp,
    to: Timestamp,
    /// The description for screen readers.
    description: String,
    windows: Windows,
    ticks: Vec<Tick>,
    days: Vec<Day>,
    forward: Vec<Bar>,
    backward: Vec<Bar>,
    marks: Vec<Mark>,
    /// The time that is used and not sampled yet.
    open: Option<(Percent, Percent)>,
}

/// A marked time of the span.
struct Mark {
    x: Percent,
    name: &'static str,
    label: String,
    title: String,
    /// The side of its line where the label is: `start` or `end`.
    anchor: &'static str,
}

/// Which part of a span's time is drawn.
pub(crate) struct View {
    pub(crate) from: Option<Timestamp>,
    pub(crate) to: Option<Timestamp>,
    pub(crate) now: Timestamp,
    /// The address of the page with another part of the time.
    pub(crate) address: Box<dyn Fn(Timestamp, Timestamp) -> String + Send + Sync>,
}

impl Timeline {
    pub(crate) fn draw(span: &Span, usages: &[Usage], view: &View) -> Self {
        let scale = scale(span, usages, view);
        let bars = Bars::draw(usages, scale, &view.address);
        let windows = Windows::draw(span, usages, scale);
        let (ticks, days) = ticks::draw(scale);
        let until = span.end.unwrap_or(view.now);
        let open = (until > span.sampled_to)
            .then(|| scale.stretch(span.sampled_to, until))
            .flatten();
        Self {
            from: scale.from,
            to: scale.to,
            description: description(span, usages, &windows),
            windows,
            ticks,
            days,
            forward: bars.forward,
            backward: bars.backward,
            marks: marks(span, view.now, scale),
            open,
        }
    }

    /// Up to when it is drawn.
    pub(crate) fn to(&self) -> Timestamp {
        self.to
    }

    /// Where other parts of the time are to be seen: closer, further away, before, after.
    pub(crate) fn zoom(&self, span: &Span, view: &View, path: &str) -> Vec<(&'static str, String)> {
        let length = self.to.since(self.from);
        let quarter = length / 4;
        let at = |from: i64, to: i64| (view.address)(self.from.plus(from), self.to.plus(to));
        let is_part = view.from.is_some() || view.to.is_some();
        let mut links = Vec::new();
        if is_part {
            links.push(("whole span", path.to_owned()));
        }
        if length > 60_000 {
            links.push(("zoom in", at(quarter, -quarter)));
        }
        if is_part {
            links.push(("zoom out", at(-length / 2, length / 2)));
            if self.from > span.start {
                links.push(("\u{2190} earlier", at(-length / 2, -length / 2)));
            }
            if self.to < span.end.unwrap_or(view.now) {
                links.push(("later \u{2192}", at(length / 2, length / 2)));
            }
        }
        links
    }
}

/// From the first to the last visible time.
fn scale(span: &Span, usages: &[Usage], view: &View) -> Scale {
    let ends = usages
        .iter()
        .flat_map(|it| [it.interval.start, it.interval.end]);
    let mut last = ends
        .chain([span.sampled_to, span.start])
        .chain(span.end)
        .max()
        .unwrap_or(span.start);
    if span.end.is_none() {
        last = last.max(view.now);
    }
    let whole = last.since(span.start).max(1_000);
    let margin = whole / 60;
    let from = view.from.unwrap_or(span.start.plus(-margin));
    let to = view.to.unwrap_or(last.plus(margin));
    Scale::new(from, to)
}

fn marks(span: &Span, now: Timestamp, scale: Scale) -> Vec<Mark> {
    let stop = span.end.map(|end| ("stop", end));
    let now = span.end.is_none().then_some(("now", now));
    let all = [Some(("start", span.start)), stop, now];
    let marks = all.into_iter().flatten().filter_map(|(name, at)| {
        let x = scale.place(at)?;
        Some(Mark {
            x,
            name,
            label: format!("{name} {}", ticks::label(scale, at)),
            title: format!("{name} {at}"),
            // A narrow page has room for a label from here on to the left alone.
            anchor: if x.0 > 60.0 { "end" } else { "start" },
        })
    });
    marks.collect()
}

fn description(span: &Span, usages: &[Usage], windows: &Windows) -> String {
    let backward = usages.iter().filter(|usage| usage.is_backward()).count();
    let forward = usages.len() - backward;
    let noun = if forward == 1 { "usage" } else { "usages" };
    let of = windows
        .granularity
        .map_or(String::new(), |it| format!(" by the {it}"));
    let end = span.end.map_or("without a stop".to_owned(), |end| {
        format!("stopped at {end}")
    });
    format!(
        "A span that started at {} and is {end}, sampled to {}{of}: {forward} {noun} forwards and \
         {backward} backwards.",
        span.start, span.sampled_to
    )
}

impl HtmlSafe for Timeline {}
