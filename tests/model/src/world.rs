//! What is real: spans, and the drivers of workers, which decide by what they have read. All that the domain
//! works out from the same values is worked out once.
//!
//! A driver is told the runs by two names, its own and that of all others, and learns nothing of versions, or of
//! times that decide nothing. So two drivers that behave alike are one.

use std::rc::Rc;

use sampler_domain::{
    Acceptance, Action, Change, Driver, EventId, Failure, Id, Interval, Measures, Planned,
    Processing, Remembered, RunId, Span, SpanId, StartEvent, StopEvent, Target, Terms, Timestamp,
};
use uuid::Uuid;

use crate::facts::Facts;
use crate::planted::{self, Planted};
use crate::scenario::Scenario;
use crate::state::{DEAD, Deed, Map, Number, Table};
use crate::stretch::{FOREIGN_GUID, Stretch, at};

/// The run that a driver belongs to, as it sees it.
pub(crate) const ME: RunId = RunId(Uuid::from_u128(1));
/// All other runs, as it sees them.
pub(crate) const OTHER: RunId = RunId(Uuid::from_u128(2));
/// The runs of worker 0, worker 1, and those that are gone, as the store has them.
pub(crate) const RUNS: [RunId; 3] = [
    RunId(Uuid::from_u128(10)),
    RunId(Uuid::from_u128(11)),
    RunId(Uuid::from_u128(12)),
];

/// The upstream's answer that it has a usage.
const ACCEPTANCE: Acceptance = Acceptance {
    at: Timestamp::MIN,
    status: None,
    location: None,
};

/// What becomes of a post or a lookup, but for success.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Failing {
    /// The usage is refused.
    Refused,
    /// The usage is refused by an answer that does not say whether it counts.
    Unclear,
    /// There is no answer.
    Unanswered,
    /// The lookup has failed.
    LookUp,
}

/// What a driver is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Input {
    Made(Number),
    Rejected,
    Reread(Number),
    Accepted,
    Found,
    NotFound(u8),
    Failed(Failing, u8),
    EntryWritten,
    CauseResumed,
    Outdated,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Key {
    View(Number, usize),
    Driver(Number, Number),
    Told(Number, Input),
    Memory(Number),
    Remembered(Number),
    Applied(Number, usize, Number),
    Renamed(Number, [usize; 3]),
    Stopped(Number, u8),
}

/// A change, and the span that its driver knows.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct Asked {
    pub read: Span,
    pub change: Change,
}

impl Asked {
    /// Writes what differs, as the store does.
    fn write(&self, stored: &mut Processing) {
        let (read, after) = (&self.read.processing, &self.change.after.processing);
        macro_rules! write {
            ($($member:ident),+) => {$(
                if read.$member != after.$member {
                    stored.$member.clone_from(&after.$member);
                }
            )+};
        }
        write!(
            complete,
            last,
            planned, due_at, cuts, failure, probe, excluded, again
        );
    }
}

/// The scenario, and all values that its states name.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) scenario: Scenario,
    pub(crate) spans: Table<Span>,
    pub(crate) changes: Table<Asked>,
    drivers: Table<Driver>,
    memories: Table<Remembered>,
    facts: Map<Number, Rc<Facts>>,
    found: Map<Key, Number>,
    deeds: Map<(Number, u8, bool), Deed>,
}

impl World {
    pub(crate) fn new(scenario: Scenario) -> Self {
        let mut world = Self {
            scenario,
            spans: Table::default(),
            changes: Table::default(),
            drivers: Table::default(),
            memories: Table::default(),
            facts: Map::default(),
            found: Map::default(),
            deeds: Map::default(),
        };
        world.memories.number(Remembered::default());
        world
    }

    /// The span as it is at first.
    pub(crate) fn first_span(&mut self) -> Number {
        let start = at(self.scenario.start);
        let event = StartEvent {
            id: Some(event_id("start")),
            timestamp: start,
            target: Target::from_store(["o", "s", "c", "r", "p", "i"]),
            measures: Measures::default(),
        };
        let mut span = Span::open(SpanId::Text("span".to_owned()), event, start);
        if self.scenario.foreign {
            span.processing.planned = Some(Planned {
                interval: Interval {
                    start,
                    end: at(self.scenario.start + 2),
                },
                usage_guid: FOREIGN_GUID.to_owned(),
                planned_at: start,
                by: None,
                unanswered: true,
                posts_end_by: None,
            });
        }
        self.keep(span)
    }

    /// The number of a span, without what decides nothing.
    pub(crate) fn keep(&mut self, span: Span) -> Number {
        let span = self.plain(span);
        self.spans.number(span)
    }

