//! The server behind the store. It carries out the statements of a command one by one, each at its
//! own moment, within a time limit, even if the process that sent it is gone.

use std::collections::BTreeMap;
use std::fmt::{self, Debug};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sampler_domain::{Change, Changed, Entry, EntryState, Span, SpanId, Timestamp};
use sampler_store::group::{CommandFailure, WriteOutcome};
use sampler_store::{NewSpan, NewStop, StartOutcome, StopOutcome};
use tokio::time::Instant;
use uuid::Uuid;

use super::conditions::CallOutcome;
use super::mutant::Mutant;
use super::world::{World, pause};
use sampler_testkit::rng::Rng;

/// What the server keeps beside the spans.
#[derive(Default)]
pub(crate) struct Server {
    /// The last change that workers made of each span.
    last_changes: Mutex<BTreeMap<SpanId, u64>>,
    /// How many changes there were, to give each an id of its own.
    changes: AtomicU64,
}

/// A failure of a command, or of one of its statements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failed {
    NotSent,
    Lost,
    /// The answer was lost, and a planted bug takes the command for dead.
    Over,
    Duplicate,
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotSent => "nothing was sent",
            Self::Lost | Self::Over => "the answer was lost",
            Self::Duplicate => "a unique index refused it",
        })
    }
}

impl std::error::Error for Failed {}

impl CommandFailure for Failed {
    fn outcome(&self) -> WriteOutcome {
        match self {
            Self::NotSent => WriteOutcome::Unavailable,
            Self::Lost | Self::Over => WriteOutcome::Unknown,
            Self::Duplicate => WriteOutcome::Refused,
        }
    }

    fn is_duplicate_key(&self) -> bool {
        *self == Self::Duplicate
    }

    fn may_still_execute(&self) -> bool {
        *self == Self::Lost
    }
}

