//! The server behind the store. It carries out the statements of a command one by one, each at its
//! own moment, within a time limit, even if the process that sent it is gone.

use std::fmt::{self, Debug};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sampler_domain::{Change, ChangeKind, Changed, Entry, Span, Timestamp};
use sampler_store::group::{CommandFailure, WriteOutcome};
use sampler_store::{NewSpan, NewStop, StartOutcome, StopOutcome};
use sampler_store_testing::memory::Table;
use tokio::time::Instant;

use super::conditions::CallOutcome;
use super::mutant::Mutant;
use super::world::{World, pause};
use sampler_testkit::rng::Rng;

/// A failure of a command, or of one of its statements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failed {
    NotSent,
    Lost,
    Duplicate,
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotSent => "nothing was sent",
            Self::Lost => "the answer was lost",
            Self::Duplicate => "a unique index refused it",
        })
    }
}

impl std::error::Error for Failed {}

impl CommandFailure for Failed {
    fn outcome(&self) -> WriteOutcome {
        match self {
            Self::NotSent => WriteOutcome::Unavailable,
            Self::Lost => WriteOutcome::Unknown,
            Self::Duplicate => WriteOutcome::Refused,
        }
    }

    fn is_duplicate_key(&self) -> bool {
        *self == Self::Duplicate
    }
}

/// One write of a command.
pub(crate) trait Statement: Debug + Send + Sync + 'static {
    type Answer: Clone + PartialEq + Debug + Send + 'static;

    /// The kind of the command, for the log.
    const KIND: &'static str;

    /// Whether a statement without effect was refused by an index; otherwise nothing matched.
    const REFUSED_BY_INDEX: bool;

    /// Whether it may be carried out at any time after its answer was lost: the version shuts it out then.
    const IS_ENDLESS: bool = false;

    /// What the query before the command finds that forbids the statement.
    fn found_before(&self, _world: &World) -> Option<Self::Answer> {
        None
    }

    /// Carries the statement out, if it matches. `alone`: no query came before.
    fn carry_out(&self, world: &World, alone: bool, arrived_at: Timestamp) -> Option<Self::Answer>;

    /// What became of the statement; `None` if it can be tried again.
    fn resolve(&self, world: &World) -> Option<Self::Answer>;
}

/// What became of a statement.
#[derive(Clone, Debug)]
pub(crate) enum Made<A> {
    Done(A),
    /// It was not carried out, because of what the query found.
    Before(A),
    Nothing,
}

/// When a command is carried out.
#[derive(Clone, Debug)]
pub(crate) struct CommandTiming {
    /// The delay before the first statement.
    pub(crate) held: Duration,
    /// The delay before each statement.
    pub(crate) gaps: Vec<Duration>,
    /// The time limit, after which the command is interrupted.
    pub(crate) limit: Option<Duration>,
}

impl CommandTiming {
    /// Draws the timing of a command.
    pub(crate) fn draw<S: Statement>(
        world: &World,
        rng: &mut Rng,
        outcome: CallOutcome,
        statements: usize,
    ) -> Self {
        let setup = &world.setup;
        let limit = setup.time_limit;
        let is_endless = S::IS_ENDLESS || setup.mutant == Mutant::CommandsWithoutTimeLimit;
        let (held, gap) = match outcome {
            CallOutcome::Late if is_endless => (rng.between(0, 16 * limit), limit / 4),
            CallOutcome::Late => (rng.between(0, limit), limit / 4),
            _ => (0, 10),
        };
        let millis = |length: i64| Duration::from_millis(length.unsigned_abs());
        Self {
            held: millis(held),
            gaps: (0..statements).map(|_| rng.wait(gap)).collect(),
            limit: (!is_endless).then(|| millis(limit)),
        }
    }
}

