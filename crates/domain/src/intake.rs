//! The rule of starts and stops, without I/O: from what is kept for the target, the event and the time to
//! the outcome and the change.
//!
//! A start or a stop that repeats a kept event changes nothing, however long ago that was. Any other
//! start opens a span, if the target has none that is open or ends later; any other stop ends the open
//! span, unless it is dated before that span's start.
//!
//! [`decide_start`] and [`decide_stop`] are what a store decides in one atomic step. They are called by the
//! store in memory, and by the MongoDB store after a conflict: an ordinary event is decided by the same rule
//! as the condition of a query and the unique indexes. [`IntakeRules::admit_start`] and
//! [`IntakeRules::admit_stop`] add what only a receiver knows: its clock and its settings. A receiver checks
//! both halves of an update by them. With any other event it does the same in two steps around the store
//! (`receiver/src/decision.rs`): the slack before it, lenient repeats after it.

use crate::{Field, Span, StartEvent, StopEvent, Timestamp};

/// How far an event's timestamp may be from the receiver's clock; both limits are inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Slack {
    /// Into the past, ms.
    pub past: i64,
    /// Into the future, ms.
    pub future: i64,
}

impl Slack {
    /// Whether an event with this `timestamp` is accepted at `now`.
    pub const fn admits(self, timestamp: Timestamp, now: Timestamp) -> bool {
        let ahead = timestamp.since(now);
        -self.past <= ahead && ahead <= self.future
    }
}

/// Which events are kept, as an operator has set it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct IntakeRules {
    /// How far from now an event may be dated.
    pub slack: Slack,
    /// Whether an event counts as a repeat that differs from the kept one in timestamp or measures.
    pub lenient_repeats: bool,
}

/// Why an event is not kept.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// An event of the target with its id differs in these fields.
    IdTaken(Vec<Field>),
    AlreadyOpen,
    NotOpen,
    /// The target's previous span ends later than the new one starts.
    Overlaps {
        /// Where that span ends.
        until: Timestamp,
    },
    /// The stop is dated before the start of the open span.
    BeforeStart {
        /// Where the open span starts.
        start: Timestamp,
    },
    OutsideSlack {
        /// How far it may be dated from now.
        slack: Slack,
        /// The clock of the receiver.
        now: Timestamp,
    },
}

impl IntakeRules {
    /// Refuses an event that is dated too far from now.
    pub fn require_slack(&self, timestamp: Timestamp, now: Timestamp) -> Result<(), Refusal> {
        let slack = self.slack;
        if slack.admits(timestamp, now) {
            return Ok(());
        }
        Err(Refusal::OutsideSlack { slack, now })
    }

    /// Refuses an event whose id was kept before, and which differs from that event in these fields.
    /// The original Sampler keeps the first and accepts the second, where the target is the same; a
    /// setting makes Sampler do so, too.
    pub fn require_same(&self, differences: Vec<Field>) -> Result<(), Refusal> {
        let differs_in_target = differences.iter().any(|it| matches!(it, Field::Target(_)));
        if differences.is_empty() || self.lenient_repeats && !differs_in_target {
            return Ok(());
        }
        Err(Refusal::IdTaken(differences))
    }

    /// Decides about a start that a receiver has at `now`. `by_id` is the target's span that a start with
    /// the same id has opened; where there is one, `others` are not needed.
    pub fn admit_start<'s>(
        &self,
        event: &StartEvent,
        by_id: Option<&'s Span>,
        others: NotEnded,
        now: Timestamp,
    ) -> Result<StartDecision<'s>, Refusal> {
        if by_id.is_none() {
            self.require_slack(event.timestamp, now)?;
        }
        decide_start(event, by_id, others)
            .or_else(|refusal| Ok(StartDecision::Repeated(self.tolerate(refusal, by_id)?)))
    }

    /// Decides about a stop that a receiver has at `now`. `by_id` is the target's span that a stop with
    /// the same id has ended; where there is one, `open` is not needed.
    pub fn admit_stop<'s>(
        &self,
        event: &StopEvent,
        by_id: Option<&'s Span>,
        open: Option<&'s Span>,
        now: Timestamp,
    ) -> Result<StopDecision<'s>, Refusal> {
        if by_id.is_none() {
            self.require_slack(event.timestamp, now)?;
        }
        decide_stop(event, by_id, open)
            .or_else(|refusal| Ok(StopDecision::Repeated(self.tolerate(refusal, by_id)?)))
    }

    /// The span of a lenient repeat.
    fn tolerate<'s>(&self, refusal: Refusal, by_id: Option<&'s Span>) -> Result<&'s Span, Refusal> {
        match (refusal, by_id) {
            (Refusal::IdTaken(differences), Some(earlier)) => {
                self.require_same(differences).map(|()| earlier)
            }
            (refusal, _) => Err(refusal),
        }
    }
}

