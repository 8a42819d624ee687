//! What is outside of the feed, and how it fails.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;

use sampler_verify::moment::Millis;
use serde_json::{Value, json};

use super::receiver::Receiver;
use super::world::{BEGIN, Foundation};
use super::{Faults, Numbers};
use crate::failure::Failure;
use crate::feed::follow::Outside;
use crate::feed::gap::Span;
use crate::feed::lists::{EventPage, Listed, TaskState, Unread};
use crate::feed::state::{Mark, Refusal, Refused};
use crate::feed::usage_event::Record;

/// How the feed learns that it is killed.
pub(super) const KILLED: &str = "killed";

/// A foundation, a receiver and a clock.
pub(super) struct Simulated {
    faults: Faults,
    numbers: RefCell<Numbers>,
    now: Cell<Millis>,
    pub(super) world: RefCell<Foundation>,
    pub(super) receiver: RefCell<Receiver>,
    pub(super) lost_answers: Cell<u64>,
}

impl Simulated {
    pub(super) fn new(faults: Faults) -> Self {
        Self {
            faults,
            numbers: RefCell::new(Numbers(0x9e37_79b9_7f4a_7c15)),
            now: Cell::new(BEGIN),
            world: RefCell::new(Foundation::new(faults)),
            receiver: RefCell::default(),
            lost_answers: Cell::new(0),
        }
    }

    pub(super) fn is_one_of(&self, count: u64) -> bool {
        self.numbers.borrow_mut().is_one_of(count)
    }

    pub(super) fn time(&self) -> Millis {
        self.now.get()
    }

    pub(super) fn pass(&self, length: Millis) {
        self.now.set(self.now.get() + length);
    }

    /// Somebody does something a little later.
    pub(super) fn act(&self) {
        let mut numbers = self.numbers.borrow_mut();
        self.pass(50 + numbers.below(2_000) as i64);
        self.world.borrow_mut().act(&mut numbers, self.now.get());
    }

    pub(super) fn purge(&self) {
        self.world.borrow_mut().purge(self.now.get());
    }

    /// Whatever the feed asks for, it may be killed before, and after, and may get no answer.
    fn asked<T>(&self, answer: impl FnOnce() -> T) -> Result<T, Failure> {
        let is_killed = || self.faults.kills && self.is_one_of(10);
        let killed = || Failure::Interrupted(KILLED.to_owned());
        if is_killed() {
            return Err(killed());
        }
        let answer = answer();
        if is_killed() {
            return Err(killed());
        }
        if self.faults.answers && self.is_one_of(6) {
            self.lost_answers.set(self.lost_answers.get() + 1);
            return Err(Failure::Unanswered("lost".to_owned()));
        }
        Ok(answer)
    }
}

impl Outside for Rc<Simulated> {
    fn now(&self) -> Millis {
        self.time()
    }

    async fn events(&self, _: Record, mark: Option<&Mark>) -> Result<EventPage, Unread> {
        let page = 1 + self.numbers.borrow_mut().below(400) as usize;
        let found = self.asked(|| self.world.borrow().after(mark, self.time()))?;
        let mut events = found.ok_or(Unread::Gone)?;
        let is_last = events.len() <= page;
        events.truncate(page);
        Ok(EventPage { events, is_last })
    }

    async fn running(&self, _: Record) -> Result<Listed, Failure> {
        self.asked(|| {
            let running = self.world.borrow().listed(self.time());
            let running = running
                .iter()
                .map(|(key, quantities)| Foundation::running(key, *quantities, 1));
            Listed {
                running: running.collect(),
                unplaced: BTreeSet::new(),
                organizations: BTreeSet::from(["o".to_owned()]),
                resources: BTreeSet::new(),
            }
        })
    }

    async fn tasks(&self, _: &[String]) -> Result<HashMap<String, TaskState>, Failure> {
        unreachable!("the foundation has no tasks")
    }

    async fn open_spans(
        &self,
        _: &'static str,
        _: &BTreeSet<String>,
    ) -> Result<Vec<Span>, Failure> {
        self.asked(|| self.receiver.borrow().open())
    }

    /// The feed may be killed when a part of the events is sent.
    async fn post(&self, bodies: &[&Value]) -> Result<Refused, Failure> {
        let mut sent = bodies.len();
        if self.faults.kills && self.is_one_of(8) {
            sent = self.numbers.borrow_mut().below(sent as u64 + 1) as usize;
        }
        let refused = self.asked(|| {
            let mut receiver = self.receiver.borrow_mut();
            let mut refused = Refused::new();
            for body in &bodies[..sent] {
                if !receiver.take(body) {
                    let refusal = Refusal {
                        is_open: false,
                        status: 422,
                        problem: json!("refused"),
                    };
                    let id = body["id"].as_str().unwrap();
                    refused.insert(id.to_owned(), refusal);
                }
            }
            refused
        })?;
        if sent < bodies.len() {
            return Err(Failure::Interrupted(KILLED.to_owned()));
        }
        Ok(refused)
    }
}
