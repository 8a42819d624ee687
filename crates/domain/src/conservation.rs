//! Whether a span, its totals and the entries of its usages agree: the law, as anybody can check it.

use crate::{Entry, EntryState, Interval, Span, Timestamp, Totals};

/// Compares a span with its entries, which are added one by one in the order of their versions.
///
/// Read the span before its entries. An entry is written before its execution is recorded, so each
/// execution of the span that was read has its entry by then. Entries of this version of the span
/// or a later one do not count: their usages are planned, or were executed since. Neither do
/// entries from before the totals begin.
#[derive(Clone, Debug)]
pub struct ConservationCheck<'a> {
    span: &'a Span,
    billed: i64,
    skipped: i64,
    unanswered: i64,
    usages: u64,
    /// How far the entries lead from where the totals begin.
    reached: Timestamp,
    /// When the last of the entries was answered.
    answered_at: Option<Timestamp>,
    /// Whether an entry is being sent again: the totals count it as skipped until that is done.
    is_resending: bool,
    /// The first stretch for which there is no entry, and when the entry before it was answered.
    gap: Option<(Interval, Option<Timestamp>)>,
}

/// The differences between a span, its totals and its entries. All durations are in ms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Difference {
    /// How far the span is sampled from where its totals begin.
    pub used: i64,
    /// Billed, by the totals.
    pub billed: i64,
    /// Skipped, by the totals.
    pub skipped: i64,
    /// The part of `skipped` whose post had no answer, by the totals.
    pub unanswered: i64,
    /// How many usages the totals count.
    pub usages: u64,
    pub entries_billed: i64,
    pub entries_skipped: i64,
    /// The part of `entries_skipped` whose post had no answer.
    pub entries_unanswered: i64,
    /// How many entries say that a usage was billed.
    pub entries: u64,
    /// The first stretch for which there is no entry.
    pub missing: Option<Interval>,
}

impl<'a> ConservationCheck<'a> {
    pub fn new(span: &'a Span) -> Self {
        Self {
            span,
            billed: 0,
            skipped: 0,
            unanswered: 0,
            usages: 0,
            reached: span.processing.totals.since,
            answered_at: None,
            is_resending: false,
            gap: None,
        }
    }

    pub fn add(&mut self, entry: &Entry) {
        let processing = &self.span.processing;
        let is_counted = processing
            .totals
            .first_version
            .is_some_and(|first| entry.version >= first);
        if !is_counted || entry.version >= processing.version {
            return;
        }
        self.lead_to(entry.interval.start);
        self.reached = entry.interval.end;
        let answered_at = entry.accepted_at.or(entry.skipped_at);
        self.answered_at = answered_at.or(entry.set_aside_at);
        self.is_resending |= entry.resend.is_some();
        match entry.state {
            EntryState::Accepted | EntryState::Counted | EntryState::SetAside => {
                self.billed += entry.interval.duration();
                self.usages += 1;
            }
            EntryState::Skipped => {
                let duration = entry.interval.duration();
                self.skipped += duration;
                self.unanswered += if entry.unanswered { duration } else { 0 };
            }
            // The ledger holds no such entries. If it does, the totals differ and show it.
            EntryState::Planned | EntryState::Refused => {}
        }
    }

    /// Notes a gap if the entries so far do not reach `time`, where the next one begins or to
    /// which the span is sampled.
    fn lead_to(&mut self, time: Timestamp) {
        if self.reached != time {
            let missing = Interval {
                start: self.reached,
                end: time,
            };
            self.gap.get_or_insert((missing, self.answered_at));
        }
    }

    /// The differences between the three, if there are any. `lifetime` is how long an entry is kept
    /// after its answer, ms: entries of a complete span may be missing because they have expired.
    pub fn difference(mut self, now: Timestamp, lifetime: i64) -> Option<Difference> {
        self.lead_to(self.span.sampled_to());
        let totals = &self.span.processing.totals;
        let Totals {
            billed,
            skipped,
            unanswered,
            usages,
            ..
        } = *totals;
        let is_same = (self.billed, self.skipped, self.unanswered, self.usages)
            == (billed, skipped, unanswered, usages);
        let is_under_way =
            self.is_resending && self.billed + self.skipped == totals.billed + totals.skipped;
        let entries_fit = (is_same || is_under_way) && self.gap.is_none();
        let is_excused = self.is_expired(now, lifetime);
        if self.span.difference() == 0 && (entries_fit || is_excused) {
            return None;
        }
        Some(Difference {
            used: self.span.sampled_to().since(totals.since),
            billed,
            skipped,
            unanswered,
            usages,
            entries_billed: self.billed,
            entries_skipped: self.skipped,
            entries_unanswered: self.unanswered,
            entries: self.usages,
            missing: self.gap.map(|(missing, _)| missing),
        })
    }

    /// Whether the missing entries may have expired. Entries expire in the order of their answers. So
    /// a missing entry was answered later than the entry before it, if that entry is still there.
    /// Clocks differ, and the lifetime may have been shorter when the entries were written, so half
    /// of it suffices.
    fn is_expired(&self, now: Timestamp, lifetime: i64) -> bool {
        let totals = &self.span.processing.totals;
        let is_fewer = self.usages < totals.usages
            || (self.usages == totals.usages && self.skipped != totals.skipped);
        if !self.span.processing.complete || !is_fewer {
            return false;
        }
        // There may be no gap: a stretch forth and the same stretch back lead to where they began.
        let answered_at = self.gap.and_then(|(_, answered_at)| answered_at);
        answered_at.is_none_or(|at| now.since(at) >= lifetime / 2)
    }
}