    fn plain(&self, mut span: Span) -> Span {
        let forgets = self.scenario.forgets();
        // Without a horizon to count from it, no plan's time decides anything.
        let has_horizon = self.scenario.horizon.is_some_and(|ticks| ticks > 0);
        let time = |counts: bool, time: Timestamp| if counts { time } else { Timestamp::MIN };
        let processing = &mut span.processing;
        processing.version = 1;
        processing.last = Interval::at(processing.last.end);
        if processing.due_at <= self.scenario.clock(self.scenario.now) {
            processing.due_at = Timestamp::MIN;
        }
        if let Some(planned) = &mut processing.planned {
            planned.planned_at = time(has_horizon, planned.planned_at);
        }
        if let Some(failure) = &mut processing.failure {
            failure.attempts = 1;
            failure.at = Timestamp::MIN;
            if let Some(suspension) = &mut failure.suspension {
                suspension.since = Timestamp::MIN;
            }
        }
        for again in &mut processing.again {
            again.at = time(forgets, again.at);
            again.attempts = 0;
        }
        span
    }

    pub(crate) fn facts(&mut self, span: Number) -> Rc<Facts> {
        if let Some(facts) = self.facts.get(&span) {
            return facts.clone();
        }
        let facts = Rc::new(Facts::of(&self.spans.get(span)));
        self.facts.insert(span, facts.clone());
        facts
    }

    fn once(&mut self, key: Key, find: impl FnOnce(&mut Self) -> Number) -> Number {
        if let Some(found) = self.found.get(&key) {
            return *found;
        }
        let found = find(self);
        self.found.insert(key, found);
        found
    }

    /// The span as a worker sees it.
    pub(crate) fn view(&mut self, span: Number, who: usize) -> Number {
        self.once(Key::View(span, who), |world| {
            let mut view = (*world.spans.get(span)).clone();
            let seen = |run: RunId| if run == RUNS[who] { ME } else { OTHER };
            for by in names(&mut view) {
                *by = by.map(seen);
            }
            planted::view(&world.scenario, &mut view);
            world.spans.number(view)
        })
    }

    /// A driver for a span that a worker has read, and sees so.
    pub(crate) fn driver(&mut self, view: Number, memory: Number) -> Number {
        self.once(Key::Driver(view, memory), |world| {
            let span = (*world.spans.get(view)).clone();
            let memory = (*world.memories.get(memory)).clone();
            let driver = Driver::new(span, memory, Timestamp::MIN);
            let driver = planted::new_driver(&world.scenario, driver);
            world.drivers.number(driver)
        })
    }

    /// A driver once it was told something.
    pub(crate) fn tell(&mut self, driver: Number, input: Input) -> Number {
        self.once(Key::Told(driver, input), |world| {
            let mut told = (*world.drivers.get(driver)).clone();
            match input {
                Input::Made(change) => {
                    told.on_change_made(world.changes.get(change).change.clone());
                }
                Input::Rejected => told.on_change_rejected(),
                Input::Reread(view) => told.on_reread(Some((*world.spans.get(view)).clone())),
                Input::Accepted => told.on_accepted(ACCEPTANCE),
                Input::Found => told.on_found(ACCEPTANCE),
                Input::NotFound(now) => {
                    let failure = world.failure(Failing::LookUp, now);
                    let terms = world.terms(told.span(), false);
                    told.on_not_found(world.scenario.clock(now), failure, &terms);
                }
                Input::Failed(failing, now) => told.on_failed(world.failure(failing, now)),
                Input::EntryWritten => told.on_entry_written(),
                Input::CauseResumed => told.on_cause_resumed(),
                Input::Outdated => told.on_outdated(),
            }
            world.drivers.number(told)
        })
    }

    fn failure(&self, failing: Failing, now: u8) -> Failure {
        let now = self.scenario.clock(now);
        Failure {
            at: if self.scenario.forgets() {
                now
            } else {
                Timestamp::MIN
            },
            retry_at: now,
            error: "refused".to_owned(),
            status: None,
            blames_usage: matches!(failing, Failing::Refused | Failing::Unclear)
                || failing == Failing::Unanswered && self.scenario.has(Planted::SuspendsWhatWaits),
            is_post: failing != Failing::LookUp,
            unanswered: matches!(failing, Failing::Unanswered | Failing::Unclear),
        }
    }

    fn terms(&self, span: &Span, is_set_anew: bool) -> Terms {
        Terms {
            run: ME,
            policy: self.scenario.policy(is_set_anew),
            contract: planted::contract(&self.scenario, span),
            suspend_after: self.scenario.suspend_after,
        }
    }

