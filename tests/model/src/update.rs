//! The model of updates: two changes of two spans, between which programs may die and others may act.
//!
//! A request for an update is the steps of `receiver/src/controllers/events/update.rs`, written again:
//! four reads (what stands in the way first, then which halves are kept), the stop, the start. Two such requests are under way at any time, each a
//! repeat of the other; either dies between any two steps, and another takes its place. In between,
//! events of others come in once each, or never.

use std::sync::Arc;

use sampler_domain::{
    EventId, Id, Measures, Span, SpanId, StopEvent, Target, Timestamp, UpdateEvent,
};
use sampler_store::memory::Table;
use sampler_store::{Arrival, NewSpan, NewStop, StartOutcome, StopOutcome};
use stateright::{Model, Property};
use uuid::Uuid;

use crate::scenario::at;

/// Requests for the update that are under way at a time.
const REQUESTS: usize = 2;

/// An update in each of the worlds that it may find.
#[derive(Clone, Debug)]
pub struct Updates {
    /// Whether the target stays, so that only its quantities change.
    pub stays: bool,
    /// Whether it is looked for what would refuse either half. The planted bug: it is not.
    pub looks: bool,
}

/// Where a request is. What it has read is all its memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "what it knows is small, and independent"
)]
pub struct UpdateRequest {
    /// The step that is next.
    step: Step,
    /// The span of the previous target that was open when it looked, and could be ended.
    open: Option<SpanId>,
    /// The spans of the new target that had not ended when it looked.
    others: Vec<SpanId>,
    /// Its stop was kept before.
    had_stop: bool,
    /// Its start was kept before.
    had_start: bool,
    /// It has made the stop itself.
    stopped: bool,
    /// Something else was written since it began.
    is_disturbed: bool,
}

/// The steps of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Step {
    #[default]
    LookAtPrevious,
    LookAtTarget,
    FindStart,
    FindStop,
    Stop,
    Start,
}

/// What a request is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    /// 201.
    Kept,
    /// A refusal that says that nothing was kept.
    Refused,
    /// `update-incomplete`.
    Incomplete,
}

/// A state: what is kept, the requests that are under way, and what went wrong so far.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct UpdateState {
    table: Arc<Table>,
    requests: [UpdateRequest; REQUESTS],
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
/// A half that is there is completed by a repeat, once nothing stands in the way.
pub const COMPLETED: &str = "a repeat completes an update";

/// All that must hold.
pub const UPDATES_MUST_HOLD: [&str; 5] =
    [NOT_DENIED, NOT_CLAIMED, NOT_HALVED, HALVES_ONCE, COMPLETED];

/// Something comes in between the halves.
pub const INCOMPLETE: &str = "something can come in between";
/// A request dies between the halves, and a repeat completes the update.
pub const REPEATED: &str = "an update can be completed by a repeat";

impl Updates {
    fn event(&self) -> UpdateEvent {
        let previous = target("previous");
        UpdateEvent {
            id: id("update"),
            timestamp: moment(),
            target: if self.stays {
                previous.clone()
            } else {
                target("new")
            },
            previous,
            measures: Measures::default(),
        }
    }

    /// A world in which the previous target is in use, and what the new one finds in its way.
    fn world(&self, before: &[Other], others: Vec<Other>) -> UpdateState {
        let mut state = UpdateState {
            table: Arc::default(),
            requests: std::array::from_fn(|_| UpdateRequest::default()),
            others,
            history: UpdateHistory::default(),
        };
        open(&mut state, "first", &target("previous"), -10);
        for other in before {
            self.let_in(&mut state, *other);
        }
        state
    }

    fn let_in(&self, state: &mut UpdateState, other: Other) {
        let event = self.event();
        let stop = |of: &Target, name: &str| StopEvent {
            id: Some(id(name)),
            timestamp: moment(),
            target: of.clone(),
        };
        let wrote = match other {
            Other::StartTarget => open(state, "other start", &event.target, 0),
            Other::StopTarget => {
                end(state, &stop(&event.target, "other stop")) == StopOutcome::Ended
            }
            Other::StopPrevious => {
                end(state, &stop(&event.previous, "previous stop")) == StopOutcome::Ended
            }
        };
        if wrote {
            disturb(state, REQUESTS);
        }
    }

