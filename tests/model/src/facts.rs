//! What a span says, in the terms of the laws.

use std::fmt;

use sampler_domain::{Excluded, Span, Timestamp};

use crate::stretch::{HALF_WINDOW, Stretch, Stretches, each, place};
use crate::world::RUNS;

/// What a span says about the time up to where it is sampled.
#[derive(Debug, Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is something that a span says"
)]
pub(crate) struct Facts {
    pub end: Option<u8>,
    pub sampled_to: u8,
    pub is_complete: bool,
    pub is_suspended: bool,
    pub is_probe: bool,
    pub has_failure: bool,
    pub due_at: Option<Timestamp>,
    /// What it has billed, in half windows.
    pub billed: i32,
    pub planned: Option<Stretch>,
    /// The usage of `again` that is delivered next, and all that the first interval of `again` has left.
    pub first: Option<Stretch>,
    pub first_left: Stretches,
    /// What the rest of `again` has left.
    pub again: Stretches,
    pub excluded: Stretches,
    /// What may count of the last two, because a post had no answer.
    pub unanswered: Stretches,
    /// Ways back, each after the usage that it takes back.
    pub ways_back: Vec<(Stretch, Stretch)>,
    /// The intervals of `excluded`.
    pub intervals: Vec<Stretch>,
    /// The places within intervals of `excluded` and `again`.
    pub inside: u16,
    /// Something stands in two places.
    pub overlaps: bool,
    /// What leads forwards and what leads backwards overlap.
    pub opposes: bool,
    /// A trim has entered a correction.
    pub trims_correction: bool,
    /// By how much more than `billed` may count: one bit for each sum, from -[`ZERO`] on.
    pub sums: u128,
    /// Whether it names workers 0 and 1.
    pub names: [bool; 2],
}

/// The bit of no more at all.
pub(crate) const ZERO: u32 = 60;

/// An interval of a range.
struct Part {
    forth: Stretch,
    /// The way back over what was trimmed of it.
    way_back: Option<Stretch>,
}

impl Facts {
    pub(crate) fn of(span: &Span) -> Self {
        let processing = &span.processing;
        let usage = |guid: &str, interval| Stretch::of(span, guid, interval);
        let planned = processing.planned.as_ref();
        let planned = planned.map(|it| usage(&it.usage_guid, it.interval));
        let first = span.next_again();
        let of_plan = processing.planned.iter().map(|it| it.by);
        let names = of_plan.chain(processing.again.iter().map(|it| it.by));
        let names = |run: usize| names.clone().any(|by| by == Some(RUNS[run]));
        let mut facts = Self {
            end: span.end.map(place),
            sampled_to: place(span.sampled_to()),
            is_complete: processing.complete,
            is_suspended: span.suspension().is_some(),
            is_probe: processing.probe.is_some(),
            has_failure: processing.failure.is_some(),
            due_at: Some(processing.due_at),
            billed: (span.proof(Timestamp::MIN).billed / HALF_WINDOW) as i32,
            planned,
            first: first.map(|it| usage(&it.usage_guid, it.interval)),
            sums: 1 << ZERO,
            names: [names(0), names(1)],
            ..Self::default()
        };
        let mut seen = planned.map_or(0, Stretch::set);
        facts.may_count(planned, None);
        for range in &processing.excluded {
            facts.note_range(range);
            for part in parts(span, range) {
                facts.intervals.push(part.forth);
                facts.excluded |= part.set();
                facts.note(&part, range.unanswered, &mut seen);
            }
        }
        for (index, again) in processing.again.iter().enumerate() {
            facts.note_range(&again.range);
            for (number, part) in parts(span, &again.range).into_iter().enumerate() {
                let part = if again.is_way_back { part.left() } else { part };
                let is_first = index == 0 && number == 0;
                let set = if is_first {
                    &mut facts.first_left
                } else {
                    &mut facts.again
                };
                *set |= part.set();
                facts.note(&part, is_first || again.range.unanswered, &mut seen);
            }
        }
        facts.find_opposed(span);
        facts
    }

    fn note_range(&mut self, range: &Excluded) {
        self.trims_correction |= !range.leads_on() && range.back_to.is_some();
    }

