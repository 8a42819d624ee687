//! Generates the operations of a run from its seed.

use sampler_domain::Timestamp;

use super::combine::combine;
use super::conditions::Conditions;
use super::op::{Action, Clocked, Event, Kind, Op, ProcessFault, Sending, Way};
use super::setup::{DAY, Setup};
use super::world::MEASURES;
use sampler_testkit::rng::Rng;

/// All operations of a run, in order.
pub(crate) fn operations(setup: &Setup) -> Vec<Op> {
    let mut generator = Generator {
        setup,
        rng: Rng::new(setup.seed, 1),
        ops: Vec::new(),
        serial: 0,
        unordered: Vec::new(),
    };
    for target in 0..setup.well_behaved.len() {
        let well_behaved = setup.well_behaved[target];
        generator.timeline(target, well_behaved);
        if !well_behaved && generator.rng.percent(30) {
            generator.timeline(target, false);
        }
    }
    for _ in 0..generator.rng.below(8) {
        generator.odd_event();
    }
    if generator.rng.percent(60) {
        generator.burst();
    }
    for _ in 0..generator.rng.below(12) {
        generator.fault();
    }
    if setup.has_operator {
        generator.operators();
    }
    if setup.has_operator || setup.confirms {
        generator.bad_stops();
    }
    generator.ops.sort_by_key(|op| op.at);
    combine(setup, generator.ops)
}

struct Generator<'a> {
    setup: &'a Setup,
    rng: Rng,
    ops: Vec<Op>,
    /// How many events there are so far.
    serial: u64,
    /// What is sent, and when, for targets whose provider is not well behaved.
    unordered: Vec<(i64, Event)>,
}