impl World {
    /// Carries out a command; `None` if it was interrupted.
    pub(crate) async fn carry_out<S: Statement>(
        &self,
        batch: &[Arc<S>],
        times: CommandTiming,
    ) -> Option<Vec<Made<S::Answer>>> {
        let arrived_at = self.now();
        let until = times.limit.map(|limit| Instant::now() + limit);
        pause(times.held).await;
        let alone = batch.len() == 1;
        let mut found: Vec<Option<S::Answer>> = vec![None; batch.len()];
        if !alone {
            let before = batch.iter().map(|statement| statement.found_before(self));
            found = before.collect();
        }
        let mut made = Vec::new();
        for ((statement, found), gap) in batch.iter().zip(found).zip(times.gaps) {
            pause(gap).await;
            if until.is_some_and(|until| Instant::now() > until) {
                self.log("store", || format!("interrupts {}", S::KIND));
                return None;
            }
            made.push(match found {
                Some(answer) => Made::Before(answer),
                None => match statement.carry_out(self, alone, arrived_at) {
                    Some(answer) => Made::Done(answer),
                    None => Made::Nothing,
                },
            });
        }
        Some(made)
    }
}

/// Inserts a span.
#[derive(Debug)]
pub(crate) struct Opening(pub(crate) NewSpan);

impl Statement for Opening {
    type Answer = StartOutcome;

    const KIND: &'static str = "start";
    const REFUSED_BY_INDEX: bool = true;

    fn found_before(&self, world: &World) -> Option<StartOutcome> {
        world.store.with(|table| table.find_overlap(&self.0))
    }

    fn carry_out(&self, world: &World, alone: bool, arrived_at: Timestamp) -> Option<StartOutcome> {
        let new = self.0.clone();
        if self.found_before(world).is_some() {
            if alone {
                return None;
            }
            world.note_gap(&new.span.target);
        }
        let span = new.span.clone();
        if !world.store.with(|table| table.insert(new)) {
            return None;
        }
        world.note_opened(&span);
        world.note_kept(format!("{:?}", span.id), arrived_at, &span, false);
        Some(StartOutcome::Opened)
    }

    fn resolve(&self, world: &World) -> Option<StartOutcome> {
        // A start that is alone is looked up for what it may overlap before it is tried again.
        world.store.with(|table| table.resolve_start(&self.0))
    }
}

/// Sets the end of a span.
#[derive(Debug)]
pub(crate) struct Ending(pub(crate) NewStop);

impl Statement for Ending {
    type Answer = StopOutcome;

    const KIND: &'static str = "stop";
    const REFUSED_BY_INDEX: bool = false;

    fn carry_out(&self, world: &World, _alone: bool, arrived_at: Timestamp) -> Option<StopOutcome> {
        let stop = &self.0;
        let is_made = world.store.with(|table| {
            let is_free = table.resolve_stop(stop).is_none();
            is_free && table.stop(stop) == StopOutcome::Ended
        });
        if !is_made {
            return None;
        }
        let ended = world.store.all().into_iter();
        let ended = ended.filter(|kept| kept.correlation_id == stop.correlation_id);
        let of_target = |span: &Span| span.target == stop.event.target;
        for span in ended.map(|kept| kept.span).filter(of_target) {
            world.note_kept(self.0.correlation_id.to_string(), arrived_at, &span, true);
        }
        Some(StopOutcome::Ended)
    }

    fn resolve(&self, world: &World) -> Option<StopOutcome> {
        world.store.with(|table| table.resolve_stop(&self.0))
    }
}

/// Inserts an entry of the ledger, and has its usage watched.
#[derive(Debug)]
pub(crate) struct EntryInsert {
    pub(crate) entry: Entry,
    pub(crate) expires_at: Timestamp,
    pub(crate) watch_at: Option<Timestamp>,
}

impl Statement for EntryInsert {
    type Answer = ();

    const KIND: &'static str = "entry";
    const REFUSED_BY_INDEX: bool = true;
    const IS_ENDLESS: bool = true;

