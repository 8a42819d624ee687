//! What operators do about usages that the upstream refuses: skip them, and send them again.

use crate::change::ChangeKind;
use crate::excluded::{add, take};
use crate::{Again, Change, EXCLUDED_MAX, Excluded, Interval, Span, Timestamp};

/// Why a span cannot be skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SkipRefusal {
    /// It is not suspended, or is being probed.
    NotSuspended,
    /// The time is no boundary of the span's dimension, nor its end.
    NoBoundary,
    /// The time is not later than where the refused interval ends.
    TooEarly,
    /// The time is after the end of the span.
    AfterEnd,
    /// The time is in the future.
    InFuture,
    /// A refused correction is skipped alone.
    LeadsBack,
    /// The span has [`EXCLUDED_MAX`] ranges already.
    TooManyRanges,
}

impl Span {
    /// Skips the refused interval, or all up to `until`: a boundary that is due and not beyond the end. What is
    /// skipped counts as sampled, and stands in `excluded`.
    pub fn to_skip(&self, until: Option<Timestamp>, now: Timestamp) -> Result<Change, SkipRefusal> {
        let planned = self.processing.planned.as_ref();
        let (Some(planned), true) = (planned, self.suspension().is_some()) else {
            return Err(SkipRefusal::NotSuspended);
        };
        let interval = planned.interval;
        let until = until.unwrap_or(interval.end);
        if until != interval.end {
            self.require_until(interval, until, now)?;
        }
        let failure = self.processing.failure.as_ref();
        let error = failure.map(|it| it.error.clone());
        let is_derived = planned.usage_guid == crate::usage_guid(self, interval);
        let refused = Excluded {
            interval,
            back_to: None,
            unanswered: planned.unanswered,
            usage_guid: (!is_derived).then(|| planned.usage_guid.clone()),
            error: error.clone(),
        };
        let beyond = (until != interval.end).then_some(Excluded {
            interval: Interval {
                start: interval.end,
                end: until,
            },
            back_to: None,
            unanswered: false,
            usage_guid: None,
            error,
        });
        let mut after = self.clone();
        let processing = &mut after.processing;
        for range in [Some(refused), beyond].into_iter().flatten() {
            add(&mut processing.excluded, range);
        }
        if processing.excluded.len() > EXCLUDED_MAX {
            return Err(SkipRefusal::TooManyRanges);
        }
        processing.version += 1;
        processing.planned = None;
        processing.failure = None;
        processing.probe = None;
        processing.last = Interval {
            start: interval.start,
            end: until,
        };
        processing.due_at = now;
        Ok(Change {
            kind: ChangeKind::Skip,
            after,
        })
    }

    fn require_until(
        &self,
        refused: Interval,
        until: Timestamp,
        now: Timestamp,
    ) -> Result<(), SkipRefusal> {
        if refused.end < refused.start {
            return Err(SkipRefusal::LeadsBack);
        }
        if until <= refused.end {
            return Err(SkipRefusal::TooEarly);
        }
        if until > now {
            return Err(SkipRefusal::InFuture);
        }
        if self.end.is_some_and(|end| until > end) {
            return Err(SkipRefusal::AfterEnd);
        }
        let is_boundary = self.cut_after(until.plus(-1)) == Some(until);
        if is_boundary || self.end == Some(until) {
            Ok(())
        } else {
            Err(SkipRefusal::NoBoundary)
        }
    }

    /// Sends again what is excluded within these times; none where nothing is. An interval is sent whole or
    /// not at all.
    pub fn to_resend(
        &self,
        from: Option<Timestamp>,
        to: Option<Timestamp>,
        now: Timestamp,
    ) -> Option<Change> {
        let mut after = self.clone();
        let processing = &mut after.processing;
        let parts = self.processing.excluded.iter().map(|range| {
            let part = self.intervals_within(range, from, to)?;
            take(&mut processing.excluded, part)
        });
        let parts: Vec<Excluded> = parts.flatten().collect();
        if parts.is_empty() {
            return None;
        }
        let again = parts.into_iter().map(|range| Again::new(range, now));
        processing.again.extend(again);
        processing.version += 1;
        processing.complete = false;
        processing.due_at = now;
        Some(Change {
            kind: ChangeKind::Resend,
            after,
        })
    }

    /// The part of a range whose intervals are within these times.
    fn intervals_within(
        &self,
        range: &Excluded,
        from: Option<Timestamp>,
        to: Option<Timestamp>,
    ) -> Option<Interval> {
        let mut rest = range.clone();
        let mut part: Option<Interval> = None;
        while !rest.interval.is_empty() {
            let interval = self.first_interval(&rest);
            let (low, high) = (
                interval.start.min(interval.end),
                interval.start.max(interval.end),
            );
            if from.is_none_or(|from| from <= low) && to.is_none_or(|to| high <= to) {
                let start = part.map_or(interval.start, |part| part.start);
                let end = interval.end;
                part = Some(Interval { start, end });
            }
            rest.interval.start = interval.end;
        }
        part
    }
}
