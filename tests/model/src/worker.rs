//! What a worker does: it carries out what its driver asks for. Each step here is one that can have no answer, or
//! after which anything may happen.

use sampler_domain::ChangeKind;

use crate::laws::Law;
use crate::planted::Planted;
use crate::state::{DEAD, Deed, Late, Number, State, Worker};
use crate::steps::{About, Next, Step, When, Who};
use crate::stretch::{Stretch, at};
use crate::world::{Failing, Input, World};

/// What one worker may do next.
struct Turn<'a> {
    world: &'a mut World,
    state: &'a State,
    who: usize,
    next: &'a mut Vec<Next>,
}

pub(crate) fn steps(world: &mut World, state: &State, who: usize, next: &mut Vec<Next>) {
    let mut turn = Turn {
        world,
        state,
        who,
        next,
    };
    turn.die();
    match state.workers[who].deed {
        Deed::Nothing if turn.world.is_due(state) => turn.read("reads"),
        Deed::Nothing => {}
        Deed::Reread => turn.read("reads again"),
        Deed::Change(change, kind) => turn.change(change, kind),
        Deed::Post { .. } if turn.is_too_late() => {
            let told = turn.told(state, Input::Outdated);
            turn.push(told, "must read again", About::Nothing, When::Always);
        }
        Deed::Post { usage, .. } => turn.post(usage),
        Deed::LookUp(usage) => turn.look_up(usage),
        Deed::WriteEntry(usage) => turn.write_entry(usage),
        Deed::ResumeCause => unreachable!("done at once"),
    }
}

/// A worker dies; another run takes its place.
pub(crate) fn dead(world: &mut World, state: &State, who: usize) -> State {
    let mut dead = *state;
    dead.workers[who] = Worker::default();
    dead.span = world.without(state.span, who);
    if let Some(late) = &mut dead.late
        && late.who == who
    {
        late.who = DEAD;
    }
    dead
}

/// The span has changed since a worker has read it. What that is about to ask for is rejected: it reads the span
/// again, with what it knows; after a refusal, which is dropped, it does nothing.
pub(crate) fn outdate(world: &mut World, worker: &mut Worker) {
    worker.is_fresh = false;
    if !matches!(worker.deed, Deed::Change(..)) || is_blind(world, worker.deed) {
        return;
    }
    let rejected = world.tell(worker.driver, Input::Rejected);
    let forgets = world.scenario.has(Planted::RejectionForgets);
    let memory = if forgets { 0 } else { world.memory(rejected) };
    *worker = Worker {
        deed: world.deed(rejected, 0, false),
        ..Worker::remembering(memory)
    };
}

/// Whether a bug is planted by which a change does not require the version.
fn is_blind(world: &World, deed: Deed) -> bool {
    let is_not_there = matches!(deed, Deed::Change(_, ChangeKind::NotThere));
    world.scenario.has(Planted::IgnoresVersion)
        || is_not_there && world.scenario.has(Planted::NotThereUnnoted)
}