    fn carry_out(&self, world: &World, _alone: bool, _arrived_at: Timestamp) -> Option<()> {
        let is_new = self.resolve(world).is_none();
        world.store.with(|table| {
            table.write_entry(&self.entry, self.expires_at, self.watch_at);
        });
        if is_new {
            world.note_entry(&self.entry);
        }
        world.remove_expired();
        is_new.then_some(())
    }

    fn resolve(&self, world: &World) -> Option<()> {
        let guid = &self.entry.usage_guid;
        world.store.with(|table| table.entry(guid).map(|_| ()))
    }
}

/// A change of a span, as it was decided for what was read.
pub(crate) struct Changing {
    read: Span,
    change: Change,
    is_made: AtomicBool,
}

impl Debug for Changing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Change { kind, after } = &self.change;
        let (version, processing) = (self.read.processing.version, &after.processing);
        write!(f, "{kind:?} of {} at {version} to {processing:?}", after.id)
    }
}

impl Changing {
    pub(crate) fn new(read: &Span, change: &Change) -> Self {
        Self {
            read: read.clone(),
            change: change.clone(),
            is_made: AtomicBool::new(false),
        }
    }

    fn kind(&self) -> ChangeKind {
        self.change.kind
    }

    /// The span as it is now.
    fn now(&self, world: &World) -> Option<Span> {
        world.store.with(|table| table.find(&self.read.id).cloned())
    }

    /// Makes the change; returns the span after it, if it was made.
    pub(crate) fn apply(&self, world: &World) -> Option<Span> {
        let before = self.now(world)?;
        let is_blind = world.setup.mutant.is_blind(self.kind());
        let mut change = self.change.clone();
        if is_blind {
            change.after.processing.version = before.processing.version + 1;
        }
        let basis = if is_blind { &before } else { &self.read };
        let made = world.store.with(|table| table.change(basis, &change));
        if made == Changed::Rejected {
            return None;
        }
        self.is_made.store(true, Ordering::Relaxed);
        let after = self.now(world)?;
        world.note_change(self.kind(), &before, &after);
        Some(after)
    }
}

impl Statement for Changing {
    type Answer = Changed;

    const KIND: &'static str = "change";
    const REFUSED_BY_INDEX: bool = false;
    const IS_ENDLESS: bool = true;

    fn carry_out(&self, world: &World, _alone: bool, _arrived_at: Timestamp) -> Option<Changed> {
        self.apply(world)?;
        Some(Changed::Made)
    }

    /// A change is made if the span is as this change has made it: a stop may have left the same members. Otherwise
    /// the change was rejected, unless it can still be made.
    fn resolve(&self, world: &World) -> Option<Changed> {
        let Some(now) = self.now(world) else {
            return Some(Changed::Rejected);
        };
        let is_made = self.is_made.load(Ordering::Relaxed);
        if is_made && now.processing == self.change.after.processing {
            return Some(Changed::Made);
        }
        let can_be_made = now.processing.version == self.read.processing.version;
        (!can_be_made).then_some(Changed::Rejected)
    }
}

impl World {
    /// Resumes spans in whatever way; returns those that were, as they are then.
    pub(crate) fn resume_with<T>(&self, resume: impl FnOnce(&mut Table) -> T) -> (T, Vec<Span>) {
        let mutant = self.setup.mutant;
        let (answer, resumed) = self.store.with(|table| {
            let before: Vec<Span> = table.all().map(|kept| kept.span.clone()).collect();
            let answer = resume(table);
            let mut resumed = Vec::new();
            for before in before {
                let after = table.find(&before.id).cloned();
                let Some(after) = after.filter(|after| *after != before) else {
                    continue;
                };
                let planted = mutant.resumed(&before, &after);
                if let Some(planted) = &planted {
                    table.put(planted.clone());
                }
                resumed.push((before, planted.unwrap_or(after)));
            }
            (answer, resumed)
        });
        for (before, after) in &resumed {
            self.note_change(ChangeKind::Resume, before, after);
        }
        let resumed = resumed.into_iter().map(|(_, after)| after);
        (answer, resumed.collect())
    }
}
