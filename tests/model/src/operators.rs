//! What operators do: resume or probe a suspended span, skip what is refused, and send again what was skipped.
//! Each is one change, which requires the span as it was read.

use sampler_domain::{ChangeKind, Span};

use crate::planted::{self, Planted};
use crate::state::State;
use crate::steps::{About, Next, Step, When, Who};
use crate::stretch::at;
use crate::world::World;

pub(crate) fn steps(world: &mut World, state: &State, next: &mut Vec<Next>) {
    let facts = world.facts(state.span);
    if facts.is_suspended {
        resume(world, state, next);
    }
    if facts.is_suspended || facts.has_failure && world.scenario.has(Planted::SkipWhileProbed) {
        skip(world, state, next);
    }
    resend(world, state, next);
}

/// The state once an operator has made the span this.
fn acted(world: &mut World, state: &State, kind: ChangeKind, after: Span) -> State {
    let mut acted = *state;
    acted.acts -= 1;
    let after = planted::acted(&world.scenario, kind, after);
    acted.span = world.keep(after);
    world.note(&mut acted, state.span, kind);
    if !(kind == ChangeKind::Resume && world.scenario.has(Planted::ResumeLeavesVersion)) {
        world.outdate(&mut acted, None);
    }
    acted
}

fn resume(world: &mut World, state: &State, next: &mut Vec<Next>) {
    let now = world.scenario.clock(state.now);
    let span = world.spans.get(state.span);
    if let Some(change) = span.to_resume(now) {
        let resumed = acted(world, state, change.kind, change.after);
        next.push((resumed, step(Who::Resumes, change.kind, When::Accepting)));
    }
    if world.scenario.probes {
        let refusals = world.scenario.suspend_after.saturating_sub(1);
        let after = span.resumed(refusals, true, now);
        let probed = acted(world, state, ChangeKind::Resume, after);
        next.push((probed, step(Who::Resumes, ChangeKind::Resume, When::Never)));
    }
}

fn skip(world: &mut World, state: &State, next: &mut Vec<Next>) {
    let now = world.scenario.clock(state.now);
    let span = planted::skippable(&world.scenario, &world.spans.get(state.span));
    if let Ok(change) = span.to_skip(None, now) {
        let mut skipped = acted(world, state, change.kind, change.after);
        planted::skipped(world, state, &mut skipped);
        next.push((skipped, step(Who::Skips, change.kind, When::Refusing)));
    }
    let reach = world.scenario.parts.then_some(world.scenario.reach);
    for place in 0..reach.map_or(0, |reach| reach + 1) {
        let end = span.processing.planned.as_ref().map(|it| it.interval.end);
        if end != Some(at(place))
            && let Ok(change) = span.to_skip(Some(at(place)), now)
        {
            let skipped = acted(world, state, change.kind, change.after);
            let until = Step::new(Who::Skips, "until", About::Place(place), When::Never);
            next.push((skipped, until));
        }
    }
}

fn resend(world: &mut World, state: &State, next: &mut Vec<Next>) {
    let now = world.scenario.clock(state.now);
    let facts = world.facts(state.span);
    let span = world.spans.get(state.span);
    if let Some(change) = span.to_resend(None, None, now) {
        let resent = acted(world, state, change.kind, change.after);
        let is_at_rest = facts.first.is_none();
        let when = if is_at_rest {
            When::Accepting
        } else {
            When::Never
        };
        next.push((resent, step(Who::Resends, change.kind, when)));
    }
    if !world.scenario.parts || facts.intervals.len() < 2 {
        return;
    }
    for interval in &facts.intervals {
        let (low, high) = interval.range();
        if let Some(change) = span.to_resend(Some(at(low)), Some(at(high)), now) {
            let resent = acted(world, state, change.kind, change.after);
            let only = Step::new(Who::Resends, "only", About::Usage(*interval), When::Never);
            next.push((resent, only));
        }
    }
}

fn step(who: Who, kind: ChangeKind, when: When) -> Step {
    Step::new(who, "all", About::Change(kind), when)
}
