//! The model of updates: two changes of two spans, between which programs may die and others may act.
//!
//! A request for an update is the steps of [`UpdateIntake`], which the receiver carries out, too. Two
//! requests are under way at any time. They are for the same update, or for two that have the same id by
//! mistake. Either dies between any two steps, and its repeat takes its place. In between, events of
//! others come in once each, or never.

mod transitions;

use sampler_domain::{
    EventId, Half, HalfKept, Id, IntakeRules, Measures, Refusal, Slack, Span, SpanId, StartEvent,
    StopEvent, Target, Timestamp, UpdateEvent, UpdateIntake, UpdateRead, UpdateStep,
};
use sampler_store::{Arrival, NewSpan, NewStop, StartOutcome, StopOutcome};
use sampler_store_testing::Shared;
use sampler_store_testing::memory::Table;
use uuid::Uuid;

use crate::scenario::at;

/// Requests that are under way at a time.
const REQUESTS: usize = 2;

/// Updates in each of the worlds that they may find.
#[derive(Clone, Debug)]
pub struct Updates {
    pub sent: SentUpdates,
    /// What is broken, if anything is.
    pub mutant: Option<UpdateMutant>,
}

/// The updates that are sent, all under one id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SentUpdates {
    /// One, to another plan.
    Change,
    /// One of the quantities: the target stays.
    Resize,
    /// Two, from two targets to one.
    ToOneTarget,
    /// Two, from one target to two.
    FromOneTarget,
}

/// Planted bugs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpdateMutant {
    /// It is not looked for what would refuse the start.
    DoesNotLook,
    /// The halves that are kept are read before what may stand in the way.
    ReadsHalvesFirst,
    /// A stop that was kept by another request counts as one of this update.
    TrustsRepeatedStop,
    /// A start that was kept by another request counts as one of this update.
    TrustsRepeatedStart,
}

/// A request. What it has read is all its memory.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "what is noted of it is small, and independent"
)]
pub struct UpdateRequest {
    /// The number of its update.
    update: usize,
    intake: UpdateIntake,
    /// Whether it has taken a step.
    has_begun: bool,
    /// Its stop was kept before, and its start was not.
    had_stop: bool,
    /// It has made the stop itself.
    stopped: bool,
    /// Something else was written since it began.
    is_disturbed: bool,
    /// The halves that it has read too early, where that is planted.
    early: Option<[Vec<Span>; 2]>,
}

/// The answer to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    /// 201.
    Kept,
    /// A refusal that says that nothing was kept.
    Refused,
    /// `id-taken`, to an update whose stop is kept.
    Mistaken,
    /// `update-incomplete`.
    Incomplete,
}

/// A state: what is kept, the requests that are under way, and what went wrong so far.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct UpdateState {
    table: Shared<Table>,
    requests: Vec<UpdateRequest>,
    /// Events of others that have not come in yet.
    others: Vec<Other>,
    history: UpdateHistory,
}

/// What was answered so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[expect(clippy::struct_excessive_bools, reason = "each is for one property")]
pub struct UpdateHistory {
    /// A refusal was wrong: the request had kept a half.
    denied: bool,
    /// A 201 was wrong: a half is missing.
    claimed: bool,
    /// A half was kept, and the other one refused, though nothing came in between.
    halved: bool,
    /// A request was answered that the update is incomplete.
    incomplete: bool,
    /// A request was answered 201 that found its stop kept, and no start.
    completed: bool,
    /// A request whose stop was kept met the start of another update under the id.
    mistaken: bool,
}

/// Events of others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Other {
    /// The new target is started, at the moment of the update.
    StartTarget,
    /// It is stopped, at that moment.
    StopTarget,
    /// The previous target is stopped, at that moment.
    StopPrevious,
}

/// What happens next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpdateAction {
    /// A request takes its next step.
    Step(usize),
    /// A request dies, and another one begins.
    Die(usize),
    /// An event of somebody else comes in.
    Other(Other),
}