    fn note(&mut self, part: &Part, may_count: bool, seen: &mut Stretches) {
        self.overlaps |= *seen & part.set() != 0;
        *seen |= part.set();
        self.inside |= part.forth.inside();
        if let Some(way_back) = part.way_back {
            self.ways_back.push((way_back, part.forth));
        }
        if may_count {
            self.unanswered |= part.set();
            self.may_count(Some(part.forth), part.way_back);
        }
    }

    /// Notes that this may count, and after it its way back.
    fn may_count(&mut self, forth: Option<Stretch>, way_back: Option<Stretch>) {
        let Some(forth) = forth else { return };
        let mut more = shifted(self.sums, forth.len());
        if let Some(way_back) = way_back {
            more |= shifted(more, way_back.len());
        }
        self.sums |= more;
    }

    fn find_opposed(&mut self, span: &Span) {
        let processing = &span.processing;
        let again = processing.again.iter().filter(|it| !it.is_way_back);
        let ranges = processing.excluded.iter();
        let ranges: Vec<&Excluded> = ranges.chain(again.map(|it| &it.range)).collect();
        let (on, back): (Vec<_>, Vec<_>) = ranges.into_iter().partition(|it| it.leads_on());
        self.opposes = on.iter().any(|on| {
            let overlaps = |back: &&Excluded| {
                back.interval.end < on.interval.end && on.interval.start < back.interval.start
            };
            back.iter().any(overlaps)
        });
    }
}

impl fmt::Display for Facts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "to {}", self.sampled_to)?;
        if let Some(end) = self.end {
            write!(f, " of {end}")?;
        }
        if let Some(planned) = self.planned {
            write!(f, ", planned {planned}")?;
        }
        for (name, set) in [
            ("excluded", self.excluded),
            ("first", self.first_left),
            ("again", self.again),
            ("may count", self.unanswered),
        ] {
            if set != 0 {
                write!(f, ", {name} {:?}", each(set).collect::<Vec<_>>())?;
            }
        }
        for (name, is_so) in [
            ("suspended", self.is_suspended),
            ("names A", self.names[0]),
            ("names B", self.names[1]),
            ("complete", self.is_complete),
        ] {
            if is_so {
                write!(f, ", {name}")?;
            }
        }
        Ok(())
    }
}

impl Part {
    fn set(&self) -> Stretches {
        self.forth.set() | self.way_back.map_or(0, Stretch::set)
    }

    /// What is left of it once it is recorded.
    fn left(self) -> Self {
        Self {
            forth: self.way_back.expect("only a way back is left"),
            way_back: None,
        }
    }
}

/// The intervals of a range, as its time was cut.
fn parts(span: &Span, range: &Excluded) -> Vec<Part> {
    if range.usage_guid.is_some() {
        let way_back = range.way_back().filter(|it| !it.is_empty());
        return vec![Part {
            forth: Stretch::FOREIGN,
            way_back: way_back.map(Stretch::over),
        }];
    }
    let (start, end) = (range.interval.start, range.interval.end);
    let (low, high) = (start.min(end), start.max(end));
    let mut cuts = vec![place(low)];
    let mut time = low;
    while let Some(cut) = span.cut_after(time).filter(|cut| *cut < high) {
        cuts.push(place(cut));
        time = cut;
    }
    cuts.push(place(high));
    let mut parts: Vec<Part> = cuts
        .windows(2)
        .map(|pair| {
            let (low, high) = (pair[0], pair[1]);
            if !range.leads_on() {
                return Part {
                    forth: Stretch::new(high, low),
                    way_back: range.back_to.map(|it| Stretch::new(low, place(it))),
                };
            }
            let back_to = range.back_to.map(|it| place(it).max(low));
            let back_to = back_to.filter(|back_to| *back_to < high);
            Part {
                forth: Stretch::new(low, high),
                way_back: back_to.map(|back_to| Stretch::new(high, back_to)),
            }
        })
        .collect();
    if !range.leads_on() {
        parts.reverse();
    }
    parts
}

fn shifted(sums: u128, by: i32) -> u128 {
    if by < 0 { sums >> -by } else { sums << by }
}
