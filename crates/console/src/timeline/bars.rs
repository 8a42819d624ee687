//! The usages of a timeline.
//!
//! A usage that is wide enough is a bar of its own that shows its numbers. Narrow ones that follow
//! each other are drawn as one, which shows theirs together and leads to a closer view.

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use sampler_api::Usage;
use sampler_domain::Timestamp;

use super::DRAWN_MAX;
use super::scale::{CHARACTER, NARROW, Percent, Scale, WIDE};
use crate::show::{self, Plain};

/// The narrowest bar that shows its own numbers, in percent: a few pixels.
const WIDTH_MIN: f64 = 0.8;

/// How wide narrow ones become together, in percent.
const GROUP_WIDTH: f64 = 1.6;

/// The narrowest bar at all, so that it is seen, in percent.
const VISIBLE: f64 = 0.12;

/// The least width of the drawing on a page of any width, a wide one, and one from 1,100 px on, in px;
/// and the class of a label that is left out on narrower ones, as in `console.css`.
const WIDTHS: [(f64, &str); 3] = [(NARROW, ""), (WIDE, " minor"), (1_052.0, " large")];

/// The least room beside the characters of a label, in px.
const MARGIN: f64 = 8.0;

/// From which width on a bar has room for an arrow, in percent.
const ROOM_FOR_ARROW: f64 = 1.8;

/// Bars above the axis, and below it.
#[derive(Default)]
pub(crate) struct Bars {
    pub(crate) forward: Vec<Bar>,
    pub(crate) backward: Vec<Bar>,
}

/// A usage, or narrow ones that follow each other.
pub(crate) struct Bar {
    pub(crate) x: Percent,
    pub(crate) width: Percent,
    pub(crate) middle: Percent,
    pub(crate) href: String,
    pub(crate) state: String,
    pub(crate) usage: Option<String>,
    /// The usages, where there are several.
    pub(crate) slices: Vec<Slice>,
    pub(crate) title: String,
    /// The two lines that are shown when it is pointed at: the duration, and the interval.
    pub(crate) numbers: [String; 2],
    pub(crate) label: Option<Label>,
    /// A sign for a state that is not the usual one.
    pub(crate) sign: Option<&'static str>,
    pub(crate) has_arrow: bool,
}

/// The length of a usage, within its bar.
pub(crate) struct Label {
    pub(crate) text: String,
    /// The class that leaves it out where the page is too narrow for it.
    pub(crate) class: &'static str,
}

impl Label {
    /// A label that all of has room: a part of a number would be another number.
    fn new(words: &str, is_backward: bool, width: Percent) -> Option<Self> {
        let text = if is_backward {
            format!("\u{25c2} {words}")
        } else {
            format!("{words} \u{25b8}")
        };
        let needed = text.chars().count() as f64 * CHARACTER + MARGIN;
        let mut fitting = WIDTHS.into_iter();
        let (_, class) = fitting.find(|(drawing, _)| width.0 / 100.0 * drawing >= needed)?;
        Some(Self { text, class })
    }
}

/// One of several usages that are drawn together.
pub(crate) struct Slice {
    pub(crate) x: Percent,
    pub(crate) width: Percent,
    pub(crate) usage: String,
    pub(crate) title: String,
}

type Address = dyn Fn(Timestamp, Timestamp) -> String + Send + Sync;

impl Bars {
    pub(crate) fn draw(usages: &[Usage], scale: Scale, address: &Address) -> Self {
        let is_sliced = usages.len() <= DRAWN_MAX;
        let mut bars = Self::default();
        for is_backward in [false, true] {
            let mut lane: Vec<Placed<'_>> = usages
                .iter()
                .filter(|it| it.is_backward() == is_backward)
                .filter_map(|it| Placed::new(it, scale))
                .collect();
            lane.sort_by_key(Placed::low);
            let groups = lane.chunk_by(Placed::is_joined_by).flat_map(parts);
            let drawn = groups.map(|group| match group {
                [one] => Bar::of_one(one),
                several => Bar::of_several(several, is_sliced, address),
            });
            let lane = if is_backward {
                &mut bars.backward
            } else {
                &mut bars.forward
            };
            lane.extend(drawn);
        }
        bars
    }
}

/// A usage and where it is drawn.
struct Placed<'a> {
    usage: &'a Usage,
    x: Percent,
    width: Percent,
}

impl<'a> Placed<'a> {
    fn new(usage: &'a Usage, scale: Scale) -> Option<Self> {
        let (x, width) = scale.stretch(usage.interval.start, usage.interval.end)?;
        Some(Self { usage, x, width })
    }

    fn low(&self) -> Timestamp {
        self.usage.interval.start.min(self.usage.interval.end)
    }

    fn high(&self) -> Timestamp {
        self.usage.interval.start.max(self.usage.interval.end)
    }

    /// Whether the next usage may be drawn together with this one: it is narrow, and follows at once.
    fn is_joined_by(&self, next: &Self) -> bool {
        next.is_joined() && next.low() == self.high()
    }