/// Nobody is told that nothing was kept of an update of which a half was.
pub const NOT_DENIED: &str = "a refused update has kept nothing";
/// Nobody is told that an update was kept of which a half is missing.
pub const NOT_CLAIMED: &str = "an update that is kept is kept as a whole";
/// What would refuse a half is found before the other one is kept.
pub const NOT_HALVED: &str = "an update is halved by what comes in between alone";
/// Each half is kept once, and the update does not end what it has started.
pub const HALVES_ONCE: &str = "each half is kept once";
/// One use is billed once, whatever updates go by one id.
pub const ONE_START: &str = "one span is started under an id";
/// A half that is there is completed by a repeat, once nothing stands in the way.
pub const COMPLETED: &str = "a repeat completes an update";

pub const UPDATES_MUST_HOLD: [&str; 6] = [
    NOT_DENIED,
    NOT_CLAIMED,
    NOT_HALVED,
    HALVES_ONCE,
    ONE_START,
    COMPLETED,
];

/// Something comes in between the halves.
pub const INCOMPLETE: &str = "something can come in between";
/// Two updates under one id meet, and the one that comes second is told so.
pub const MISTAKEN: &str = "two updates can meet under one id";
/// A request dies between the halves, and a repeat completes the update.
pub const REPEATED: &str = "an update can be completed by a repeat";

