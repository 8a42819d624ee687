//! Turns what providers send into updates and batches: a stop with a start at the same moment becomes
//! an update, and what is sent at nearly the same time becomes one batch.
//!
//! It draws from a stream of its own, so the operations of a seed are otherwise those that they were
//! before there were updates and batches.

use std::collections::BTreeMap;

use super::op::{Action, Event, Kind, Op, Sending, Way};
use super::setup::Setup;
use super::world::OTHER_PLAN;
use sampler_testkit::rng::Rng;

/// The most sendings of one batch.
const BATCH_MOST: usize = 8;

/// Combines operations, which are in order, in some of the runs.
pub(crate) fn combine(setup: &Setup, mut ops: Vec<Op>) -> Vec<Op> {
    let mut rng = Rng::new(setup.seed, 2);
    if rng.percent(60) {
        Updates::new(&mut rng, setup.scale.length).make(&mut ops);
    }
    if rng.percent(60) {
        ops = batches(&mut rng, setup.scale.tick, ops);
    }
    ops
}

/// Makes updates of events.
struct Updates<'r> {
    rng: &'r mut Rng,
    /// A window, roughly, ms.
    length: i64,
    /// By how much the numbers of targets differ whose provider is well behaved: it remembers the plan.
    plans: BTreeMap<usize, usize>,
}

impl<'r> Updates<'r> {
    fn new(rng: &'r mut Rng, length: i64) -> Self {
        Self {
            rng,
            length,
            plans: BTreeMap::new(),
        }
    }

    fn make(&mut self, ops: &mut Vec<Op>) {
        let mut more = Vec::new();
        for op in ops.iter_mut() {
            let Action::Send(sending) = &mut op.act else {
                continue;
            };
            if sending.ordered {
                self.orderly(sending);
            } else {
                self.disorderly(sending);
            }
            // Some send an update once more, or its halves as events of their own under the same id.
            let is_update = matches!(sending.events[0].kind, Kind::Update { .. });
            if is_update && !sending.ordered && self.rng.percent(30) {
                let mut sending = sending.clone();
                if self.rng.percent(50) {
                    sending.events = sending.events[0].halves();
                }
                let at = op.at + self.rng.log_uniform(self.length);
                let act = Action::Send(sending);
                more.push(Op { at, act });
            } else if !sending.ordered && self.rng.percent(15) {
                let act = Action::Send(self.use_other_plan(sending));
                more.push(Op { at: op.at + 1, act });
            }
        }
        ops.extend(more);
        ops.sort_by_key(|op| op.at);
    }

    /// The events of a provider that makes no mistake.
    fn orderly(&mut self, sending: &mut Sending) {
        let plan = *self.plans.get(&sending.events[0].target).unwrap_or(&0);
        let target = sending.events[0].target;
        for event in &mut sending.events {
            event.target += plan;
        }
        if let [stop, start] = &sending.events[..]
            && self.rng.percent(70)
        {
            let mut update = update(stop, start);
            if self.rng.percent(50) {
                let next = OTHER_PLAN - plan;
                update.target = target + next;
                self.plans.insert(target, next);
            }
            sending.events = vec![update];
        }
    }

    /// Uses the other plan of a target for a while, and then changes to it at a moment within that.
    fn use_other_plan(&mut self, sending: &Sending) -> Sending {
        let first = &sending.events[0];
        let name = self.rng.u64();
        let plan = first.target / OTHER_PLAN;
        let target = first.target % OTHER_PLAN + OTHER_PLAN * (1 - plan);
        let event = |kind, after| Event {
            kind,
            id: Some(format!("way-{name}")),
            timestamp: first.timestamp.plus(after),
            target,
            measures: 0,
            broken: false,
        };
        let previous = first.target;
        let length = 1 + self.rng.log_uniform(self.length);
        Sending {
            seed: name,
            events: vec![
                event(Kind::Start, 0),
                event(Kind::Stop, 2 * length),
                event(Kind::Update { previous }, length),
            ],
            retried: true,
            ..sending.clone()
        }
    }

    /// The events of a provider that sends whatever it likes.
    fn disorderly(&mut self, sending: &mut Sending) {
        let mut moves = |event: &mut Event| {
            if self.rng.percent(25) {
                event.target += OTHER_PLAN;
            }
        };
        sending.events.iter_mut().for_each(&mut moves);
        sending.events = match &sending.events[..] {
            [stop, start] if start.id.is_some() && self.rng.percent(70) => {
                vec![update(stop, start)]
            }
            [start] if start.kind == Kind::Start && start.id.is_some() => {
                if !self.rng.percent(30) {
                    return;
                }
                let mut previous = start.clone();
                previous.target = start.target % OTHER_PLAN;
                previous.target += *self.rng.pick(&[0, OTHER_PLAN]);
                vec![update(&previous, start)]
            }
            _ => return,
        };
    }
}

/// The update that ends the target of one event and starts that of another.
fn update(stop: &Event, start: &Event) -> Event {
    let previous = stop.target;
    Event {
        kind: Kind::Update { previous },
        // Other events may have the ids of its halves.
        id: start.id.as_ref().map(|id| format!("update-{id}")),
        broken: stop.broken || start.broken,
        ..start.clone()
    }
}

/// Sends together what is sent within `near` ms, by providers of the same kind.
fn batches(rng: &mut Rng, near: i64, ops: Vec<Op>) -> Vec<Op> {
    let mut combined: Vec<Op> = Vec::new();
    // Where the batch stands that may grow, when it began, and how many sendings it consists of.
    let mut growing: Option<(usize, i64, usize)> = None;
    for op in ops {
        let Action::Send(sending) = &op.act else {
            combined.push(op);
            continue;
        };
        if let Some((place, began, count)) = growing
            && op.at - began <= near
            && count < BATCH_MOST
            && let Action::Send(batch) = &mut combined[place].act
            && is_alike(batch, sending)
            && rng.percent(80)
        {
            batch.events.extend(sending.events.iter().cloned());
            // It is sent when its last event is there, after all that happens before that.
            let mut batch = combined.remove(place);
            batch.at = op.at;
            combined.push(batch);
            growing = Some((combined.len() - 1, began, count + 1));
            continue;
        }
        growing = None;
        let at = op.at;
        combined.push(op);
        if rng.percent(60)
            && let Some(Op {
                act: Action::Send(sending),
                ..
            }) = combined.last_mut()
        {
            sending.way = Way::Batch;
            growing = Some((combined.len() - 1, at, 1));
        }
    }
    combined
}

fn is_alike(one: &Sending, other: &Sending) -> bool {
    let traits = |sending: &Sending| (sending.ordered, sending.retried, sending.must_succeed);
    traits(one) == traits(other)
}
