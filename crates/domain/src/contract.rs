//! What an upstream promises about repeats, and what follows from that: when a usage may be posted, and
//! when it must be looked up before (`docs/decisions.md#upstreams-are-contracts`).
//!
//! Abacus recognises a repeat for ever, so posting again is always safe. Others forget: after some time a
//! usage is looked up, and posted only if the upstream does not have it.
//!
//! ```text
//! planned, and due      safe_until            settled_at
//!       ├─ is posted ───────┤  is looked up ──────┤  is looked up; not found: is posted until post_before
//!                           └ the last post ends ┘ and would be found
//! ```

use crate::{Planned, Span, Timestamp};

/// How old the read of a span may be when a worker begins a post by it, ms, where the upstream forgets. The
/// worker checks that.
pub const READ_VALID_FOR: i64 = 2 * 60_000;

/// The longest margin by which a worker stops before an upstream forgets, where posts end sooner, ms.
const MARGIN_MAX: i64 = 60_000;

/// What an upstream promises about repeats.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Contract {
    /// It recognises a repeat for ever.
    #[default]
    Forever,
    /// It forgets, and says whether it has a usage.
    Forgets(Memory),
}

/// How long an upstream remembers, and how soon it knows. All in ms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Memory {
    /// How long after the first post a repeat is recognised.
    pub horizon: i64,
    /// How long after a post a usage may still not be found.
    pub settles: i64,
    /// How long one post may take, until it has an effect or never has one.
    pub post_timeout: i64,
}

impl Memory {
    /// How long before the horizon the worker begins to look up. A post takes effect when it arrives, so it
    /// is never less than a post may take.
    pub fn margin(self) -> i64 {
        (self.horizon / 10).min(MARGIN_MAX).max(self.post_timeout)
    }

    /// Until then a repeat of a post at `earliest` is surely recognised; none if the usage must always be
    /// looked up first.
    fn safe_until(self, earliest: Timestamp) -> Option<Timestamp> {
        let safe = self.horizon - self.margin();
        (safe > 0).then(|| earliest.plus(safe))
    }

    /// A lookup that is sent then or later, and finds nothing, proves that the upstream does not have a usage
    /// whose posts end by `ended`.
    fn settled_after(self, ended: Option<Timestamp>, owned_since: Timestamp) -> Timestamp {
        let ended = ended.map_or(owned_since, |ended| ended.max(owned_since));
        ended.plus(self.settles)
    }
}

impl Contract {
    /// Until then the usage in hand may be posted without a lookup; none if it must be looked up first. What is sent
    /// again always is, and what was planned by a clock that was ahead by more than the margin.
    pub fn safe_until(&self, span: &Span, now: Timestamp) -> Option<Timestamp> {
        match self {
            Self::Forever => Some(Timestamp::MAX),
            Self::Forgets(_) if !span.processing.again.is_empty() => None,
            Self::Forgets(memory) => {
                let planned = span.processing.planned.as_ref()?;
                let is_credible = planned.planned_at <= now.plus(memory.margin());
                memory.safe_until(is_credible.then(|| earliest_post(planned))?)
            }
        }
    }

    /// A lookup that is sent then or later, and finds nothing, proves that the upstream does not have the
    /// usage in hand. `owned_since` is when this worker took the span over.
    pub fn settled_at(&self, span: &Span, owned_since: Timestamp) -> Timestamp {
        let Self::Forgets(memory) = self else {
            return Timestamp::MIN;
        };
        let processing = &span.processing;
        match (processing.again.first(), &processing.planned) {
            // Posts before were decided by reads from before it was moved here.
            (Some(again), _) => {
                let last_begun = again.at.plus(READ_VALID_FOR);
                let ended = Some(last_begun.plus(memory.post_timeout));
                memory.settled_after(ended.max(again.posts_end_by), owned_since)
            }
            (None, Some(planned)) => {
                let last_begun = memory.safe_until(earliest_post(planned));
                let ended = last_begun.map(|begun| begun.plus(memory.post_timeout));
                memory.settled_after(ended.max(planned.posts_end_by), owned_since)
            }
            (None, None) => owned_since,
        }
    }

    /// By when the post ends that follows a "not found" which is recorded at `now`.
    pub fn posts_end_by(&self, now: Timestamp) -> Timestamp {
        match self {
            Self::Forever => now,
            Self::Forgets(memory) => now.plus(2 * memory.post_timeout),
        }
    }

    /// A post may follow a "not found" that was answered at `answered_at` until then.
    pub fn post_before(&self, answered_at: Timestamp) -> Timestamp {
        match self {
            Self::Forever => Timestamp::MAX,
            Self::Forgets(memory) => answered_at.plus(memory.post_timeout),
        }
    }