impl Updates {
    /// All that hold, with their names.
    pub fn all() -> [(&'static str, Self); 4] {
        [
            ("change", SentUpdates::Change),
            ("resize", SentUpdates::Resize),
            ("to one target", SentUpdates::ToOneTarget),
            ("from one target", SentUpdates::FromOneTarget),
        ]
        .map(|(name, sent)| (name, Self { sent, mutant: None }))
    }

    /// The updates that are sent. Both targets of the first come from here.
    fn events(&self) -> Vec<UpdateEvent> {
        let targets: &[[&str; 2]] = match self.sent {
            SentUpdates::Change => &[["previous", "new"]],
            SentUpdates::Resize => &[["previous", "previous"]],
            SentUpdates::ToOneTarget => &[["previous", "new"], ["second", "new"]],
            SentUpdates::FromOneTarget => &[["previous", "new"], ["previous", "other"]],
        };
        let event = |[previous, new]: &[&str; 2]| UpdateEvent {
            id: id("update"),
            timestamp: moment(),
            target: target(new),
            previous: target(previous),
            measures: Measures::default(),
        };
        targets.iter().map(event).collect()
    }

    fn request(&self, update: usize) -> UpdateRequest {
        let rules = IntakeRules {
            slack: Slack { past: 0, future: 0 },
            lenient_repeats: false,
            may_overlap: false,
        };
        UpdateRequest {
            update,
            intake: UpdateIntake::new(self.events()[update].clone(), rules, moment()),
            has_begun: false,
            had_stop: false,
            stopped: false,
            is_disturbed: false,
            early: None,
        }
    }

    /// A world in which the previous targets are in use, and what the new one finds in its way.
    fn world(&self, before: &[Other], others: Vec<Other>) -> UpdateState {
        let updates = self.events().len();
        let mut state = UpdateState {
            table: Shared::default(),
            requests: (0..REQUESTS).map(|it| self.request(it % updates)).collect(),
            others,
            history: UpdateHistory::default(),
        };
        open(&mut state, "first", &target("previous"), -10);
        open(&mut state, "first", &target("second"), -10);
        for other in before {
            self.let_in(&mut state, *other);
        }
        state
    }

    fn let_in(&self, state: &mut UpdateState, other: Other) {
        let UpdateEvent {
            target, previous, ..
        } = &self.events()[0];
        let mut stop = |of: &Target, name: &str| {
            let event = StopEvent {
                id: Some(id(name)),
                timestamp: moment(),
                target: of.clone(),
            };
            end(state, &event, None) == StopOutcome::Ended
        };
        let wrote = match other {
            Other::StopTarget => stop(target, "other stop"),
            Other::StopPrevious => stop(previous, "previous stop"),
            Other::StartTarget => open(state, "other start", target, 0),
        };
        if wrote {
            disturb(state, REQUESTS);
        }
    }

    /// Takes the next step of a request; the answer, if it has one then.
    fn step(&self, state: &mut UpdateState, index: usize) -> Option<Answer> {
        let mut request = state.requests[index].clone();
        request.has_begun = true;
        let event = request.intake.event().clone();
        match request.intake.next() {
            UpdateStep::Read(read) => {
                let spans = self.read(&state.table, &mut request, read);
                request.intake.on_spans(spans);
                let intake = &request.intake;
                request.had_stop |= !request.stopped && intake.has_stop() && !intake.has_start();
            }
            UpdateStep::Keep(Half::Stop) => {
                let answer = end(state, &event.stop(), Some(event.targets_digest()));
                request.stopped = answer == StopOutcome::Ended;
                let is_trusted = self.mutant == Some(UpdateMutant::TrustsRepeatedStop);
                request.intake.on_kept(match answer {
                    StopOutcome::Ended => Ok(HalfKept::Made),
                    StopOutcome::Repeated if is_trusted => Ok(HalfKept::Made),
                    StopOutcome::Repeated => Ok(HalfKept::Repeated),
                    StopOutcome::Refused(Refusal::NotOpen) => Err(Refusal::NotOpen),
                    StopOutcome::Refused(other) => panic!("a stop is refused: {other:?}"),
                });
                if request.stopped {
                    disturb(state, index);
                }
            }
            UpdateStep::Keep(Half::Start) => {
                let update = Some(event.targets_digest());
                let answer = start(state, "update", &event.target, moment(), update);
                let is_trusted = self.mutant == Some(UpdateMutant::TrustsRepeatedStart);
                request.intake.on_kept(match answer {
                    StartOutcome::Opened => {
                        disturb(state, index);
                        Ok(HalfKept::Made)
                    }
                    StartOutcome::Repeated { .. } if is_trusted => Ok(HalfKept::Made),
                    StartOutcome::Repeated { .. } => Ok(HalfKept::Repeated),
                    StartOutcome::Refused(Refusal::AlreadyOpen) => Err(Refusal::AlreadyOpen),
                    StartOutcome::Refused(other) => panic!("a start is refused: {other:?}"),
                });
            }
            UpdateStep::IsIdFree(_) | UpdateStep::Kept { .. } | UpdateStep::Refused { .. } => {}
        }
        // No original is here that has the id.
        while let UpdateStep::IsIdFree(_) = request.intake.next() {
            request.intake.on_id(true);
        }
        let answer = answer_of(request.intake.next());
        state.requests[index] = request;
        answer
    }

    fn read(&self, table: &Table, request: &mut UpdateRequest, read: UpdateRead) -> Vec<Span> {
        let event = request.intake.event();
        let spans = |spans: Vec<&Span>| spans.into_iter().cloned().collect();
        let find = |read: UpdateRead| -> Vec<Span> {
            spans(match read {
                UpdateRead::OpenOfPrevious => {
                    table.find_not_ended(&event.previous, event.timestamp)
                }
                UpdateRead::NotEndedOfTarget => {
                    table.find_not_ended(&event.target, event.timestamp)
                }
                UpdateRead::StartOfUpdate => {
                    let found = table.find_by_start_id(&event.target, &event.id);
                    found.into_iter().collect()
                }
                UpdateRead::StopOfUpdate => {
                    let found = table.find_by_stop_id(&event.previous, &event.id);
                    found.into_iter().collect()
                }
            })
        };
        let (start, stop) = (UpdateRead::StartOfUpdate, UpdateRead::StopOfUpdate);
        match (self.mutant, read) {
            (Some(UpdateMutant::DoesNotLook), UpdateRead::NotEndedOfTarget) => Vec::new(),
            (Some(UpdateMutant::ReadsHalvesFirst), UpdateRead::OpenOfPrevious) => {
                let early = [start, stop].map(find);
                let found = find(read);
                request.early = Some(early);
                found
            }
            (Some(UpdateMutant::ReadsHalvesFirst), read) if read == start || read == stop => {
                // What was read first, once.
                let halves = request.early.clone();
                if read == stop {
                    request.early = None;
                }
                match halves {
                    Some([started, _]) if read == start => started,
                    Some([_, ended]) => ended,
                    None => find(read),
                }
            }
            (_, read) => find(read),
        }
    }

    fn note(&self, state: &mut UpdateState, index: usize, answer: Answer) {
        let request = &state.requests[index];
        let halves = halves(&state.table, request.intake.event());
        let history = &mut state.history;
        match answer {
            Answer::Kept => {
                history.claimed |= halves != (1, 1);
                history.completed |= request.had_stop;
            }
            Answer::Refused => history.denied |= halves != (0, 0),
            Answer::Mistaken => history.mistaken = true,
            Answer::Incomplete => {
                history.incomplete = true;
                history.halved |= request.stopped && !request.is_disturbed;
            }
        }
        state.requests[index] = self.request(request.update);
    }

    /// Whether a repeat that nobody disturbs makes the half that is missing.
    fn is_completable(&self, state: &UpdateState, update: usize) -> bool {
        let event = &self.events()[update];
        let (stops, starts) = halves(&state.table, event);
        let others = state.table.find_not_ended(&event.target, event.timestamp);
        let is_met = state.table.find_by_start_id(&event.target, &event.id);
        if (stops, starts) != (1, 0) || !others.is_empty() || is_met.is_some() {
            return true;
        }
        let mut state = state.clone();
        state.requests[0] = self.request(update);
        let answer = loop {
            if let Some(answer) = self.step(&mut state, 0) {
                break answer;
            }
        };
        answer == Answer::Kept && halves(&state.table, event) == (1, 1)
    }
}

fn answer_of(step: UpdateStep) -> Option<Answer> {
    match step {
        UpdateStep::Kept { .. } => Some(Answer::Kept),
        UpdateStep::Refused { refusal, has_stop } => Some(match refusal {
            _ if !has_stop => Answer::Refused,
            Refusal::IdTaken(_) | Refusal::IdOfAnotherUpdate => Answer::Mistaken,
            _ => Answer::Incomplete,
        }),
        _ => None,
    }
}

/// How many spans were stopped, and how many started, by the update.
fn halves(table: &Table, event: &UpdateEvent) -> (usize, usize) {
    let targets = Some(event.targets_digest());
    let stops = table.all().filter(|kept| kept.span.stop_update == targets);
    let starts = table.all().filter(|kept| kept.span.start_update == targets);
    (stops.count(), starts.count())
}

/// Something was written while all requests but this one are under way.
fn disturb(state: &mut UpdateState, except: usize) {
    for (index, request) in state.requests.iter_mut().enumerate() {
        request.is_disturbed |= index != except && request.has_begun;
    }
}

fn open(state: &mut UpdateState, name: &str, target: &Target, seconds: i64) -> bool {
    let outcome = start(state, name, target, moment().plus(seconds * 1_000), None);
    outcome == StartOutcome::Opened
}

fn start(
    state: &mut UpdateState,
    name: &str,
    target: &Target,
    at: Timestamp,
    update: Option<Uuid>,
) -> StartOutcome {
    let event = StartEvent {
        id: Some(id(name)),
        timestamp: at,
        target: target.clone(),
        measures: Measures::default(),
    };
    let number = state.table.all().count() as u64;
    let mut span = Span::open(SpanId::new(at, number), event);
    span.start_update = update;
    state.table.make_mut().start(NewSpan {
        span,
        due_at: at,
        now: at,
        may_overlap: false,
        arrival: Arrival::Alone,
    })
}

fn end(state: &mut UpdateState, event: &StopEvent, update: Option<Uuid>) -> StopOutcome {
    // Each request draws its own. Only those that are kept differ here, so that states do not.
    let ended = state.table.all().filter(|kept| kept.span.end.is_some());
    let new = NewStop {
        event: event.clone(),
        client: None,
        update,
        correlation_id: Uuid::from_u64_pair(1, ended.count() as u64),
        arrival: Arrival::Alone,
    };
    state.table.make_mut().stop(&new)
}

/// When the updates take place.
fn moment() -> Timestamp {
    at(60)
}

fn id(text: &str) -> EventId {
    Id::from_store(text)
}

fn target(plan: &str) -> Target {
    Target::from_store(["o", "s", "c", "r", plan, "i"])
}
