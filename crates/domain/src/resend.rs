//! Sending a usage again that was skipped or set aside (`docs/decisions.md#what-does-not-count`).
//!
//! The receiver marks the entry of the usage ([`Resend`]). A worker posts the same document again. Then
//! it changes the state of the entry, then the span ([`Resent`]), then it marks what was withheld when the
//! usage was taken back, and removes the mark last. Another worker can repeat each step: the span names
//! the resend that its totals count last.

use uuid::Uuid;

use crate::{
    Acceptance, Change, EARLIER_ROUNDS_MAX, Entry, EntryState, Interval, Round, Span, Timestamp,
    UncountedReason,
};

/// The mark on an entry whose usage a worker must post again. Or the upstream has accepted the usage
/// although the ledger says that it was skipped; then only the ledger and the totals are to be corrected.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Resend {
    /// The operator's action in the audit trail. Where a worker marks the entry itself, an id that is in no trail.
    pub act: Uuid,
    /// Why the usage did not count when it was marked: `skipped` or `set_aside`.
    pub from: EntryState,
    /// When the operator asked for it, or the upstream accepted the usage.
    pub at: Timestamp,
    /// When a worker tries it next.
    pub due_at: Timestamp,
    /// The upstream's answer, if the upstream has accepted the usage already. Then no worker posts it
    /// again.
    pub acceptance: Option<Acceptance>,
}

/// The last resend that the totals of a span count.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Resent {
    pub usage_guid: String,
    /// Its [`Resend::act`].
    pub act: Uuid,
}

/// What is to be done to a span whose usage is sent again, and counts by now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Correction {
    /// Nothing: the span says so already, or says nothing about this usage, or is gone.
    Nothing,
    /// This change, if the mark of the usage is still there after the span was read. If it is gone, another
    /// worker has removed it: then the totals count this resend already.
    Make {
        /// The last resend that the span names, which the change overwrites: its mark must be gone first.
        after: Option<Resent>,
        /// A [`Change::Resent`].
        change: Change,
    },
}

impl Resend {
    /// The mark of a withheld entry, once this resend has sent the usage again that the entry takes
    /// back. Each worker gives the mark the same id.
    #[must_use]
    pub fn of_withheld(&self, entry: &Entry) -> Self {
        Self {
            act: Uuid::new_v5(&self.act, entry.usage_guid.as_bytes()),
            from: entry.state,
            at: self.at,
            // At once, whatever the clock says of whoever asked for it.
            due_at: entry.planned_at,
            acceptance: None,
        }
    }
}

impl Entry {
    /// Whether the usage does not count upstream: it was skipped or set aside.
    pub fn is_uncounted(&self) -> bool {
        UncountedReason::of(self.state, self.unanswered).is_some()
    }

    /// Whether it was withheld when a part of `interval` was taken back.
    pub fn was_withheld_of(&self, interval: Interval) -> bool {
        self.withheld && self.is_uncounted() && self.interval.takes_back(interval)
    }

    /// The entry once it is marked; none if it cannot be. An acceptance is added to a mark that has none.
    pub fn marked(&self, resend: &Resend) -> Option<Self> {
        if !self.is_uncounted() || self.state != resend.from {
            return None;
        }
        let mark = match &self.resend {
            None => resend.clone(),
            Some(kept) if kept.acceptance.is_none() && resend.acceptance.is_some() => Resend {
                due_at: resend.due_at,
                acceptance: resend.acceptance.clone(),
                ..kept.clone()
            },
            Some(_) => return None,
        };
        Some(Self {
            resend: Some(mark),
            ..self.clone()
        })
    }

    /// Whether its span has recorded the execution or the skip. Until then a worker may be about to record what
    /// the ledger says, so the entry must stay as it is.
    pub fn is_recorded_on(&self, span: Option<&Span>) -> bool {
        span.is_none_or(|span| span.processing.version > self.version)
    }

    /// What is to be done to the span of a marked entry, now that the usage counts.
    pub fn correction(&self, span: Option<&Span>) -> Correction {
        let (Some(span), Some(mark), Some(reason)) = (span, &self.resend, self.marked_from())
        else {
            return Correction::Nothing;
        };
        let is_missing = match reason {
            UncountedReason::Skipped { .. } => span.counts(self.version),
            UncountedReason::SetAside => span.knows_uncounted(self.interval),
        };
        let after = span.processing.resent.clone();
        if !is_missing || after.as_ref().is_some_and(|last| last.act == mark.act) {
            return Correction::Nothing;
        }
        let resent = Resent {
            usage_guid: self.usage_guid.clone(),
            act: mark.act,
        };
        let interval = self.interval;
        let change = Change::Resent {
            resent,
            interval,
            reason,
        };
        Correction::Make { after, change }
    }