    /// Whether posts by an old read do no harm.
    pub fn is_forever(&self) -> bool {
        matches!(self, Self::Forever)
    }
}

/// The earliest time at which the usage of a planned interval can have been posted: it was planned, and
/// due: once its interval is over if that goes forwards, at once if it takes back.
fn earliest_post(planned: &Planned) -> Timestamp {
    let due_at = if planned.interval.duration() > 0 {
        planned.interval.end
    } else {
        Timestamp::MIN
    };
    planned.planned_at.max(due_at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Interval, Measures, SpanId, StartEvent, Target};

    const SECOND: i64 = 1_000;

    fn at(millis: i64) -> Timestamp {
        Timestamp::clamped(millis)
    }

    fn memory(horizon: i64, post_timeout: i64) -> Memory {
        Memory {
            horizon,
            settles: 7 * SECOND,
            post_timeout,
        }
    }

    fn planned(start: i64, end: i64, planned_at: i64) -> Span {
        let event = StartEvent {
            id: None,
            timestamp: at(start),
            target: Target::from_store([""; 6]),
            measures: Measures::from_store(Vec::new()),
        };
        let mut span = Span::open(SpanId::Text(String::new()), event, at(start));
        span.processing.planned = Some(Planned {
            interval: Interval {
                start: at(start),
                end: at(end),
            },
            usage_guid: "u".to_owned(),
            planned_at: at(planned_at),
            by: None,
            unanswered: false,
            posts_end_by: None,
        });
        span
    }

    #[test]
    fn the_margin_is_a_tenth_at_most_a_minute_and_at_least_a_post() {
        for (horizon, post_timeout, margin) in [
            (100 * SECOND, SECOND, 10 * SECOND),
            (86_400 * SECOND, 30 * SECOND, 60 * SECOND),
            (86_400 * SECOND, 90 * SECOND, 90 * SECOND),
            (100 * SECOND, 30 * SECOND, 30 * SECOND),
            (0, SECOND, SECOND),
        ] {
            assert_eq!(memory(horizon, post_timeout).margin(), margin);
        }
    }

    #[test]
    fn the_horizon_counts_from_when_it_was_planned_and_due() {
        let contract = Contract::Forgets(memory(100 * SECOND, 30 * SECOND));
        for (planned, until) in [
            (planned(0, 50 * SECOND, 60 * SECOND), 130 * SECOND),
            (planned(0, 50 * SECOND, 40 * SECOND), 120 * SECOND),
            (planned(50 * SECOND, 0, 40 * SECOND), 110 * SECOND),
        ] {
            let now = at(60 * SECOND);
            assert_eq!(contract.safe_until(&planned, now), Some(at(until)));
        }
        // Clocks of workers differ by less than the margin, 30 s.
        for (planned_at, until) in [(90, Some(at(160 * SECOND))), (91, None)] {
            let of_the_future = planned(50 * SECOND, 0, planned_at * SECOND);
            assert_eq!(contract.safe_until(&of_the_future, at(60 * SECOND)), until);
        }
        let forever = Contract::Forever.safe_until(&planned(0, 1, 1), at(0));
        assert_eq!(forever, Some(Timestamp::MAX));
    }

    #[test]
    fn with_a_horizon_no_longer_than_the_margin_each_usage_is_looked_up() {
        for horizon in [0, SECOND, 30 * SECOND] {
            let contract = Contract::Forgets(memory(horizon, 30 * SECOND));
            let plan = planned(0, SECOND, 9 * SECOND);
            assert_eq!(contract.safe_until(&plan, at(9 * SECOND)), None);
            // Nobody can have posted it, but for those who had the span before.
            assert_eq!(contract.settled_at(&plan, at(20)), at(20 + 7 * SECOND));
        }
    }

    #[test]
    fn not_there_counts_once_every_post_has_settled() {
        let contract = Contract::Forgets(memory(100 * SECOND, 30 * SECOND));
        let mut plan = planned(0, SECOND, 10 * SECOND);
        // Posts without a lookup begin until 80 s, and end until 110 s.
        assert_eq!(contract.settled_at(&plan, at(0)), at(117 * SECOND));
        let later = contract.settled_at(&plan, at(500 * SECOND));
        assert_eq!(later, at(507 * SECOND));
        if let Some(planned) = &mut plan.processing.planned {
            planned.posts_end_by = Some(at(660 * SECOND));
        }
        assert_eq!(contract.settled_at(&plan, at(0)), at(667 * SECOND));
    }
}
