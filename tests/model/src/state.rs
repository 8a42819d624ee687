//! A state of the model: numbers of what [`World`](crate::world::World) has, and sets of usages. Values have numbers,
//! so that states are small and each step of the driver is worked out once.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, Hash};
use std::rc::Rc;

use foldhash::quality::FixedState;
use sampler_domain::{ChangeKind, Timestamp};

use crate::laws::Law;
use crate::stretch::{Stretch, Stretches};

/// The number of a span, a driver, a memory or a change.
pub(crate) type Number = u32;

/// Who is named on a span: worker 0, worker 1, or a run that is gone.
pub(crate) const DEAD: usize = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    /// Half windows that have passed, and ticks behind the last of them.
    pub now: u8,
    /// The setting of the dimension has changed.
    pub is_set_anew: bool,
    /// The span as the store has it.
    pub span: Number,
    pub workers: [Worker; 2],
    /// A change without an answer, which may still be made while nobody else changes the span.
    pub late: Option<Late>,
    pub upstream: Upstream,
    /// Entries of the ledger.
    pub ledger: Stretches,
    /// What operators may still do.
    pub acts: u8,
    pub past: Past,
}

/// What no program looks at: it is there for the laws alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Past {
    /// Usages whose execution is recorded.
    pub recorded: Stretches,
    /// Places at which time was cut.
    pub cuts: u16,
    /// The first law that was broken by what happened.
    pub broken: Option<Law>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Upstream {
    pub counted: Stretches,
    /// Posts that nobody waits for. Each may land later.
    pub under_way: Stretches,
    /// Counted since the last tick, and perhaps not found yet.
    pub fresh: Stretches,
    /// Repeats that an upstream which forgets recognises until the next tick, and until the one after that.
    pub remembered: [Stretches; 2],
}

/// A worker between two of its steps. Any time may pass there, and it may die there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Worker {
    pub driver: Number,
    /// What its driver has decided to do.
    pub deed: Deed,
    /// What its run keeps in mind.
    pub memory: Number,
    /// The span is as its driver knows it.
    pub is_fresh: bool,
    /// A tick has passed since it read the span.
    pub is_old: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Deed {
    #[default]
    Nothing,
    Change(Number, ChangeKind),
    Post {
        usage: Stretch,
        /// The usage is not what its id stands for.
        says_otherwise: bool,
        begin_before: Option<Timestamp>,
    },
    LookUp(Stretch),
    WriteEntry(Stretch),
    Reread,
    ResumeCause,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Late {
    /// Worker 0 or 1, or [`DEAD`].
    pub who: usize,
    pub change: Number,
}

impl State {
    /// Notes that a law is broken by what happens.
    pub(crate) fn note(&mut self, law: Law, is_broken: bool) {
        if is_broken {
            self.past.broken.get_or_insert(law);
        }
    }

    pub(crate) fn is_idle(&self) -> bool {
        let is_nothing = |worker: &Worker| worker.deed == Deed::Nothing;
        self.workers.iter().all(is_nothing) && self.late.is_none() && self.upstream.under_way == 0
    }
}

impl Worker {
    /// A worker with nothing in hand. Memory 0 is none, as a run has that has just started.
    pub(crate) fn remembering(memory: Number) -> Self {
        Self {
            memory,
            ..Self::default()
        }
    }
}

/// Each value has the number of its place.
#[derive(Debug)]
pub(crate) struct Table<T> {
    all: Vec<Rc<T>>,
    numbers: HashMap<Rc<T>, Number>,
}

impl<T: Eq + Hash> Table<T> {
    pub(crate) fn number(&mut self, value: T) -> Number {
        if let Some(number) = self.numbers.get(&value) {
            return *number;
        }
        let number = self.all.len() as Number;
        let value = Rc::new(value);
        self.all.push(value.clone());
        self.numbers.insert(value, number);
        number
    }

    pub(crate) fn get(&self, number: Number) -> Rc<T> {
        self.all[number as usize].clone()
    }
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self {
            all: Vec::new(),
            numbers: HashMap::new(),
        }
    }
}

/// A map whose keys are a few numbers.
pub(crate) type Map<K, V> = HashMap<K, V, FixedState>;

/// What states are told apart by.
pub(crate) type Marks = HashSet<u64, FixedState>;

pub(crate) fn mark_of(value: &impl Hash) -> u64 {
    FixedState::default().hash_one(value)
}
