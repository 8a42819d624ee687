//! What was sampled and does not count upstream: `excluded`, a list on the span, and `again`, the ranges of
//! it that are sent again (`docs/decisions.md#what-does-not-count`).
//!
//! Both lists hold time as it was sampled: forwards, or backwards where a correction was skipped. So a span
//! has billed `sampled_to - start - Σ excluded - Σ again`, by construction.

use std::ops::Not;

use serde::{Deserialize, Serialize};

use crate::{Acceptance, Interval, RunId, Span, Timestamp, usage_guid};

/// How many ranges an operator's skip may leave on a span, and after how many a refusal ends a resend. A fault upstream
/// is one range, however long it lasts.
pub const EXCLUDED_MAX: usize = 500;

/// A range of sampled time that does not count upstream. It is one interval, or several that follow each
/// other in one direction.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Excluded {
    /// Backwards where a correction was skipped.
    #[serde(flatten)]
    pub interval: Interval,
    /// A late stop has trimmed the range: sampling has gone back to this time, and nothing was posted. If the range is
    /// sent again, each usage goes forwards whole, and then its own way back. Of 12:00 to 15:00, trimmed to 13:30,
    /// the second hour goes back by half, and the third one wholly. Only a range that leads forwards is trimmed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub back_to: Option<Timestamp>,
    /// A post of it may have been carried out, or may be under way: it may count all the same.
    #[serde(default, skip_serializing_if = "Not::not")]
    pub unanswered: bool,
    /// The id of its usage where another program has chosen it. Then the range is one interval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage_guid: Option<String>,
    /// Why the upstream has refused it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// A range that is sent again. The first of the list is delivered interval by interval, before anything else
/// of the span.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Again {
    #[serde(flatten)]
    pub range: Excluded,
    /// When it was moved here.
    pub at: Timestamp,
    /// The run that may post it. Once a run is named, the range is one interval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<RunId>,
    /// Deliveries that failed since it is here.
    pub attempts: u32,
    /// The latest end of the posts that followed a lookup; none without a lookup.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub posts_end_by: Option<Timestamp>,
    /// The upstream's acceptance of the usage in hand, before the usage has its entry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accepted: Option<Acceptance>,
    /// The usage of the interval is recorded; what is left is the way back of a range that was trimmed.
    #[serde(default, skip_serializing_if = "Not::not")]
    pub is_way_back: bool,
}

impl Excluded {
    pub fn leads_on(&self) -> bool {
        self.interval.start < self.interval.end
    }

    /// Where sampling has gone from its start: to its end, or to where a stop has trimmed it.
    pub fn reach(&self) -> Timestamp {
        self.back_to.unwrap_or(self.interval.end)
    }

    /// What it takes from the time that is sampled, ms; less than nothing where it leads backwards.
    pub fn duration(&self) -> i64 {
        self.reach().since(self.interval.start)
    }

    /// The way back over the part that was trimmed.
    pub fn way_back(&self) -> Option<Interval> {
        self.back_to.map(|back_to| Interval {
            start: self.interval.end,
            end: back_to,
        })
    }

    /// Whether `interval` is a part of it, in the same direction.
    pub fn covers(&self, interval: Interval) -> bool {
        let Interval { start, end } = self.interval;
        if self.leads_on() {
            start <= interval.start && interval.start < interval.end && interval.end <= end
        } else {
            start >= interval.start && interval.start > interval.end && interval.end >= end
        }
    }

    /// Its parts before and after a time within it.
    pub(crate) fn split(self, at: Timestamp) -> (Self, Self) {
        let Interval { start, end } = self.interval;
        let before = Self {
            interval: Interval { start, end: at },
            back_to: self.back_to.filter(|back_to| *back_to < at),
            ..self.clone()
        };
        let behind = Self {
            interval: Interval { start: at, end },
            back_to: self.back_to.map(|back_to| back_to.max(at)),
            ..self
        };
        (before, behind)
    }

    /// Whether sampling goes back over it from `sampled_to`.
    pub(crate) fn is_trimmed_from(&self, sampled_to: Timestamp) -> bool {
        self.leads_on() && self.reach() == sampled_to && self.reach() != self.interval.start
    }

    /// The lower end of its time.
    fn from(&self) -> Timestamp {
        self.interval.start.min(self.interval.end)
    }

    /// Whether `next` continues it, and nothing tells the two apart.
    fn is_continued_by(&self, next: &Self) -> bool {
        let touches = if self.leads_on() {
            self.interval.end == next.interval.start
        } else {
            next.interval.end == self.interval.start
        };
        let is_plain =
            |it: &Self| it.back_to.is_none() && it.usage_guid.is_none() && !it.interval.is_empty();
        touches
            && self.leads_on() == next.leads_on()
            && self.unanswered == next.unanswered
            && self.error == next.error
            && is_plain(self)
            && is_plain(next)
    }

