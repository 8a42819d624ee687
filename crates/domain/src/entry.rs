//! An entry of the ledger: one usage and its state.

use crate::{Interval, Measures, Resend, Span, SpanId, Target, Timestamp, named};

/// The state of a usage. The first two are those of a usage that is still on its span; the ledger has the
/// other four.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EntryState {
    /// It is planned on its span, and not answered yet.
    Planned,
    /// The upstream refused it. It is tried again.
    Refused,
    /// An operator skipped it, or it takes such a usage back and was withheld: it is not billed.
    Skipped,
    Accepted,
    /// The upstream accepted it, and set it aside later, or it takes such a usage back and was withheld: it is
    /// on no bill, but in `billed` of the span's totals.
    SetAside,
    /// The upstream accepted the usage, and confirmed later that it counts.
    Counted,
}

/// Whether an accepted usage counts: when the upstream is asked next, and until when.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Question {
    /// When it is asked next.
    pub at: Timestamp,
    /// From then on, an answer that it is not there ends the questions.
    pub until: Timestamp,
    /// Whether a lookup has proved that the upstream does not have the usage. Then the entry becomes
    /// `set_aside`, whatever a later lookup finds: the span may say already that it does not count.
    pub is_missing: bool,
}

/// An entry of the ledger: one usage and its state. The span may be gone before its entries.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Entry {
    /// The `dedup_id` of the usage.
    pub usage_guid: String,
    pub span: SpanId,
    pub target: Target,
    pub measures: Measures,
    pub interval: Interval,
    /// The version of the span while the usage was planned: the order of a span's entries.
    pub version: i64,
    pub planned_at: Timestamp,
    /// The deliveries and lookups that failed, as far as that was recorded, and each acceptance.
    pub attempts: u32,
    /// When the upstream first refused it.
    pub refused_at: Option<Timestamp>,
    pub accepted_at: Option<Timestamp>,
    /// When the upstream confirmed that the usage counts.
    pub counted_at: Option<Timestamp>,
    /// When a lookup showed that the upstream had set the usage aside.
    pub set_aside_at: Option<Timestamp>,
    /// When the upstream accepted it again after that. While it is set aside: after it was set aside
    /// before.
    pub resent_at: Option<Timestamp>,
    /// What happened before `set_aside_at`, where it was set aside more than once: the last
    /// [`EARLIER_ROUNDS_MAX`] times, the oldest first.
    pub earlier_rounds: Vec<Round>,
    /// When a worker skipped it, as an operator had asked.
    pub skipped_at: Option<Timestamp>,
    pub state: EntryState,
    /// The status of the upstream's last answer, if there was one.
    pub status: Option<u16>,
    /// The `Location` that Abacus gave the usage.
    pub location: Option<String>,
    /// Why it was refused or set aside.
    pub error: Option<String>,
    /// Whether a post of it had no answer before it was skipped: it may count upstream all the same.
    pub unanswered: bool,
    /// Whether it takes back what did not count upstream. Then it was not posted, and is sent only after
    /// the usage that it takes back. Once it was sent, it is a usage like any other.
    pub withheld: bool,
    pub resend: Option<Resend>,
    /// Whether the upstream is still to be asked if it counts.
    pub question: Option<Question>,
}

/// One time that the upstream set a usage aside and accepted it again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Round {
    /// When a lookup showed that the upstream had set the usage aside.
    pub set_aside_at: Option<Timestamp>,
    /// When the upstream accepted it again.
    pub resent_at: Option<Timestamp>,
}

/// How many earlier rounds an entry keeps. Beyond that the oldest is forgotten: for times before those
/// that are kept, the usage shows as accepted. Each round takes an operator's action.
pub const EARLIER_ROUNDS_MAX: usize = 100;

/// The upstream's answer that it has a usage.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Acceptance {
    pub at: Timestamp,
    pub status: Option<u16>,
    /// The `Location` that Abacus gave the usage.
    pub location: Option<String>,
}