impl Generator<'_> {
    fn length(&self) -> i64 {
        self.setup.scale.length
    }

    fn horizon(&self) -> i64 {
        self.setup.scale.horizon
    }

    fn moment(&self, at: i64) -> Timestamp {
        self.setup.base.plus(at)
    }

    /// Moves some moments to the boundary below them, because mistakes are at the edges.
    fn aligned(&mut self, moment: Timestamp) -> Timestamp {
        if self.rng.percent(25) {
            self.setup.scale.unit.window_of(moment)
        } else {
            moment
        }
    }

    fn event(&mut self, kind: Kind, target: usize, timestamp: Timestamp, with_id: bool) -> Event {
        self.serial += 1;
        // Start and stop may share an id, so both kinds count alike.
        let id = with_id.then(|| format!("event-{}", self.serial));
        let measures = match kind {
            Kind::Start => self.rng.below(MEASURES),
            Kind::Stop | Kind::Update { .. } => 0,
        };
        Event {
            kind,
            id,
            timestamp,
            target,
            measures,
            broken: false,
        }
    }

    fn send(&mut self, at: i64, events: Vec<Event>, ordered: bool, must_succeed: bool) {
        if !ordered {
            self.unordered
                .extend(events.iter().map(|event| (at, event.clone())));
        }
        let has_ids = events.iter().all(|event| event.id.is_some());
        let sending = Sending {
            seed: self.rng.u64(),
            events,
            way: Way::OneByOne,
            ordered,
            retried: has_ids && (ordered || self.rng.percent(85)),
            must_succeed,
            timeout: 50 + self.rng.log_uniform(2 * self.setup.scale.tick),
        };
        self.ops.push(Op {
            at,
            act: Action::Send(sending),
        });
    }

    /// The events of a target: starts, stops and updates, mostly in a sensible order.
    fn timeline(&mut self, target: usize, well_behaved: bool) {
        let must_succeed = well_behaved && !self.setup.narrow_slack;
        let mut at = self.rng.log_uniform(self.horizon() / 2);
        let mut free_from = Timestamp::MIN;
        let mut open: Option<Timestamp> = None;
        while at < self.horizon() {
            let with_id = well_behaved || self.rng.percent(80);
            match open {
                None => {
                    let drawn = self.start_moment(at);
                    let start = if well_behaved {
                        drawn.max(free_from)
                    } else {
                        drawn
                    };
                    let event = self.event(Kind::Start, target, start, with_id);
                    self.send(at, vec![event], well_behaved, must_succeed);
                    open = Some(start);
                }
                Some(start) => {
                    let end = self.stop_moment(at, start);
                    let stop = self.event(Kind::Stop, target, end, with_id);
                    if self.rng.percent(30) {
                        let update = self.event(Kind::Start, target, end, with_id);
                        self.send(at, vec![stop, update], well_behaved, must_succeed);
                        open = Some(end);
                    } else {
                        self.send(at, vec![stop], well_behaved, must_succeed);
                        (open, free_from) = (None, end);
                    }
                }
            }
            at += self.gap();
        }
    }

    /// How long until the next event of a target: mostly long, sometimes next to nothing.
    fn gap(&mut self) -> i64 {
        if self.rng.percent(30) {
            1 + self.rng.log_uniform(self.length())
        } else {
            self.rng.between(1, self.horizon() / 3)
        }
    }

    /// When a start that is reported at `at` says that the usage started.
    fn start_moment(&mut self, at: i64) -> Timestamp {
        let length = self.length();
        let shift = match self.rng.below(10) {
            0..=4 => -self.rng.log_uniform(length / 20),
            5..=6 => -self.rng.between(0, 3 * length),
            7 => self.rng.between(0, 2 * length),
            _ => 0,
        };
        let moment = self.moment(at + shift);
        self.aligned(moment)
    }

    /// When a stop that is reported at `at` says that a usage stopped which started at `start`.
    fn stop_moment(&mut self, at: i64, start: Timestamp) -> Timestamp {
        let length = self.length();
        let now = self.moment(at);
        let past = now.since(start).max(0);
        let drawn = match self.rng.below(20) {
            0..=7 => now.plus(-self.rng.log_uniform(length / 20)),
            8..=12 => start.plus(self.rng.between(0, past)),
            13..=15 => now.plus(self.rng.between(0, 2 * length)),
            16 => start,
            _ => now,
        };
        self.aligned(drawn).max(start)
    }

    /// An event that is invalid, or is repeated.
    fn odd_event(&mut self) {
        let at = self.rng.between(0, self.horizon());
        if self.unordered.is_empty() {
            return;
        }
        let (sent_at, event) = {
            let index = self.rng.below(self.unordered.len());
            self.unordered[index].clone()
        };
        let mut event = event;
        let fresh = format!("noise-{}", self.serial);
        self.serial += 1;
        match self.rng.below(8) {
            // The same id for something else.
            2 => {
                event.timestamp = event
                    .timestamp
                    .plus(1 + self.rng.log_uniform(self.length()));
            }
            3 => event.target = self.rng.below(self.setup.well_behaved.len() + 1) + 8,
            4 if event.kind == Kind::Start => event.measures = (event.measures + 1) % MEASURES,
            // Before what it should follow, or inside another span.
            5 => {
                event.id = Some(fresh);
                event.timestamp = event
                    .timestamp
                    .plus(-1 - self.rng.log_uniform(4 * self.length()));
            }
            6 => {
                event.id = Some(fresh);
                let slack = self.setup.slack;
                let wrong = 2 * self.setup.scale.clock_error + 1;
                let outside = *self.rng.pick(&[-slack.past - wrong, slack.future + wrong]);
                event.timestamp = self.moment(at + outside);
            }
            7 => event.broken = true,
            // The same once more: at once, or long afterwards.
            _ => {}
        }
        let at = if self.rng.percent(50) { sent_at } else { at };
        self.send(at, vec![event], false, false);
    }

    /// A burst of starts and stops of one target while the store loses answers, so that a command
    /// that is carried out late finds all possible changes.
    fn burst(&mut self) {
        let target = self.rng.below(2) + 24;
        let length = 2 * self.setup.time_limit;
        let from = self.rng.between(0, self.horizon() - length);
        self.ops.push(Op {
            at: from,
            act: Action::Store(Conditions::Lagging),
        });
        for _ in 0..self.rng.between(8, 20) {
            let at = from + self.rng.between(0, length);
            let kind = *self.rng.pick(&[Kind::Start, Kind::Stop]);
            let with_id = self.rng.percent(50);
            let event = self.event(kind, target, self.moment(at), with_id);
            self.send(at, vec![event], false, false);
        }
        self.ops.push(Op {
            at: from + length,
            act: Action::Store(Conditions::Flaky),
        });
    }

    /// The upstream refuses for a while, and operators act then and later.
    fn operators(&mut self) {
        // A row of its own: all else in the run stays as it is without operators.
        let rng = &mut Rng::new(self.setup.seed, 7);
        let horizon = self.horizon();
        let from = rng.between(0, horizon / 2);
        let to = from + rng.between(0, horizon / 4);
        for (at, conditions) in [(from, Conditions::Refusing), (to, Conditions::Flaky)] {
            let act = Action::Upstream(conditions);
            self.ops.push(Op { at, act });
        }
        for _ in 0..rng.between(4, 24) {
            let at = rng.between(from, horizon);
            let act = Action::Operator(rng.u64());
            self.ops.push(Op { at, act });
        }
    }

    /// Providers stop usages of which some interval may never count.
    fn bad_stops(&mut self) {
        let rng = &mut Rng::new(self.setup.seed, 12);
        for _ in 0..rng.below(12) {
            let at = rng.between(self.horizon() / 8, self.horizon());
            let act = Action::BadStop(rng.u64());
            self.ops.push(Op { at, act });
        }
    }

    /// A fault of a process, a clock, the store or Abacus.
    fn fault(&mut self) {
        let at = self.rng.between(0, self.horizon());
        let act = match self.rng.below(20) {
            0..=3 => {
                let number = self.rng.below(self.setup.receivers);
                let fault = self.process_fault(self.length());
                Action::Receiver(number, fault)
            }
            4..=10 => {
                let number = self.rng.below(self.setup.workers);
                let fault = self.process_fault(self.horizon() / 2);
                Action::Worker(number, fault)
            }
            11..=13 => self.wrong_clock(),
            14..=16 => Action::Store(*self.rng.pick(&Conditions::ALL)),
            _ => Action::Upstream(*self.rng.pick(&Conditions::ALL)),
        };
        self.ops.push(Op { at, act });
    }

    fn process_fault(&mut self, frozen: i64) -> ProcessFault {
        let renamed = self.rng.percent(50);
        let checkpoints = self.rng.below(12);
        match self.rng.below(10) {
            0..=4 => {
                let down = self.rng.log_uniform(2 * self.length());
                ProcessFault::Crash {
                    checkpoints,
                    down,
                    renamed,
                }
            }
            5..=6 => ProcessFault::Replace { renamed },
            _ => {
                let length = self.rng.log_uniform(frozen);
                ProcessFault::Freeze {
                    checkpoints,
                    length,
                }
            }
        }
    }

    /// The clock of the machine may show anything: workers go by the database's.
    fn wrong_clock(&mut self) -> Action {
        let most = self.setup.scale.clock_error;
        if self.rng.percent(40) {
            return Action::Clock(Clocked::Database, self.rng.between(-most, most));
        }
        let number = self.rng.below(self.setup.workers);
        let most = if self.rng.percent(50) { 3 * DAY } else { most };
        let error = self.rng.between(-most, most);
        Action::Clock(Clocked::Worker(number), error)
    }
}