/// The spans of a target that have not ended by the time of a start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NotEnded {
    pub is_open: bool,
    /// The end of one that ends later than the start.
    pub until: Option<Timestamp>,
}

impl NotEnded {
    /// What of the spans with these ends has not ended by `start`. The latest of several ends counts.
    pub fn by(start: Timestamp, ends: impl IntoIterator<Item = Option<Timestamp>>) -> Self {
        let mut others = Self::default();
        for end in ends {
            match end {
                None => others.is_open = true,
                Some(end) if end > start => others.until = others.until.max(Some(end)),
                Some(_) => {}
            }
        }
        others
    }

    /// Refuses a start for them: [`Refusal::AlreadyOpen`] or [`Refusal::Overlaps`].
    pub fn require_room(self) -> Result<(), Refusal> {
        if self.is_open {
            return Err(Refusal::AlreadyOpen);
        }
        match self.until {
            Some(until) => Err(Refusal::Overlaps { until }),
            None => Ok(()),
        }
    }
}

/// What a start does that is not refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartDecision<'s> {
    /// It opens a span ([`Span::open`]).
    Open,
    /// Nothing: the same event has opened this span before.
    Repeated(&'s Span),
}

/// What a stop does that is not refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopDecision<'s> {
    /// It ends this span ([`Span::ended`]).
    End(&'s Span),
    /// Nothing: the same event has ended this span before.
    Repeated(&'s Span),
}

/// Decides about a start by what is kept for its target: the span that a start with the same id has
/// opened, and the others that have not ended.
pub fn decide_start<'s>(
    event: &StartEvent,
    by_id: Option<&'s Span>,
    others: NotEnded,
) -> Result<StartDecision<'s>, Refusal> {
    if let Some(earlier) = by_id {
        require_none(event.differences(earlier))?;
        return Ok(StartDecision::Repeated(earlier));
    }
    others.require_room()?;
    Ok(StartDecision::Open)
}

/// Decides about a stop by what is kept for its target: the span that a stop with the same id has ended,
/// and the open one.
pub fn decide_stop<'s>(
    event: &StopEvent,
    by_id: Option<&'s Span>,
    open: Option<&'s Span>,
) -> Result<StopDecision<'s>, Refusal> {
    if let Some(earlier) = by_id {
        require_none(event.differences(earlier))?;
        return Ok(StopDecision::Repeated(earlier));
    }
    require_open(open, event.timestamp).map(StopDecision::End)
}

fn require_none(differences: Vec<Field>) -> Result<(), Refusal> {
    if differences.is_empty() {
        return Ok(());
    }
    Err(Refusal::IdTaken(differences))
}

/// The open span that a stop at this time ends.
fn require_open(open: Option<&Span>, timestamp: Timestamp) -> Result<&Span, Refusal> {
    let open = open.ok_or(Refusal::NotOpen)?;
    if timestamp < open.start {
        return Err(Refusal::BeforeStart { start: open.start });
    }
    Ok(open)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timestamp::at;

    #[test]
    fn the_edges_of_the_slack_are_inside() {
        let slack = Slack {
            past: 1_000,
            future: 2_000,
        };
        let now = at("2026-01-01T00:00:00Z");
        assert!(slack.admits(now.plus(-1_000), now));
        assert!(!slack.admits(now.plus(-1_001), now));
        assert!(slack.admits(now.plus(2_000), now));
        assert!(!slack.admits(now.plus(2_001), now));
    }
}
