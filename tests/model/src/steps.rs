//! What happens next: all that can, from a state.

use std::fmt;

use sampler_domain::ChangeKind;

use crate::laws::Law;
use crate::planted::Planted;
use crate::state::{Deed, Late, Number, Past, State, Upstream, Worker};
use crate::stretch::{Stretch, each};
use crate::world::World;
use crate::{operators, worker};

/// Who does a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Who {
    Worker(usize),
    Upstream,
    Store,
    Clock,
    Setting,
    Provider,
    Resumes,
    Resends,
    Skips,
}

/// What a step is about.
#[derive(Clone, Copy, Debug)]
pub(crate) enum About {
    Nothing,
    Usage(Stretch),
    Change(ChangeKind),
    Place(u8),
}

/// In which futures without faults a step is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    Always,
    /// Where the upstream accepts all.
    Accepting,
    /// Where it refuses all.
    Refusing,
    /// It is a fault, or need not happen.
    Never,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    pub who: Who,
    pub what: &'static str,
    pub about: About,
    pub when: When,
}

pub(crate) type Next = (State, Step);

impl Step {
    pub(crate) fn new(who: Who, what: &'static str, about: About, when: When) -> Self {
        Self {
            who,
            what,
            about,
            when,
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.who {
            Who::Worker(who) => f.write_str(["A", "B"][who])?,
            who => write!(f, "{who:?}")?,
        }
        write!(f, ": {}", self.what)?;
        match self.about {
            About::Nothing => Ok(()),
            About::Usage(usage) => write!(f, " {usage}"),
            About::Change(kind) => write!(f, " {kind:?}"),
            About::Place(place) => write!(f, " {place}"),
        }
    }
}

impl World {
    pub(crate) fn first(&mut self) -> State {
        // The other program may have posted what it has planned.
        let is_foreign = self.scenario.foreign;
        State {
            now: self.scenario.now,
            is_set_anew: false,
            span: self.first_span(),
            workers: [Worker::default(); 2],
            late: None,
            upstream: Upstream {
                under_way: if is_foreign {
                    Stretch::FOREIGN.set()
                } else {
                    0
                },
                ..Upstream::default()
            },
            ledger: 0,
            acts: self.scenario.acts,
            past: Past {
                recorded: 0,
                cuts: 1 << self.scenario.start,
                broken: None,
            },
        }
    }

    /// All that can happen in a state.
    pub(crate) fn next(&mut self, state: &State) -> Vec<Next> {
        let mut next = Vec::with_capacity(24);
        for who in 0..2 {
            worker::steps(self, state, who, &mut next);
        }
        self.landings(state, &mut next);
        self.late_change(state, &mut next);
        self.passing_time(state, &mut next);
        self.stops(state, &mut next);
        if state.acts > 0 {
            operators::steps(self, state, &mut next);
        }
        next
    }

    fn landings(&mut self, state: &State, next: &mut Vec<Next>) {
        for usage in each(state.upstream.under_way) {
            let mut lands = *state;
            lands.upstream.under_way &= !usage.set();
            let lost = lands;
            self.count(&mut lands, usage);
            for (state, what, when) in [
                (lands, "a post of nobody lands", When::Always),
                (lost, "a post of nobody is lost", When::Never),
            ] {
                let step = Step::new(Who::Upstream, what, About::Usage(usage), when);
                next.push((state, step));
            }
        }
    }

    /// The upstream takes a usage: it counts, unless it is known to be a repeat.
    pub(crate) fn count(&mut self, state: &mut State, usage: Stretch) {
        let upstream = &mut state.upstream;
        let Some(ticks) = self.scenario.horizon else {
            upstream.counted |= usage.set();
            return;
        };
        let [until_next, until_later] = upstream.remembered;
        if usage.is_in(until_next | until_later) {
            return;
        }
        let is_again = usage.is_in(upstream.counted);
        upstream.counted |= usage.set();
        upstream.fresh |= usage.set();
        if ticks > 0 {
            upstream.remembered[usize::from(ticks) - 1] |= usage.set();
        }
        state.note(Law::OneId, is_again);
    }

    /// Leaves a post under way; none where another one is.
    pub(crate) fn abandon(&self, state: &State, usage: Stretch) -> Option<State> {
        let under_way = state.upstream.under_way;
        if under_way & !usage.set() != 0 {
            return None;
        }
        let mut state = *state;
        let is_never_known = self.scenario.horizon == Some(0);
        state.note(Law::OneId, under_way != 0 && is_never_known);
        state.upstream.under_way |= usage.set();
        Some(state)
    }

