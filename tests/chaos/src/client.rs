//! One client: it owns a few targets and sends their events, one at a time.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sampler_testkit::now_millis;
use sampler_testkit::rng::Rng;

use crate::observer::Backlog;
use crate::sender::{Item, Sender};
use crate::timeline::{Intent, Kind, NextEvent, Timeline, body, name, target};

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
/// The longest pause between two events, ms.
const PAUSE_MAX: i64 = 400;
/// With more stopped spans to work off than this, clients pause: it is faults that are looked for
/// here, not speed.
const BACKLOG_MAX: u64 = 400;

/// A client with its targets.
#[derive(Debug)]
pub(crate) struct Client {
    number: usize,
    rng: Rng,
    sender: Arc<Sender>,
    backlog: Arc<Backlog>,
    timelines: Vec<Timeline>,
    accepted: VecDeque<Item>,
    targets: usize,
    events: usize,
}

impl Client {
    pub(crate) fn new(
        number: usize,
        seed: u64,
        sender: Arc<Sender>,
        backlog: Arc<Backlog>,
    ) -> Self {
        let mut client = Self {
            number,
            rng: Rng::new(seed, 1_000 + number as u64),
            sender,
            backlog,
            timelines: Vec::new(),
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
        let now = now_millis();
        Timeline::new(target, &mut self.rng, now)
    }

    /// Sends events until the time is over, and then stops what is open.
    pub(crate) async fn run(mut self, until: Instant) {
        while Instant::now() < until {
            if self.backlog.stopped() > BACKLOG_MAX {
                tokio::time::sleep(Duration::from_millis(200)).await;
                continue;
            }
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
        for place in 0..self.timelines.len() {
            let now = now_millis();
            if let Some(step) = self.timelines[place].last(&mut self.rng, now) {
                self.send(&[(place, step)], false).await;
            }
        }
    }

    /// The next event of one of the targets.
    async fn send_next(&mut self) {
        let (place, now) = (self.rng.below(self.timelines.len()), now_millis());
        if self.timelines[place].is_over(now) {
            self.timelines[place] = self.new_timeline();
        }
        if self.timelines[place].is_resting(now) {
            return;
        }
        let step = self.timelines[place].next(&mut self.rng, now);
        // Of two updates at once each may make a half: both would say that it is new.
        let twice = step.intent != Intent::Update && self.rng.percent(6);
        self.send(&[(place, step)], twice).await;
    }

    /// Sends the next events of all targets in one batch: those of one target follow each other.
    async fn send_batch(&mut self) {
        let mut steps: Vec<(usize, NextEvent)> = Vec::new();
        for place in 0..self.timelines.len() {
            let chain = self.chain(place);
            steps.extend(chain.into_iter().map(|step| (place, step)));
        }
        if !steps.is_empty() {
            self.send(&steps, false).await;
        }
    }

    /// The next events of a target that are right, as if each were accepted.
    fn chain(&mut self, place: usize) -> Vec<NextEvent> {
        let (mut timeline, now) = (self.timelines[place].clone(), now_millis());
        let mut chain = Vec::new();
        while chain.len() < CHAIN_MAX && !timeline.is_over(now) && !timeline.is_resting(now) {
            let step = timeline.next(&mut self.rng, now);
            if step.intent != Intent::Right {
                break;
            }
            timeline.advance(&step, &mut self.rng, now);
            chain.push(step);
        }
        chain
    }

    async fn send(&mut self, steps: &[(usize, NextEvent)], twice: bool) {
        let items: Vec<Item> = steps
            .iter()
            .map(|(place, step)| self.item(*place, step))
            .collect();
        let is_well = self.sender.deliver(&items, twice, &mut self.rng).await;
        for ((place, step), item) in steps.iter().zip(items) {
            if is_well && item.is_right {
                let now = now_millis();
                self.timelines[*place].advance(step, &mut self.rng, now);
                self.accepted.push_back(item);
            }
        }
        while self.accepted.len() > REMEMBERED {
            self.accepted.pop_front();
        }
    }

    /// Sends some accepted events again.
    async fn repeat(&mut self) {
        let count = 1 + self.rng.below(REPEATED);
        let mut items = Vec::new();
        while items.len() < count {
            let item = &self.accepted[self.rng.below(self.accepted.len())];
            items.push(item.clone());
        }
        self.sender.repeat(&items, &mut self.rng).await;
    }

    fn item(&mut self, place: usize, step: &NextEvent) -> Item {
        let id = format!("c{}-e{}", self.number, self.events);
        self.events += 1;
        let memory = self.rng.between(1, 4_096);
        // An update has the fields of the start that follows its stop.
        let (name, kind) = match step.intent {
            Intent::Update => ("update", Kind::Start),
            _ => (name(step.kind), step.kind),
        };
        let target = &self.timelines[place].target;
        Item {
            kind: name,
            body: body(kind, &id, step.timestamp, target, memory),
            is_right: step.intent.is_right(),
        }
    }
}