/// One write of a command.
pub(crate) trait Statement: Debug + Send + Sync + 'static {
    type Answer: Clone + PartialEq + Debug + Send + 'static;

    /// The kind of the command, for the log.
    const KIND: &'static str;

    /// Whether a statement without effect was refused by an index; otherwise nothing matched.
    const REFUSED_BY_INDEX: bool;

    /// What the query before the command finds that forbids the statement.
    fn found_before(&self, _world: &World) -> Option<Self::Answer> {
        None
    }

    /// Carries the statement out, if it matches. `alone`: no query came before.
    fn carry_out(&self, world: &World, alone: bool, arrived_at: Timestamp) -> Option<Self::Answer>;

    /// What became of the statement; `None` if it can be tried again.
    fn resolve(&self, world: &World) -> Option<Self::Answer>;

    /// Whether the answer stays true if the same statement is carried out after all.
    fn outlasts(answer: &Self::Answer) -> bool;
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
    pub(crate) fn draw(
        world: &World,
        rng: &mut Rng,
        outcome: CallOutcome,
        statements: usize,
    ) -> Self {
        let setup = &world.setup;
        let limit = setup.time_limit;
        let is_endless = setup.mutant == Mutant::CommandsWithoutTimeLimit;
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

    fn outlasts(answer: &StartOutcome) -> bool {
        match answer {
            StartOutcome::Opened | StartOutcome::Repeated { .. } => true,
            StartOutcome::Refused(_) => false,
        }
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
        let mut stop = self.0.clone();
        if world.setup.mutant == Mutant::StopsWithoutCorrelationId {
            stop.correlation_id = Uuid::from_u128(u128::from(world.server.next_id()));
        }
        let is_made = world.store.with(|table| {
            let is_free = table.resolve_stop(&stop).is_none();
            is_free && table.stop(&stop) == StopOutcome::Ended
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

    fn outlasts(answer: &StopOutcome) -> bool {
        match answer {
            StopOutcome::Ended | StopOutcome::Repeated => true,
            StopOutcome::Refused(_) => false,
        }
    }
}

/// Inserts an entry of the ledger.
#[derive(Debug)]
pub(crate) struct EntryInsert {
    pub(crate) entry: Entry,
    pub(crate) lifetime: i64,
}

impl Statement for EntryInsert {
    type Answer = EntryState;

    const KIND: &'static str = "record";
    const REFUSED_BY_INDEX: bool = true;

    fn carry_out(&self, world: &World, _alone: bool, _arrived_at: Timestamp) -> Option<EntryState> {
        if self.resolve(world).is_some() {
            return None;
        }
        let entry = self.entry.clone();
        world.note_entry(&entry);
        let state = world
            .store
            .with(|table| table.write_entry(entry, self.lifetime));
        if state == EntryState::Skipped {
            world.operate_on_entry(&self.entry);
        }
        if world.setup.mutant == Mutant::ExpiresBeforeCompletion {
            let spans = [self.entry.span.clone()];
            world.store.with(|table| table.expire(&spans));
        }
        world.remove_expired();
        Some(state)
    }

    fn resolve(&self, world: &World) -> Option<EntryState> {
        let guid = &self.entry.usage_guid;
        world
            .store
            .with(|table| Some(table.entry(guid)?.entry.state))
    }

    fn outlasts(_: &EntryState) -> bool {
        true
    }
}

/// A change of a span that workers make.
#[derive(Debug)]
pub(crate) struct Changing {
    id: u64,
    span: Span,
    change: Change,
}

impl Changing {
    pub(crate) fn new(world: &World, span: &Span, change: &Change) -> Self {
        Self {
            id: world.server.next_id(),
            span: span.clone(),
            change: change.clone(),
        }
    }

    /// The span that the change requires; with a planted bug, the span as it is now.
    fn basis(&self, world: &World) -> Span {
        let now = world.store.with(|table| table.find(&self.span.id).cloned());
        if let Some(now) = now.filter(|_| world.setup.mutant == Mutant::PostsWhatIsWithheld) {
            let mut span = self.span.clone();
            span.processing.uncounted = now.processing.uncounted;
            return span;
        }
        let is_blind = match self.change {
            Change::Plan { .. } => world.setup.mutant == Mutant::PlanIgnoresVersion,
            Change::Executed { .. } => world.setup.mutant == Mutant::ExecutedIgnoresVersion,
            _ => false,
        };
        let now = world.store.with(|table| table.find(&self.span.id).cloned());
        now.filter(|_| is_blind)
            .unwrap_or_else(|| self.span.clone())
    }

    /// Makes the change; returns the span after it, if it was made.
    fn apply(&self, world: &World) -> Option<Span> {
        let span = self.basis(world);
        let is_execution = matches!(self.change, Change::Executed { .. });
        if is_execution && span.processing.planned.is_none() {
            return None;
        }
        let change = world.setup.mutant.change(&self.change, &span);
        let made = world.store.with(|table| {
            let made = table.change(&span, &change);
            if world.setup.mutant == Mutant::TotalsApart && is_execution && made == Changed::Made {
                // They come with a later change, if nobody dies before.
                table.set_totals(&span.id, span.processing.totals.clone());
            }
            made
        });
        if made == Changed::Rejected {
            return None;
        }
        let after = world.store.with(|table| table.find(&span.id).cloned());
        let after = after.expect("it was changed");
        world.note_change(&span, &change, &after);
        Some(after)
    }
}

impl Statement for Changing {
    type Answer = Changed;

    const KIND: &'static str = "change";
    const REFUSED_BY_INDEX: bool = false;

    fn carry_out(&self, world: &World, _alone: bool, _arrived_at: Timestamp) -> Option<Changed> {
        if world.server.made(self) {
            return None;
        }
        self.apply(world)?;
        world.server.note(self);
        Some(Changed::Made)
    }

    fn resolve(&self, world: &World) -> Option<Changed> {
        if world.server.made(self) {
            return Some(Changed::Made);
        }
        let now = world.store.with(|table| table.find(&self.span.id).cloned());
        let untouched = now.is_some_and(|now| self.change.is_allowed(&self.span, &now));
        (!untouched).then_some(Changed::Rejected)
    }

    fn outlasts(_: &Changed) -> bool {
        true
    }
}

impl World {
    /// Spans as a worker reads them; with a planted bug, without what never counted.
    pub(crate) fn as_read<'a>(&self, spans: impl Iterator<Item = &'a mut Span>) {
        if self.setup.mutant == Mutant::PostsWhatIsWithheld {
            spans.for_each(|span| span.processing.uncounted.clear());
        }
    }
}

impl Server {
    pub(crate) fn next_id(&self) -> u64 {
        self.changes.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Whether the change was made, and no other change of its span after it.
    fn made(&self, changing: &Changing) -> bool {
        let last = self.last_changes.lock().expect("nobody panics with it");
        last.get(&changing.span.id) == Some(&changing.id)
    }

    fn note(&self, changing: &Changing) {
        let mut last = self.last_changes.lock().expect("nobody panics with it");
        last.insert(changing.span.id.clone(), changing.id);
    }
}