impl Entry {
    /// The entry of what is planned for a span, and not answered yet. The ledger does not hold it:
    /// the span does. An interval of no length has no usage, and no entry.
    pub fn of_planned(span: &Span) -> Option<Self> {
        let processing = &span.processing;
        let planned = processing
            .planned
            .as_ref()
            .filter(|planned| !planned.interval.is_empty())?;
        let last_error = processing.last_error.as_ref();
        Some(Self {
            usage_guid: planned.usage_guid.clone(),
            span: span.id.clone(),
            target: span.target.clone(),
            measures: span.measures.clone(),
            interval: planned.interval,
            version: processing.version,
            planned_at: planned.planned_at,
            attempts: processing.attempts,
            refused_at: processing.refused_at,
            accepted_at: None,
            counted_at: None,
            set_aside_at: None,
            resent_at: None,
            earlier_rounds: Vec::new(),
            skipped_at: None,
            state: match processing.refused_at {
                Some(_) => EntryState::Refused,
                None => EntryState::Planned,
            },
            status: last_error.and_then(|error| error.status),
            location: None,
            error: last_error.map(|error| error.error.clone()),
            unanswered: processing.unanswered,
            withheld: false,
            resend: None,
            question: None,
        })
    }

    /// Whether the usage may count upstream although it is skipped.
    pub fn may_count(&self) -> bool {
        self.state == EntryState::Skipped && self.unanswered
    }

    /// Whether a span has planned this usage, and the upstream has refused it.
    pub fn is_refused_on(span: &Span, usage_guid: &str) -> bool {
        Self::of_planned(span).is_some_and(|entry| {
            entry.usage_guid == usage_guid && entry.state == EntryState::Refused
        })
    }

    /// The entry of what is planned for a span, once the upstream has it.
    pub fn of_accepted(span: &Span, acceptance: Acceptance) -> Option<Self> {
        let planned = Self::of_planned(span)?;
        Some(Self {
            attempts: planned.attempts.saturating_add(1),
            accepted_at: Some(acceptance.at),
            state: EntryState::Accepted,
            status: acceptance.status,
            location: acceptance.location,
            error: None,
            unanswered: false,
            ..planned
        })
    }

    /// The entry of what is planned for a span and is not posted, because it takes back what did not
    /// count upstream. It has the same state.
    pub fn of_withheld(span: &Span, at: Timestamp) -> Option<Self> {
        let reason = span.processing.planned.as_ref()?.withheld?;
        let state = reason.state();
        Some(Self {
            skipped_at: (state == EntryState::Skipped).then_some(at),
            set_aside_at: (state == EntryState::SetAside).then_some(at),
            state,
            unanswered: reason.is_unanswered(),
            withheld: true,
            ..Self::of_planned(span)?
        })
    }

    /// The entry of what is planned for a span, once a worker skips it at this time, as an operator asked.
    /// Why it was refused stays.
    pub fn of_skipped(span: &Span, at: Timestamp) -> Option<Self> {
        let planned = Self::of_planned(span)?;
        Some(Self {
            skipped_at: Some(at),
            state: EntryState::Skipped,
            ..planned
        })
    }

    /// The entry as the ledger had it at a time; `None` if the usage was not planned yet.
    ///
    /// States follow each other in an order of their own. Their times may contradict it, because each is
    /// recorded by the clock of another program, or by one that was put right meanwhile. So the last state
    /// that was reached by then counts, not the one with the latest time.
    pub fn as_of(&self, at: Timestamp) -> Option<EntryState> {
        let last = self.reached().find(|(time, _)| *time <= at);
        last.map(|(_, state)| state)
    }

    /// The states that it has reached, and when; the last one first.
    fn reached(&self) -> impl Iterator<Item = (Timestamp, EntryState)> {
        let set_aside = (self.set_aside_at, EntryState::SetAside);
        let resent = (self.resent_at, EntryState::Accepted);
        // These two may follow each other again and again: the state says which came last.
        let round = if self.state == EntryState::SetAside {
            [set_aside, resent]
        } else {
            [resent, set_aside]
        };
        let earlier = self.earlier_rounds.iter().rev().flat_map(|round| {
            [
                (round.resent_at, EntryState::Accepted),
                (round.set_aside_at, EntryState::SetAside),
            ]
        });
        let before = [
            (self.accepted_at, EntryState::Accepted),
            (self.skipped_at, EntryState::Skipped),
            (self.refused_at, EntryState::Refused),
            (Some(self.planned_at), EntryState::Planned),
        ];
        let counted = [(self.counted_at, EntryState::Counted)].into_iter();
        let all = counted.chain(round).chain(earlier).chain(before);
        all.filter_map(|(time, state)| Some((time?, state)))
    }

    /// Whether the upstream has the usage, as far as is known.
    pub fn is_billed(&self) -> bool {
        matches!(self.state, EntryState::Accepted | EntryState::Counted)
    }
}

named! {
    pub EntryState: Planned = "planned", Refused = "refused", Skipped = "skipped",
        Accepted = "accepted", SetAside = "set_aside", Counted = "counted"
}
