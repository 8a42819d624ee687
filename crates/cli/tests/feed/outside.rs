//! What is outside of the feed, and how it fails: a clock, a platform, and a receiver with spans, repeats and refusals.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;

use sampler_api::Problem;
use sampler_verify::moment::Millis;
use serde_json::{Value, json};

use super::world::{BEGIN, Foundation};
use super::{Faults, Numbers};
use crate::event::SpanSeen;
use crate::events::Refusal;
use crate::failure::Failure;
use crate::feed::outside::{EventPage, Listed, Outside};
use crate::feed::state::{Mark, Refused};
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

    async fn events(&self, _: Record, mark: Option<&Mark>) -> Result<Option<EventPage>, Failure> {
        let page = 1 + self.numbers.borrow_mut().below(400) as usize;
        let found = self.asked(|| self.world.borrow().after(mark, self.time()))?;
        Ok(found.map(|mut events| {
            let is_last = events.len() <= page;
            events.truncate(page);
            EventPage { events, is_last }
        }))
    }

    async fn running(&self, _: Record) -> Result<Listed, Failure> {
        self.asked(|| {
            let running = self.world.borrow().listed(self.time());
            let running = running.into_iter().map(|(key, quantities)| {
                let runs = Foundation::running(&key, quantities, 1);
                (key, runs)
            });
            Listed {
                running: running.collect(),
                unplaced: BTreeSet::new(),
                organizations: BTreeSet::from(["o".to_owned()]),
            }
        })
    }

    async fn tasks(&self, _: &[String]) -> Result<HashMap<String, Option<Millis>>, Failure> {
        Ok(HashMap::new())
    }

    async fn open_spans(&self, _: &BTreeSet<String>) -> Result<Vec<SpanSeen>, Failure> {
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
                        line: 0,
                        status: 422,
                        problem: Problem::default(),
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

/// A span: since when, how much, and until when.
pub(super) type Span = (Millis, Value, Option<Millis>);

/// A receiver: it knows repeats, and refuses what does not fit.
#[derive(Default)]
pub(super) struct Receiver {
    pub(super) ids: HashMap<String, Value>,
    pub(super) spans: BTreeMap<String, Vec<Span>>,
    pub(super) refused: u64,
    /// How many events it was sent, and how many of these it had already.
    pub(super) taken: u64,
    pub(super) repeated: u64,
}

impl Receiver {
    pub(super) fn take(&mut self, event: &Value) -> bool {
        self.taken += 1;
        let id = event["id"].as_str().unwrap_or_default();
        if let Some(before) = self.ids.get(id) {
            assert_eq!(before, event, "an id says one thing");
            self.repeated += 1;
            return true;
        }
        let key = event["resource_instance_id"].as_str().unwrap_or_default();
        let at = event["timestamp"].as_i64().unwrap_or_default();
        let spans = self.spans.entry(key.to_owned()).or_default();
        let is_open = spans.last().is_some_and(|span| span.2.is_none());
        let starts = event["type"] != "stop";
        let stops = event["type"] != "start";
        let last = spans.last().map_or(at, |span| span.2.unwrap_or(span.0));
        if is_open != stops || at < last {
            self.refused += 1;
            return false;
        }
        if let (true, Some(span)) = (stops, spans.last_mut()) {
            span.2 = Some(at);
        }
        if starts {
            spans.push((at, event["measured_usage"].clone(), None));
        }
        self.ids.insert(id.to_owned(), event.clone());
        true
    }

    /// What `GET /v1/spans?state=open` lists.
    pub(super) fn open(&self) -> Vec<SpanSeen> {
        let last = self.spans.iter().filter_map(|(key, spans)| {
            let (start, measures, end) = spans.last()?;
            let span = json!({
                "id": key, "target": target(key), "measured_usage": measures,
                "start": start, "end": end,
            });
            end.is_none().then(|| serde_json::from_value(span).unwrap())
        });
        last.collect()
    }
}

fn target(key: &str) -> Value {
    json!({
        "organization_id": "o", "space_id": "s", "consumer_id": format!("app:{key}"),
        "resource_id": "linux-container", "plan_id": "basic", "resource_instance_id": key,
    })
}