    fn joined(mut self, next: &Self) -> Self {
        if self.leads_on() {
            self.interval.end = next.interval.end;
        } else {
            self.interval.start = next.interval.start;
        }
        self
    }
}

impl Again {
    pub(crate) fn new(range: Excluded, at: Timestamp) -> Self {
        Self {
            range,
            at,
            by: None,
            attempts: 0,
            posts_end_by: None,
            accepted: None,
            is_way_back: false,
        }
    }

    /// Its way back, if nothing else is left of it.
    pub(crate) fn way_back_left(&self) -> Option<Interval> {
        self.range.way_back().filter(|_| self.is_way_back)
    }

    /// The time of the usages that are left of it, first of all those that lead forwards.
    pub(crate) fn left(&self) -> Interval {
        self.way_back_left().unwrap_or(self.range.interval)
    }

    /// What it takes from the time that is sampled until it is recorded, ms.
    pub fn duration(&self) -> i64 {
        let way_back = self.way_back_left();
        way_back.map_or_else(|| self.range.duration(), Interval::duration)
    }
}

/// Adds a range in the order of time, and merges it with its neighbours.
pub(crate) fn add(list: &mut Vec<Excluded>, range: Excluded) {
    let key = |it: &Excluded| (it.from(), it.leads_on());
    let mut place = list.partition_point(|it| key(it) <= key(&range));
    list.insert(place, range);
    if place > 0 && list[place - 1].is_continued_by(&list[place]) {
        let next = list.remove(place);
        place -= 1;
        list[place] = list[place].clone().joined(&next);
    }
    if place + 1 < list.len() && list[place].is_continued_by(&list[place + 1]) {
        let next = list.remove(place + 1);
        list[place] = list[place].clone().joined(&next);
    }
}

/// Takes one interval out of the range that covers it. What is left of that range stays.
pub(crate) fn take(list: &mut Vec<Excluded>, interval: Interval) -> Option<Excluded> {
    let place = list.iter().position(|it| it.covers(interval))?;
    let mut range = list.remove(place);
    if range.interval.start != interval.start {
        let (before, behind) = range.split(interval.start);
        list.insert(place, before);
        range = behind;
    }
    if range.interval.end != interval.end {
        let (within, behind) = range.split(interval.end);
        add(list, behind);
        range = within;
    }
    Some(range)
}

/// A usage that is to be delivered: that of the planned interval, or the next of `again`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Delivery {
    pub interval: Interval,
    /// The `dedup_id` by which the upstream recognises a repeat.
    pub usage_guid: String,
    /// Whether it is one of `again`.
    pub is_again: bool,
}

impl Span {
    /// The first interval of a range, as its time was cut.
    pub(crate) fn first_interval(&self, range: &Excluded) -> Interval {
        let Interval { start, end } = range.interval;
        if range.usage_guid.is_some() {
            return range.interval;
        }
        let cut = if range.leads_on() {
            self.cut_after(start).map(|cut| cut.min(end))
        } else {
            self.cut_before(start).map(|cut| cut.max(end))
        };
        Interval {
            start,
            end: cut.unwrap_or(end),
        }
    }

    /// The usage of the first of `again` that is delivered next.
    pub fn next_again(&self) -> Option<Delivery> {
        let again = self.processing.again.first()?;
        let (interval, guid) = match again.way_back_left() {
            Some(way_back) => (way_back, None),
            None => (
                self.first_interval(&again.range),
                again.range.usage_guid.clone(),
            ),
        };
        Some(Delivery {
            interval,
            usage_guid: guid.unwrap_or_else(|| usage_guid(self, interval)),
            is_again: true,
        })
    }

    /// The usage that is delivered next: of `again`, else the planned one.
    pub fn in_hand(&self) -> Option<Delivery> {
        self.next_again().or_else(|| {
            let planned = self.processing.planned.as_ref()?;
            Some(Delivery {
                interval: planned.interval,
                usage_guid: planned.usage_guid.clone(),
                is_again: false,
            })
        })
    }

    /// Makes the first of `again` one interval; what follows stays behind it.
    pub(crate) fn split_again(&mut self) {
        let Some(first) = self.processing.again.first() else {
            return;
        };
        let interval = self.first_interval(&first.range);
        if first.is_way_back || interval == first.range.interval {
            return;
        }
        let first = self.processing.again.remove(0);
        let (within, behind) = first.range.clone().split(interval.end);
        let parts = [within, behind].map(|range| Again {
            range,
            ..first.clone()
        });
        self.processing.again.splice(0..0, parts);
    }
}