impl Turn<'_> {
    fn push(&mut self, state: State, what: &'static str, about: About, when: When) {
        let step = Step::new(Who::Worker(self.who), what, about, when);
        self.next.push((state, step));
    }

    fn die(&mut self) {
        let (state, who) = (self.state, self.who);
        let is_late = state.late.is_some_and(|late| late.who == who);
        let is_named = self.world.facts(state.span).names[who];
        if state.workers[who] == Worker::default() && !is_late && !is_named {
            return;
        }
        let dies = dead(self.world, state, who);
        self.push(dies, "dies", About::Nothing, When::Never);
        if let Deed::Post { usage, .. } = state.workers[who].deed
            && !self.is_too_late()
            && let Some(posted) = self.world.abandon(&self.posted(usage), usage)
        {
            let dies = dead(self.world, &posted, who);
            self.push(dies, "posts and dies", About::Usage(usage), When::Never);
        }
    }

    fn read(&mut self, what: &'static str) {
        let mut reading = *self.state;
        let view = self.world.view(reading.span, self.who);
        let worker = &mut reading.workers[self.who];
        let driver = self.world.driver(view, worker.memory);
        *worker = Worker {
            is_fresh: true,
            ..Worker::default()
        };
        let reading = self.decided(reading, driver);
        if reading != *self.state {
            self.push(reading, what, About::Nothing, When::Always);
        }
    }

    /// The driver decides. What nobody else can see happens at once.
    fn decided(&mut self, mut state: State, mut driver: Number) -> State {
        let who = self.who;
        loop {
            match self.world.deed(driver, state.now, state.is_set_anew) {
                Deed::Nothing => {
                    state.workers[who] = Worker::remembering(self.world.memory(driver));
                    return state;
                }
                Deed::Reread => {
                    let view = self.world.view(state.span, who);
                    driver = self.world.tell(driver, Input::Reread(view));
                    state.workers[who] = Worker {
                        is_fresh: true,
                        ..Worker::default()
                    };
                }
                Deed::ResumeCause => driver = self.world.tell(driver, Input::CauseResumed),
                deed => {
                    let worker = &mut state.workers[who];
                    (worker.driver, worker.deed) = (driver, deed);
                    if !worker.is_fresh {
                        outdate(self.world, worker);
                    }
                    return state;
                }
            }
        }
    }

    fn told(&mut self, state: &State, input: Input) -> State {
        let driver = state.workers[self.who].driver;
        let driver = self.world.tell(driver, input);
        self.decided(*state, driver)
    }

    /// The store has given no answer: the drive ends, and the run keeps in mind what it knows.
    fn unanswered(&mut self, mut state: State) -> State {
        let worker = &mut state.workers[self.who];
        *worker = Worker::remembering(self.world.remembered(worker.driver));
        state
    }

    /// The worker asks the store for a change.
    fn change(&mut self, change: Number, kind: ChangeKind) {
        if self.world.scenario.has(Planted::PostsBeforePlan) && kind == ChangeKind::Plan {
            let mut posted = *self.state;
            let after = self.world.applied(posted.span, self.who, change);
            if let Some(usage) = self.world.facts(after).planned {
                self.world.count(&mut posted, usage);
                self.push(posted, "posts", About::Usage(usage), When::Never);
            }
        }
        let mut made = *self.state;
        self.world.make(&mut made, self.who, change);
        self.world.outdate(&mut made, Some(self.who));
        let worker = &mut made.workers[self.who];
        (worker.is_fresh, worker.is_old) = (true, false);
        let mut answered = self.told(&made, Input::Made(change));
        if self.world.scenario.has(Planted::EntryAfterRecord) {
            answered.ledger |= answered.past.recorded;
        }
        let about = About::Change(kind);
        self.push(answered, "makes", about, When::Always);
        let is_last = matches!(kind, ChangeKind::Complete | ChangeKind::Postpone);
        if !self.world.scenario.lost || is_last {
            return;
        }
        let lost = self.unanswered(made);
        self.push(lost, "makes, without an answer,", about, When::Never);
        let mut lost = self.unanswered(*self.state);
        if self.world.scenario.late && lost.late.is_none() {
            let who = self.who;
            lost.late = Some(Late { who, change });
        }
        self.push(lost, "asks in vain for", about, When::Never);
    }

    /// Whether a post must not begin any more: the read is too old, or the right to it has ended.
    fn is_too_late(&self) -> bool {
        let worker = self.state.workers[self.who];
        let Deed::Post {
            begin_before: Some(before),
            ..
        } = worker.deed
        else {
            return false;
        };
        let is_over = self.world.scenario.clock(self.state.now) >= before;
        (is_over || worker.is_old) && !self.world.scenario.has(Planted::RightsNeverEnd)
    }

    /// The state with what a post must not be.
    fn posted(&self, usage: Stretch) -> State {
        let mut posted = *self.state;
        let is_over = at(usage.ends().1) <= self.world.scenario.clock(posted.now);
        posted.note(Law::NotBefore, usage.leads_on() && !is_over);
        if let Deed::Post { says_otherwise, .. } = posted.workers[self.who].deed {
            posted.note(Law::SameBytes, says_otherwise);
        }
        if self.world.scenario.has(Planted::EntryBeforeAnswer) {
            posted.ledger |= usage.set();
        }
        posted
    }

    fn post(&mut self, usage: Stretch) {
        let upstream = self.state.upstream;
        let is_repeat = usage.is_in(upstream.counted | upstream.under_way);
        let has_other_id = is_repeat && self.world.scenario.has(Planted::IdPerAttempt);
        let usage = if has_other_id { Stretch::STRAY } else { usage };
        let posted = self.posted(usage);
        let mut counted = posted;
        self.world.count(&mut counted, usage);
        let failed = |failing| Input::Failed(failing, posted.now);
        let (refused, unheard) = (failed(Failing::Refused), failed(Failing::Unanswered));
        let mut all = vec![
            (
                counted,
                Input::Accepted,
                "posts, hears 202 for",
                When::Accepting,
            ),
            (posted, refused, "posts, hears 400 for", When::Refusing),
            (counted, unheard, "posts, hears nothing for", When::Never),
            (
                posted,
                unheard,
                "posts in vain, hears nothing for",
                When::Never,
            ),
        ];
        if let Some(abandoned) = self.world.abandon(&posted, usage) {
            all.push((
                abandoned,
                unheard,
                "posts, and waits no longer for",
                When::Never,
            ));
        }
        if self.world.scenario.unclear {
            let unclear = failed(Failing::Unclear);
            all.push((counted, unclear, "posts, hears 207 for", When::Never));
            all.push((posted, unclear, "posts in vain, hears 207 for", When::Never));
        }
        for (state, input, what, when) in all {
            let mut heard = self.told(&state, input);
            if input == unheard {
                heard.note(Law::SuspendedByRefusal, self.suspends(&heard));
            }
            self.push(heard, what, About::Usage(usage), when);
        }
    }

    /// Whether the worker is about to suspend the span.
    fn suspends(&self, state: &State) -> bool {
        let Deed::Change(change, ChangeKind::Fail) = state.workers[self.who].deed else {
            return false;
        };
        let asked = self.world.changes.get(change);
        let is_suspended = asked.read.suspension().is_some();
        !is_suspended && asked.change.after.suspension().is_some()
    }

    /// The upstream says whether it has a usage. It may not find yet what has counted since the last tick.
    fn look_up(&mut self, usage: Stretch) {
        let state = self.state;
        let is_there = usage.is_in(state.upstream.counted);
        let about = About::Usage(usage);
        if is_there {
            let found = self.told(state, Input::Found);
            self.push(found, "finds", about, When::Always);
        }
        if !is_there || usage.is_in(state.upstream.fresh) {
            let not_found = self.told(state, Input::NotFound(state.now));
            self.push(not_found, "does not find", about, When::Always);
        }
        if self.world.scenario.lost {
            let failed = self.told(state, Input::Failed(Failing::LookUp, state.now));
            self.push(failed, "looks in vain for", about, When::Never);
        }
    }

    fn write_entry(&mut self, usage: Stretch) {
        let mut written = *self.state;
        if !self.world.scenario.has(Planted::EntryAfterRecord) {
            written.ledger |= usage.set();
        }
        let about = About::Usage(usage);
        let answered = self.told(&written, Input::EntryWritten);
        self.push(answered, "writes the entry of", about, When::Always);
        if self.world.scenario.lost {
            let lost = self.unanswered(written);
            self.push(
                lost,
                "writes, without an answer, the entry of",
                about,
                When::Never,
            );
            let lost = self.unanswered(*self.state);
            self.push(lost, "asks in vain for the entry of", about, When::Never);
        }
    }
}
