//! A state of the model: the memory of the programs, the store, messages under way, and what counts
//! upstream.

use std::collections::{BTreeMap, BTreeSet};

use sampler_domain::{Change, Driver, Entry, Interval, Planned, Span, SpanId, Timestamp, Usage};
use sampler_store_testing::memory::Table;
use sampler_store_testing::{Shared, hash_of};

use crate::confirm::Confirmer;
use crate::resend::Resender;
use crate::scenario::Scenario;

/// One state of a model.
///
/// Workers are all alike: they are kept in an order of their contents, so that states which differ
/// only in who is who are one. Receivers do not show: the request that one has in hand, admitted at
/// an earlier moment, is all its memory, and any of those that the provider has sent by then may be
/// in the hands of one. So there are as many receivers as there could be requests.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    /// The clock of all.
    pub now: Timestamp,
    /// Who reports the events.
    pub provider: Provider,
    /// What is kept, under the real rules.
    pub table: Shared<Table>,
    /// Per worker what it remembers.
    pub workers: Vec<Worker>,
    /// The worker that sends usages again.
    pub resender: Resender,
    /// Usages on their way to Abacus. One stays here until it arrives, which may be never; what
    /// arrives again is a repeat, and changes nothing.
    pub in_flight: BTreeSet<Shared<Message>>,
    /// Usages that Abacus counts.
    pub counted: BTreeSet<Shared<Message>>,
    /// Usages that Abacus has accepted and set aside. One that comes again counts.
    pub aside: BTreeSet<Shared<Message>>,
    /// Usages that count since this moment, and are not found yet by an upstream that forgets.
    pub fresh: BTreeSet<Shared<Message>>,
    /// Usages of which such an upstream recognises a repeat, and until when.
    pub remembered: BTreeSet<(Shared<Message>, Timestamp)>,
    /// The worker that asks whether usages count.
    pub confirmer: Confirmer,
    /// What happened so far, for the properties alone.
    pub history: History,
}

/// The provider: it repeats an event until it is answered, then continues to the next. Requests and
/// answers may be lost, and all that it ever sent may arrive again, in any order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Provider {
    /// The event it is at; all before it were answered.
    pub event: usize,
    /// An answer of 201 to that event is on its way.
    pub answered: bool,
    /// Since when each event it has sent may be in the hands of a receiver; forgotten where that
    /// is longer ago than a receiver may take.
    pub sent: Vec<Timestamp>,
}

/// A worker between two of its steps. Any time may pass there, and it may die there.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Worker {
    /// It has nothing in hand, or has just died.
    Idle,
    /// It has read a span, and is about to decide what is next.
    Holding(Shared<Driver>),
    /// It has decided on a change, and is about to ask the store for it.
    Calling(Shared<Driver>, Box<Change>),
    /// It has posted the planned usage, and waits for the answer.
    Posting(Shared<Driver>, Shared<Message>),
    /// It has recorded an execution, and is about to ask the ledger for its entry: a planted bug.
    WritingEntry(Shared<Driver>, Box<Entry>),
}

/// A usage as it was sent, with what it stands for. There is only one target, and no measure but
/// the duration.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Message {
    /// The span that it is for; Abacus does not know it.
    pub span: SpanId,
    /// Start and end of the interval that it is for; Abacus does not know them.
    pub interval: (Timestamp, Timestamp),
    pub dedup_id: String,
    /// Its `start` and `end`.
    pub dated: (Timestamp, Timestamp),
    /// What it bills, ms.
    pub duration: i64,
}