    /// Why the usage did not count when it was marked; none if it is not marked.
    pub fn marked_from(&self) -> Option<UncountedReason> {
        UncountedReason::of(self.resend.as_ref()?.from, self.unanswered)
    }

    /// The entry after the upstream has set its usage aside. The round before is kept, if there was one:
    /// the ledger forgets nothing that it said.
    #[must_use]
    pub fn set_aside(&self, at: Timestamp, error: &str) -> Self {
        let mut entry = self.clone();
        if self.set_aside_at.is_some() {
            entry.earlier_rounds.push(Round {
                set_aside_at: self.set_aside_at,
                resent_at: self.resent_at,
            });
            let surplus = entry
                .earlier_rounds
                .len()
                .saturating_sub(EARLIER_ROUNDS_MAX);
            entry.earlier_rounds.drain(..surplus);
        }
        Self {
            state: EntryState::SetAside,
            set_aside_at: Some(at),
            error: Some(error.to_owned()),
            question: None,
            ..entry
        }
    }

    /// The entry after the upstream has accepted its usage again. The mark stays until the span knows that
    /// the usage counts. The time of an earlier resend is in
    /// [`earlier_rounds`](Entry::earlier_rounds) since the usage was set aside again.
    #[must_use]
    pub fn resent(&self, acceptance: &Acceptance) -> Self {
        let mut entry = self.clone();
        if self.state == EntryState::SetAside {
            // By whichever clock it was set aside: it was accepted again after that.
            entry.resent_at = Some(acceptance.at).max(self.set_aside_at);
        } else {
            entry.accepted_at = Some(acceptance.at);
        }
        Self {
            state: EntryState::Accepted,
            attempts: self.attempts.saturating_add(1),
            status: acceptance.status,
            location: acceptance.location.clone(),
            error: None,
            withheld: false,
            ..entry
        }
    }
}

impl Span {
    /// Whether the totals count the usage that was planned at this version. They count none that an
    /// original Sampler has sampled, because it keeps no totals.
    pub fn counts(&self, version: i64) -> bool {
        let first = self.processing.totals.first_version;
        first.is_some_and(|first| version >= first) && version < self.processing.version
    }

    /// The span once it knows that a usage counts. The totals count one that was set aside as billed all
    /// the while, because the upstream had accepted it.
    pub(crate) fn with_resent(
        &self,
        resent: &Resent,
        interval: Interval,
        reason: UncountedReason,
    ) -> Self {
        let mut span = self.clone();
        span.remove_uncounted(interval);
        if reason != UncountedReason::SetAside {
            let totals = &mut span.processing.totals;
            totals.unskip(interval.duration(), reason);
        }
        span.processing.resent = Some(resent.clone());
        span
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Granularities, Granularity, Id, Measures, Planned, Policy, SpanId, StartEvent, Step,
        Target, next_step,
    };

    fn at(millis: i64) -> Timestamp {
        Timestamp::clamped(millis)
    }

    /// An entry that was accepted at 10 and set aside at 20.
    fn set_aside() -> Entry {
        let event = StartEvent {
            id: Some(Id::new("a").unwrap()),
            timestamp: at(0),
            target: Target::from_store(["o", "s", "c", "r", "p", "i"]),
            measures: Measures::default(),
        };
        let mut span = Span::open(SpanId::new(at(0), 0), event);
        let policy = Policy {
            granularities: Granularities::all(Granularity::Hour),
            stop_grace: 0,
        };
        let Step::Plan(interval) = next_step(&span, at(3_600_000), &policy) else {
            panic!("it is due");
        };
        span.processing.planned = Some(Planned::new(&span, interval, at(5)));
        let accepted = Entry::of_accepted(&span, acceptance(10)).unwrap();
        accepted.set_aside(at(20), "closed")
    }

    fn acceptance(millis: i64) -> Acceptance {
        Acceptance {
            at: at(millis),
            status: Some(202),
            location: None,
        }
    }

    /// The clock of the worker that heard it is behind.
    #[test]
    fn a_usage_is_accepted_again_no_earlier_than_it_was_set_aside() {
        let entry = set_aside();
        for (heard, noted) in [(15, 20), (25, 25)] {
            let again = entry.resent(&acceptance(heard));
            assert_eq!(again.resent_at, Some(at(noted)));
        }
    }
}