    /// What a driver does next.
    pub(crate) fn deed(&mut self, driver: Number, now: u8, is_set_anew: bool) -> Deed {
        let key = (driver, now, is_set_anew);
        if let Some(deed) = self.deeds.get(&key) {
            return *deed;
        }
        let decided = self.drivers.get(driver);
        let span = decided.span();
        let terms = self.terms(span, is_set_anew);
        let clock = planted::clock(&self.scenario, now);
        let action = decided.action(clock, &terms);
        let usage = |guid: &str, interval| Stretch::of(span, guid, interval);
        let deed = match planted::action(&self.scenario, span, action, clock, &terms) {
            Action::Change(mut change) => {
                change.after = self.plain(change.after);
                let (read, kind) = (span.clone(), change.kind);
                let change = *change;
                Deed::Change(self.changes.number(Asked { read, change }), kind)
            }
            Action::Post {
                delivery,
                begin_before,
            } => {
                let usage = usage(&delivery.usage_guid, delivery.interval);
                Deed::Post {
                    usage,
                    says_otherwise: usage.interval() != delivery.interval,
                    begin_before,
                }
            }
            Action::LookUp(delivery) => {
                Deed::LookUp(usage(&delivery.usage_guid, delivery.interval))
            }
            Action::WriteEntry(entry) => Deed::WriteEntry(usage(&entry.usage_guid, entry.interval)),
            Action::ResumeCause(_) => Deed::ResumeCause,
            Action::Reread => Deed::Reread,
            Action::Done => Deed::Nothing,
        };
        self.deeds.insert(key, deed);
        deed
    }

    /// What the run keeps in mind where the drive ends because the store has failed.
    pub(crate) fn remembered(&mut self, driver: Number) -> Number {
        self.once(Key::Remembered(driver), |world| {
            let driver = (*world.drivers.get(driver)).clone();
            let memory = planted::remembered(&world.scenario, driver);
            world.memories.number(memory)
        })
    }

    /// What the run keeps in mind where the drive ends and nothing has failed.
    pub(crate) fn memory(&mut self, driver: Number) -> Number {
        self.once(Key::Memory(driver), |world| {
            let memory = world.drivers.get(driver).remembered().clone();
            world.memories.number(memory)
        })
    }

    /// The span after this change by a worker, or by a run that is gone.
    pub(crate) fn applied(&mut self, span: Number, who: usize, change: Number) -> Number {
        self.once(Key::Applied(span, who, change), |world| {
            let stored = world.spans.get(span);
            let asked = world.changes.get(change);
            let mut after = (*stored).clone();
            asked.write(&mut after.processing);
            give_names(&stored, &mut after, RUNS[who]);
            world.keep(after)
        })
    }

    /// The span with the runs renamed: `to[run]` for each.
    fn renamed(&mut self, span: Number, to: [usize; 3]) -> Number {
        self.once(Key::Renamed(span, to), |world| {
            let mut renamed = (*world.spans.get(span)).clone();
            for by in names(&mut renamed) {
                let run = RUNS.iter().position(|run| *by == Some(*run));
                *by = run.map(|run| RUNS[to[run]]);
            }
            world.spans.number(renamed)
        })
    }

    /// The span once the run of a worker is gone.
    pub(crate) fn without(&mut self, span: Number, who: usize) -> Number {
        let mut to = [0, 1, DEAD];
        to[who] = DEAD;
        self.renamed(span, to)
    }

    /// The span with the two workers changed round.
    pub(crate) fn swapped(&mut self, span: Number) -> Number {
        self.renamed(span, [1, 0, DEAD])
    }

    pub(crate) fn stopped(&mut self, span: Number, end: u8) -> Number {
        self.once(Key::Stopped(span, end), |world| {
            let running = (*world.spans.get(span)).clone();
            let event = StopEvent {
                id: Some(event_id("stop")),
                timestamp: at(end),
                target: running.target.clone(),
            };
            let mut stopped = running.ended(&event, None);
            planted::stopped(&world.scenario, &mut stopped);
            world.keep(stopped)
        })
    }
}

fn event_id(text: &str) -> EventId {
    Id::from_store(text)
}

/// Where a span names runs.
fn names(span: &mut Span) -> impl Iterator<Item = &mut Option<RunId>> {
    let processing = &mut span.processing;
    let of_plan = processing.planned.iter_mut().map(|it| &mut it.by);
    of_plan.chain(processing.again.iter_mut().map(|it| &mut it.by))
}

/// What a driver calls itself gets the name of its run. It never names another: that stays as it is stored.
fn give_names(stored: &Span, after: &mut Span, run: RunId) {
    let before = &stored.processing;
    let given = |by: Option<RunId>, stored: Option<RunId>| match by {
        Some(ME) => Some(run),
        Some(OTHER) => stored.or(Some(RUNS[DEAD])),
        by => by,
    };
    if let Some(planned) = &mut after.processing.planned {
        let stored = before.planned.as_ref().and_then(|it| it.by);
        planned.by = given(planned.by, stored);
    }
    for again in &mut after.processing.again {
        let same = |it: &&sampler_domain::Again| it.range.interval == again.range.interval;
        let stored = before.again.iter().find(same).and_then(|it| it.by);
        again.by = given(again.by, stored);
    }
}