/// What happened so far. The protocol itself does not use it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct History {
    /// How often each event was kept.
    pub kept: Vec<u8>,
    /// All intervals that were ever planned.
    pub planned: BTreeSet<(SpanId, Timestamp, Timestamp)>,
    /// A plan was kept that passes an end which was kept before.
    pub passed_an_end: bool,
    /// A usage was posted again, and said something else.
    pub resent_otherwise: bool,
    /// A usage counted for the second time.
    pub counted_twice: bool,
    pub removed: BTreeMap<SpanId, Removed>,
    /// How many spans were opened: documents get their ids by it.
    pub opened: u64,
    /// How often Abacus has set a usage aside.
    pub asides: u8,
    /// Plans that take back a usage of which nobody could know that it was set aside.
    pub blind: BTreeSet<(SpanId, Timestamp, Timestamp)>,
    /// How often an operator had a usage sent again: acts get their ids by it.
    pub resends: u8,
    /// How many usages were posted; only where a mutant makes ids of it.
    pub posts: u64,
}

/// A span that was removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Removed {
    /// How long it was, ms.
    pub length: i64,
    /// What of it was skipped, ms.
    pub skipped: i64,
}

impl State {
    /// Before anything happened.
    pub fn new(scenario: &Scenario) -> Self {
        Self {
            now: scenario.moments[0],
            provider: Provider::new(scenario),
            table: Shared::default(),
            workers: vec![Worker::Idle; scenario.workers],
            resender: Resender::Idle,
            in_flight: BTreeSet::new(),
            counted: BTreeSet::new(),
            aside: BTreeSet::new(),
            fresh: BTreeSet::new(),
            remembered: BTreeSet::new(),
            confirmer: Confirmer::Idle,
            history: History {
                kept: vec![0; scenario.events.len()],
                ..History::default()
            },
        }
    }

    /// Sorts the workers, so that states that differ only in their order are one.
    pub(crate) fn sort(&mut self) {
        let busy = |worker: &Worker| *worker != Worker::Idle;
        if self.workers.iter().filter(|worker| busy(worker)).count() > 1 {
            self.workers.sort_by_cached_key(hash_of);
        }
        self.workers.sort_by_key(busy);
    }

    /// What counts for a span, ms, leaving out one interval.
    pub(crate) fn billed(&self, span: &SpanId, except: Option<Interval>) -> i64 {
        let except = except.map(|interval| (interval.start, interval.end));
        let of_span = self
            .counted
            .iter()
            .filter(|usage| usage.span == *span && Some(usage.interval) != except);
        of_span.map(|usage| usage.duration).sum()
    }
}

impl Provider {
    /// One that sends its events all at once has none that it waits for.
    fn new(scenario: &Scenario) -> Self {
        let events = scenario.events.len();
        let (event, sent) = if scenario.in_order {
            (0, 1)
        } else {
            (events, events)
        };
        Self {
            event,
            answered: false,
            sent: vec![scenario.moments[0]; sent],
        }
    }
}

impl Worker {
    /// The span that it has in hand, as it was read.
    pub(crate) fn span(&self) -> Option<&Span> {
        match self {
            Self::Idle => None,
            Self::Holding(driver)
            | Self::Calling(driver, _)
            | Self::Posting(driver, _)
            | Self::WritingEntry(driver, _) => Some(driver.span()),
        }
    }
}

impl Message {
    /// The usage of a planned interval, as the worker makes it.
    pub(crate) fn new(span: &Span, planned: &Planned) -> Self {
        let interval = (planned.interval.start, planned.interval.end);
        Self::of(span.id.clone(), interval, Usage::new(span, planned))
    }

    pub(crate) fn of(span: SpanId, interval: (Timestamp, Timestamp), usage: Usage) -> Self {
        let duration = usage
            .measured_usage
            .last()
            .and_then(|measure| measure.quantity.as_json().as_i64())
            .expect("the duration is the last measure, a whole number");
        Self {
            span,
            interval,
            dedup_id: usage.dedup_id,
            dated: (usage.start, usage.end),
            duration,
        }
    }

    /// Whether Abacus takes both for one: by `dedup_id`, `start` and `end`, and the target.
    pub(crate) fn repeats(&self, other: &Self) -> bool {
        self.dedup_id == other.dedup_id && self.dated == other.dated
    }
}