    /// Takes the next step of a request; the answer, if it has one then.
    fn step(&self, state: &mut UpdateState, index: usize) -> Option<Answer> {
        let (event, mut request) = (self.event(), state.requests[index].clone());
        let table = &state.table;
        let answer = match request.step {
            Step::LookAtPrevious => {
                request.open = open_before(table, &event);
                None
            }
            Step::LookAtTarget => {
                let others = table.find_not_ended(&event.target, event.timestamp);
                request.others = others.into_iter().map(|span| span.id.clone()).collect();
                None
            }
            Step::FindStart => {
                request.had_start = started(table, &event).is_some();
                None
            }
            Step::FindStop => {
                let ended = table.find_by_stop_id(&event.previous, &event.id);
                request.had_stop = ended.is_some();
                self.decide(&event, &request, ended, started(table, &event))
            }
            Step::Stop if request.had_stop => None,
            Step::Stop => {
                let outcome = end(state, &event.stop());
                request.stopped = outcome == StopOutcome::Ended;
                if request.stopped {
                    disturb(state, index);
                }
                let is_kept = matches!(outcome, StopOutcome::Ended | StopOutcome::Repeated);
                (!is_kept).then_some(Answer::Refused)
            }
            Step::Start if request.had_start => Some(Answer::Kept),
            Step::Start => Some(self.start(state, index)),
        };
        request.step = request.step.next();
        state.requests[index] = request;
        answer
    }

    /// The answer where nothing is to be written.
    fn decide(
        &self,
        event: &UpdateEvent,
        request: &UpdateRequest,
        ended: Option<&Span>,
        started: Option<&Span>,
    ) -> Option<Answer> {
        if request.had_stop && request.had_start {
            return Some(Answer::Kept);
        }
        if !self.looks {
            return None;
        }
        // What it has started is not what was used before.
        let is_own = |id: &&SpanId| request.had_start && started.is_some_and(|it| it.id == **id);
        let open = request.open.as_ref().filter(|id| !is_own(id));
        if !request.had_stop && open.is_none() {
            return Some(Answer::Refused);
        }
        let stays = event.target == event.previous;
        let is_ended = |id: &&SpanId| {
            let is_open = stays && !request.had_stop && open == Some(*id);
            is_open || ended.is_some_and(|it| it.id == **id)
        };
        let is_blocked = request.others.iter().any(|id| !is_ended(&id));
        (!request.had_start && is_blocked).then_some(if request.had_stop {
            Answer::Incomplete
        } else {
            Answer::Refused
        })
    }

    fn start(&self, state: &mut UpdateState, index: usize) -> Answer {
        let event = self.event();
        match start(state, "update", &event.target, moment()) {
            StartOutcome::Opened => {
                disturb(state, index);
                Answer::Kept
            }
            StartOutcome::Repeated { .. } => Answer::Kept,
            _ => Answer::Incomplete,
        }
    }

    fn note(&self, state: &mut UpdateState, index: usize, answer: Answer) {
        let (event, request) = (self.event(), state.requests[index].clone());
        let halves = halves(&state.table, &event);
        let history = &mut state.history;
        match answer {
            Answer::Kept => {
                history.claimed |= halves != (1, 1);
                history.completed |= request.had_stop && !request.had_start;
            }
            Answer::Refused => history.denied |= halves != (0, 0),
            Answer::Incomplete => {
                history.incomplete = true;
                history.halved |= request.stopped && !request.is_disturbed;
            }
        }
        state.requests[index] = UpdateRequest::default();
    }

    /// Whether a repeat that nobody disturbs makes the half that is missing.
    fn is_completable(&self, state: &UpdateState) -> bool {
        let event = self.event();
        let mut state = state.clone();
        let (stops, starts) = halves(&state.table, &event);
        let others = state.table.find_not_ended(&event.target, event.timestamp);
        if (stops, starts) != (1, 0) || !others.is_empty() {
            return true;
        }
        state.requests[0] = UpdateRequest::default();
        while state.requests[0].step < Step::Start {
            if self.step(&mut state, 0).is_some() {
                return false;
            }
        }
        self.step(&mut state, 0) == Some(Answer::Kept) && halves(&state.table, &event) == (1, 1)
    }
}

impl Model for Updates {
    type State = UpdateState;
    type Action = UpdateAction;

    fn init_states(&self) -> Vec<UpdateState> {
        use Other::{StartTarget, StopPrevious, StopTarget};
        let all = vec![StartTarget, StopTarget, StopPrevious];
        vec![
            self.world(&[], all),
            self.world(&[StartTarget], vec![StopTarget, StopPrevious]),
            self.world(&[StopPrevious], vec![StartTarget, StopTarget]),
        ]
    }

    fn actions(&self, state: &UpdateState, actions: &mut Vec<UpdateAction>) {
        actions.extend((0..REQUESTS).map(UpdateAction::Step));
        let begun = (0..REQUESTS).filter(|index| state.requests[*index].step > Step::default());
        actions.extend(begun.map(UpdateAction::Die));
        actions.extend(state.others.iter().copied().map(UpdateAction::Other));
    }