    fn late_change(&mut self, state: &State, next: &mut Vec<Next>) {
        let Some(Late { who, change }) = state.late else {
            return;
        };
        let kind = self.changes.get(change).change.kind;
        let mut made = *state;
        self.make(&mut made, who, change);
        self.outdate(&mut made, None);
        let never = State {
            late: None,
            ..*state
        };
        for (state, what, when) in [
            (made, "makes late", When::Always),
            (never, "never makes", When::Never),
        ] {
            next.push((
                state,
                Step::new(Who::Store, what, About::Change(kind), when),
            ));
        }
    }

    /// The store makes a change of a worker.
    pub(crate) fn make(&mut self, state: &mut State, who: usize, change: Number) {
        let before = state.span;
        let kind = self.changes.get(change).change.kind;
        state.span = self.applied(before, who, change);
        self.note(state, before, kind);
    }

    /// All reads of the span are outdated, but that of who has changed it.
    pub(crate) fn outdate(&mut self, state: &mut State, by: Option<usize>) {
        state.late = None;
        for who in (0..2).filter(|who| Some(*who) != by) {
            worker::outdate(self, &mut state.workers[who]);
        }
    }

    /// Notes what a change is for the laws.
    pub(crate) fn note(&mut self, state: &mut State, before: Number, kind: ChangeKind) {
        let (before, after) = (self.facts(before), self.facts(state.span));
        let recorded = match kind {
            ChangeKind::Record => before.planned,
            ChangeKind::RecordAgain => before.first,
            _ => None,
        };
        state.past.recorded |= recorded.map_or(0, Stretch::set);
        if kind == ChangeKind::Skip {
            for skipped in &after.intervals {
                let (low, high) = skipped.range();
                state.past.cuts |= 1 << low | 1 << high;
            }
        }
        let Some(planned) = after.planned else {
            return;
        };
        if !matches!(kind, ChangeKind::Plan | ChangeKind::Record) {
            return;
        }
        let (from, to) = planned.ends();
        state.note(Law::FreshPlan, after.has_failure || after.is_probe);
        if planned.leads_on() {
            state.note(Law::WithinEnd, after.end.is_some_and(|end| to > end));
            state.past.cuts |= 1 << from | 1 << to;
            return;
        }
        state.note(Law::WithinEnd, after.end.is_none_or(|end| to < end));
        state.note(Law::OnCuts, planned.inside() & state.past.cuts != 0);
    }

    fn passing_time(&mut self, state: &State, next: &mut Vec<Next>) {
        let scenario = self.scenario;
        if scenario.settings[0] != scenario.settings[1] && !state.is_set_anew {
            let is_set_anew = true;
            let anew = State {
                is_set_anew,
                ..*state
            };
            let step = Step::new(Who::Setting, "changes", About::Nothing, When::Never);
            next.push((anew, step));
        }
        if state.now < scenario.reach {
            let mut later = *state;
            later.now += 1;
            let about = About::Place(later.now);
            next.push((later, Step::new(Who::Clock, "is at", about, When::Always)));
        } else if state.now < scenario.reach + scenario.ticks {
            next.push(tick(state));
        }
    }

    fn stops(&mut self, state: &State, next: &mut Vec<Next>) {
        if self.facts(state.span).end.is_some() {
            return;
        }
        let now = state.now.min(self.scenario.reach);
        for end in self.scenario.start..=self.scenario.reach {
            let mut stopped = *state;
            stopped.span = self.stopped(state.span, end);
            if !self.scenario.has(Planted::StopLeavesVersion) {
                self.outdate(&mut stopped, None);
            }
            let when = if end == now {
                When::Always
            } else {
                When::Never
            };
            let step = Step::new(Who::Provider, "stops at", About::Place(end), when);
            next.push((stopped, step));
        }
    }

    /// Whether a worker finds the span by looking.
    pub(crate) fn is_due(&mut self, state: &State) -> bool {
        let facts = self.facts(state.span);
        let clock = self.scenario.clock(state.now);
        !facts.is_complete && facts.due_at.is_some_and(|due_at| due_at <= clock)
    }
}

/// The clock ticks: by then each post has landed or is lost.
pub(crate) fn tick(state: &State) -> Next {
    let mut later = *state;
    later.now += 1;
    let upstream = &mut later.upstream;
    upstream.under_way = 0;
    upstream.fresh = 0;
    upstream.remembered = [upstream.remembered[1], 0];
    for worker in &mut later.workers {
        worker.is_old = matches!(worker.deed, Deed::Post { .. });
    }
    (
        later,
        Step::new(Who::Clock, "ticks", About::Nothing, When::Always),
    )
}
