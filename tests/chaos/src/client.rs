//! One client: it owns a few targets and sends their events, one at a time.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use sampler_testkit::build::without;
use sampler_testkit::now_millis;
use serde_json::{Value, json};

use crate::event::{Kind, Target, start_body, stop_body, target};
use crate::history::Event;
use crate::sender::{SendMode, Sender};
use crate::timeline::{Intent, NextEvent, Outcome, Timeline};
use sampler_testkit::rng::Rng;

/// How many targets a client has at once.
const TARGETS: usize = 3;
/// How many accepted events it remembers, to repeat them.
const REMEMBERED: usize = 60;
/// How many of them it repeats in one batch, at most.
const REPEATED: usize = 8;
/// How many new events of one target there are in a batch, at most.
const CHAIN_MAX: usize = 4;
/// How often new events are sent in one batch, per cent.
const IN_BATCHES: usize = 10;
/// The field that malformed events lack.
const MISSING_FIELD: &str = "plan_id";
/// The longest pause between two events, ms.
const PAUSE_MAX: i64 = 400;

/// A client with its targets.
#[derive(Debug)]
pub(crate) struct Client {
    number: usize,
    rng: Rng,
    sender: Arc<Sender>,
    /// How far its clock is behind that of the machine, ms: its events are dated by that of Abacus at
    /// the beginning of the run.
    behind: i64,
    timelines: Vec<Timeline>,
    /// Targets with nothing more to come but, perhaps, a last stop.
    over: Vec<Timeline>,
    accepted: VecDeque<Event>,
    targets: usize,
    events: usize,
}

impl Client {
    pub(crate) fn new(number: usize, seed: u64, behind: i64, sender: Arc<Sender>) -> Self {
        let rng = Rng::new(seed, 1_000 + number as u64);
        let mut client = Self {
            number,
            rng,
            sender,
            behind,
            timelines: Vec::new(),
            over: Vec::new(),
            accepted: VecDeque::new(),
            targets: 0,
            events: 0,
        };
        for _ in 0..TARGETS {
            let timeline = client.new_timeline();
            client.timelines.push(timeline);
        }
        client
    }

    fn new_timeline(&mut self) -> Timeline {
        let target = target(self.number, self.targets);
        self.targets += 1;
        let now = self.now();
        Timeline::new(target, &mut self.rng, now)
    }

    /// The present, by the clock of this client.
    fn now(&self) -> i64 {
        now_millis() - self.behind
    }

    /// Sends events until the time is over.
    pub(crate) async fn run(&mut self, until: Instant) {
        while Instant::now() < until {
            self.sender.wait_for_backlog(until).await;
            if !self.accepted.is_empty() && self.rng.percent(12) {
                self.repeat().await;
            } else if self.rng.percent(IN_BATCHES) {
                self.send_batch().await;
            } else {
                self.send_next().await;
            }
            let pause = self.rng.between(0, PAUSE_MAX).unsigned_abs();
            tokio::time::sleep(Duration::from_millis(pause)).await;
        }
    }

    /// The next event of one of the targets.
    async fn send_next(&mut self) {
        let (place, now) = (self.rng.below(self.timelines.len()), self.now());
        if self.timelines[place].is_over(now) {
            let fresh = self.new_timeline();
            self.over
                .push(std::mem::replace(&mut self.timelines[place], fresh));
        }
        if self.timelines[place].is_resting(now) {
            return;
        }
        let step = self.timelines[place].next(&mut self.rng, now);
        let mode = match self.rng.between(0, 99) {
            0..=1 => SendMode::GivesUp,
            2..=7 => SendMode::Twice,
            _ => SendMode::Patient,
        };
        let target = self.timelines[place].target.clone();
        // Of two updates at once each may make a half: both would say that it is new.
        if step.intent == Intent::UpdateStop && mode != SendMode::Twice && self.rng.percent(50) {
            return self.update(place, &step, mode).await;
        }
        let outcome = self.say(&target, &step, mode).await;
        let now = self.now();
        self.timelines[place].note(&step, outcome, &mut self.rng, now);
    }

    /// Sends the next events of all targets in one batch: those of one target follow each other.
    async fn send_batch(&mut self) {
        let mut steps: Vec<(usize, NextEvent)> = Vec::new();
        for place in 0..self.timelines.len() {
            let chain = self.chain(place);
            steps.extend(chain.into_iter().map(|step| (place, step)));
        }
        if steps.is_empty() {
            return;
        }
        let event = |client: &mut Self, (place, step): &(usize, NextEvent)| {
            let target = client.timelines[*place].target.clone();
            client.event(&target, step, SendMode::Patient)
        };
        let events: Vec<Event> = steps.iter().map(|step| event(self, step)).collect();
        let outcomes = self.sender.deliver_batch(&events, &mut self.rng).await;
        let mut lost = BTreeSet::new();
        for (((place, step), event), outcome) in steps.into_iter().zip(events).zip(outcomes) {
            // What follows an event of which the client does not know is not known either.
            let known = if lost.contains(&place) {
                Outcome::Unknown
            } else {
                outcome
            };
            if known != Outcome::Accepted {
                lost.insert(place);
            }
            let now = self.now();
            self.timelines[place].note(&step, known, &mut self.rng, now);
            self.remember(event, outcome);
        }
    }