    fn next_state(&self, last: &UpdateState, action: UpdateAction) -> Option<UpdateState> {
        let mut state = last.clone();
        match action {
            UpdateAction::Step(index) => {
                if let Some(answer) = self.step(&mut state, index) {
                    self.note(&mut state, index, answer);
                }
            }
            UpdateAction::Die(index) => state.requests[index] = UpdateRequest::default(),
            UpdateAction::Other(other) => {
                state.others.retain(|one| *one != other);
                self.let_in(&mut state, other);
            }
        }
        state.requests.sort();
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(NOT_DENIED, |_, state: &UpdateState| !state.history.denied),
            Property::always(NOT_CLAIMED, |_, state: &UpdateState| !state.history.claimed),
            Property::always(NOT_HALVED, |_, state: &UpdateState| !state.history.halved),
            Property::always(HALVES_ONCE, |model: &Self, state: &UpdateState| {
                let event = model.event();
                let (stops, starts) = halves(&state.table, &event);
                let is_own = |span: &Span| {
                    span.start_id.as_ref() == Some(&event.id)
                        && span.end_id.as_ref() == Some(&event.id)
                };
                stops <= 1 && starts <= 1 && !state.table.all().any(|kept| is_own(&kept.span))
            }),
            Property::always(COMPLETED, |model: &Self, state: &UpdateState| {
                model.is_completable(state)
            }),
            Property::sometimes(INCOMPLETE, |_, state: &UpdateState| {
                state.history.incomplete
            }),
            Property::sometimes(REPEATED, |_, state: &UpdateState| state.history.completed),
        ]
    }
}

impl Step {
    fn next(self) -> Self {
        match self {
            Self::LookAtPrevious => Self::LookAtTarget,
            Self::LookAtTarget => Self::FindStart,
            Self::FindStart => Self::FindStop,
            Self::FindStop => Self::Stop,
            Self::Stop | Self::Start => Self::Start,
        }
    }
}

/// The span that the update would end.
fn open_before(table: &Table, event: &UpdateEvent) -> Option<SpanId> {
    let spans = table.find_not_ended(&event.previous, event.timestamp);
    let mut open = spans.into_iter().filter(|span| span.end.is_none());
    let span = open.find(|span| span.start <= event.timestamp)?;
    Some(span.id.clone())
}

/// The span that the update has started.
fn started<'t>(table: &'t Table, event: &UpdateEvent) -> Option<&'t Span> {
    table.find_by_start_id(&event.target, &event.id)
}

/// How many spans were stopped, and how many started, by the update.
fn halves(table: &Table, event: &UpdateEvent) -> (usize, usize) {
    let id = Some(&event.id);
    let stops = table.all().filter(|kept| kept.span.end_id.as_ref() == id);
    let starts = table.all().filter(|kept| kept.span.start_id.as_ref() == id);
    (stops.count(), starts.count())
}

/// Something was written while all requests but this one are under way.
fn disturb(state: &mut UpdateState, except: usize) {
    for (index, request) in state.requests.iter_mut().enumerate() {
        request.is_disturbed |= index != except && request.step > Step::default();
    }
}

fn open(state: &mut UpdateState, name: &str, target: &Target, seconds: i64) -> bool {
    let outcome = start(state, name, target, moment().plus(seconds * 1_000));
    outcome == StartOutcome::Opened
}

fn start(state: &mut UpdateState, name: &str, target: &Target, at: Timestamp) -> StartOutcome {
    let event = sampler_domain::StartEvent {
        id: Some(id(name)),
        timestamp: at,
        target: target.clone(),
        measures: Measures::default(),
    };
    let number = state.table.all().count() as u64;
    Arc::make_mut(&mut state.table).start(NewSpan {
        span: Span::open(SpanId::new(at, number), event),
        due_at: at,
        now: at,
        may_overlap: false,
        arrival: Arrival::Alone,
    })
}

fn end(state: &mut UpdateState, event: &StopEvent) -> StopOutcome {
    // Each request draws its own. Only those that are kept differ here, so that states do not.
    let ended = state.table.all().filter(|kept| kept.span.end.is_some());
    let new = NewStop {
        event: event.clone(),
        client: None,
        update: None,
        correlation_id: Uuid::from_u64_pair(1, ended.count() as u64),
        arrival: Arrival::Alone,
    };
    Arc::make_mut(&mut state.table).stop(&new)
}

/// When the update takes place.
fn moment() -> Timestamp {
    at(60)
}

fn id(text: &str) -> EventId {
    Id::from_store(text)
}

fn target(plan: &str) -> Target {
    Target::from_store(["o", "s", "c", "r", plan, "i"])
}