    /// Whether it is drawn together with its neighbours. A usage that is not billed is drawn alone.
    fn is_joined(&self) -> bool {
        self.width.0 < WIDTH_MIN && self.usage.is_billed()
    }
}

/// Cuts narrow usages that follow each other into parts that are wide enough. The first of a run
/// may be one without neighbours.
fn parts<'a, 'b>(run: &'b [Placed<'a>]) -> Vec<&'b [Placed<'a>]> {
    let alone = usize::from(run.first().is_some_and(|first| !first.is_joined()));
    let (first, mut rest) = run.split_at(alone);
    let mut parts: Vec<_> = (!first.is_empty()).then_some(first).into_iter().collect();
    while let Some(begin) = rest.first() {
        let within = rest
            .iter()
            .take_while(|it| it.x.0 + it.width.0 - begin.x.0 <= GROUP_WIDTH);
        let (part, others) = rest.split_at(within.count().max(1));
        parts.push(part);
        rest = others;
    }
    parts
}

impl Bar {
    fn of_one(placed: &Placed<'_>) -> Self {
        let usage = placed.usage;
        let sign = sign(&usage.state);
        let width = Percent(placed.width.0.max(VISIBLE));
        let status = usage
            .status
            .map_or(String::new(), |status| format!(" {status}"));
        let words = show::in_words(usage.duration);
        let label =
            Label::new(&words, usage.is_backward(), placed.width).filter(|_| sign.is_none());
        Self {
            x: placed.x,
            width,
            middle: Percent(placed.x.0 + width.0 / 2.0),
            href: format!("#{}", row_link(&usage.id)),
            state: usage.state.clone(),
            title: title(usage),
            numbers: [
                format!(
                    "{words} ({} ms), {}{status}",
                    usage.duration,
                    words_of(&usage.state)
                ),
                format!("{} \u{2192} {}", usage.interval.start, usage.interval.end),
            ],
            has_arrow: placed.width.0 >= ROOM_FOR_ARROW && sign.is_none() && label.is_none(),
            label,
            sign,
            usage: Some(usage.id.clone()),
            slices: Vec::new(),
        }
    }

    fn of_several(group: &[Placed<'_>], is_sliced: bool, address: &Address) -> Self {
        let [first, .., last] = group else {
            return Self::of_one(&group[0]);
        };
        let total: i64 = group.iter().map(|it| it.usage.duration).sum();
        let width = Percent((last.x.0 + last.width.0 - first.x.0).max(VISIBLE));
        let (low, high) = (first.low(), last.high());
        let words = format!("{} usages, {}", group.len(), show::in_words(total));
        let slices = group.iter().filter(|_| is_sliced).map(|it| Slice {
            x: it.x,
            width: Percent(it.width.0.max(VISIBLE)),
            usage: it.usage.id.clone(),
            title: title(it.usage),
        });
        Self {
            x: first.x,
            width,
            middle: Percent(first.x.0 + width.0 / 2.0),
            href: address(low, high),
            state: "accepted".to_owned(),
            usage: None,
            slices: slices.collect(),
            title: format!("{words} ({total} ms): {low} to {high}"),
            numbers: [
                format!("{words} ({total} ms)"),
                format!("{low} \u{2013} {high}"),
            ],
            label: None,
            sign: None,
            has_arrow: false,
        }
    }
}

/// The id of the row of a usage in the table, as a link writes it.
fn row_link(usage: &str) -> String {
    format!("u-{}", utf8_percent_encode(usage, NON_ALPHANUMERIC))
}

fn title(usage: &Usage) -> String {
    format!(
        "{} ({} ms), {}: {} to {}, {}",
        show::in_words(usage.duration),
        usage.duration,
        words_of(&usage.state),
        usage.interval.start,
        usage.interval.end,
        Plain(&usage.id),
    )
}

/// The state as people say it.
pub(crate) fn words_of(state: &str) -> String {
    state.replace('_', " ")
}

fn sign(state: &str) -> Option<&'static str> {
    match state {
        "planned" => Some("\u{2026}"),
        "refused" => Some("!"),
        "skipped" => Some("\u{d7}"),
        "set_aside" => Some("\u{2298}"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_has_room_for_all_of_it_or_is_left_out() {
        let class = |words: &str, is_backward: bool, percent: f64| {
            Label::new(words, is_backward, Percent(percent)).map(|label| label.class)
        };
        // A day of ten fits from a tablet on, and on a narrow page if it is one of six.
        assert_eq!(class("1 d", false, 10.0), Some(" minor"));
        assert_eq!(class("1 d", false, 16.0), Some(""));
        let long = "\u{2212}19 h 54 min 28.054 s";
        assert_eq!(class(long, true, 10.0), None);
        assert_eq!(class(long, true, 17.0), Some(" large"));
        assert_eq!(class(long, true, 26.0), Some(" minor"));
        let label = Label::new(long, true, Percent(60.0)).unwrap();
        assert_eq!((label.class, label.text), ("", format!("\u{25c2} {long}")));
    }
}