    /// The next events of a target that are right, as if each were accepted.
    fn chain(&mut self, place: usize) -> Vec<NextEvent> {
        let (mut timeline, now) = (self.timelines[place].clone(), self.now());
        let mut chain = Vec::new();
        while chain.len() < CHAIN_MAX && !timeline.is_over(now) && !timeline.is_resting(now) {
            let step = timeline.next(&mut self.rng, now);
            if !step.intent.is_right() {
                break;
            }
            timeline.note(&step, Outcome::Accepted, &mut self.rng, now);
            chain.push(step);
        }
        chain
    }

    /// Sends some accepted events again.
    async fn repeat(&mut self) {
        let count = 1 + self.rng.below(REPEATED);
        let mut events: Vec<Event> = Vec::new();
        while events.len() < count {
            let event = &self.accepted[self.rng.below(self.accepted.len())];
            events.push(event.clone());
        }
        self.sender.repeat(&events, &mut self.rng).await;
    }

    /// Sends the stop and the start of an update as one event.
    async fn update(&mut self, place: usize, stop: &NextEvent, mode: SendMode) {
        let target = self.timelines[place].target.clone();
        let start = NextEvent {
            kind: Kind::Start,
            intent: Intent::UpdateStart,
            ..stop.clone()
        };
        let mut halves = [stop, &start].map(|step| self.event(&target, step, mode));
        halves[1].body["id"] = halves[0].body["id"].clone();
        let outcome = self.sender.deliver(&halves, mode, &mut self.rng).await;
        for (step, event) in [stop, &start].into_iter().zip(halves) {
            let now = self.now();
            self.timelines[place].note(step, outcome, &mut self.rng, now);
            self.remember(event, outcome);
        }
    }

    async fn say(&mut self, target: &Target, step: &NextEvent, mode: SendMode) -> Outcome {
        let event = self.event(target, step, mode);
        let alone = std::slice::from_ref(&event);
        let outcome = self.sender.deliver(alone, mode, &mut self.rng).await;
        self.remember(event, outcome);
        outcome
    }

    fn event(&mut self, target: &Target, step: &NextEvent, mode: SendMode) -> Event {
        let name = format!("c{}-e{}", self.number, self.events);
        self.events += 1;
        Event {
            client: self.number,
            kind: step.kind,
            intent: format!("{:?}", step.intent),
            gives_up: mode == SendMode::GivesUp,
            body: self.body(&name, target, step),
            name,
        }
    }

    fn remember(&mut self, event: Event, outcome: Outcome) {
        if outcome == Outcome::Accepted {
            self.accepted.push_back(event);
            if self.accepted.len() > REMEMBERED {
                self.accepted.pop_front();
            }
        }
    }

    fn body(&mut self, name: &str, target: &Target, step: &NextEvent) -> Value {
        let body = match step.kind {
            Kind::Start => {
                let memory = self.rng.between(1, 4_096);
                start_body(name, step.timestamp, target, memory, name)
            }
            Kind::Stop => stop_body(name, step.timestamp, target),
        };
        match step.intent {
            Intent::IdOfAnother => self.take_id_of_another(body, step.kind),
            Intent::Malformed => without(body, MISSING_FIELD),
            _ => body,
        }
    }

    /// Gives a body the `id` of an accepted event of its target. Without one it is malformed instead.
    fn take_id_of_another(&mut self, mut body: Value, kind: Kind) -> Value {
        let others: Vec<&Event> = self
            .accepted
            .iter()
            .filter(|event| event.kind == kind && is_of_one_target(&event.body, &body))
            .collect();
        if others.is_empty() {
            return without(body, MISSING_FIELD);
        }
        let other = &others[self.rng.below(others.len())].body;
        body["id"] = other["id"].clone();
        if kind == Kind::Stop && body["timestamp"] == other["timestamp"] {
            // A start differs by its tag; a stop is to differ too, even one of the same target.
            let earlier = other["timestamp"].as_i64().unwrap_or_default() - 1;
            body["timestamp"] = json!(earlier);
        }
        body
    }

    /// Stops what may be open, and those of the instances given that are its own.
    pub(crate) async fn close(&mut self, open: &BTreeSet<String>) {
        self.over.append(&mut self.timelines);
        for place in 0..self.over.len() {
            if open.contains(self.over[place].target.instance()) {
                self.over[place].is_open_after_all();
            }
            if !self.over[place].may_be_open() {
                continue;
            }
            let now = self.now();
            let step = self.over[place].last(&mut self.rng, now);
            let target = self.over[place].target.clone();
            let outcome = self.say(&target, &step, SendMode::Patient).await;
            self.over[place].note(&step, outcome, &mut self.rng, now);
        }
    }
}

/// Whether two bodies name the same target.
fn is_of_one_target(one: &Value, other: &Value) -> bool {
    let target = |body: &Value| Target::read(|field| body[field].as_str()).ok();
    target(one) == target(other)
}
