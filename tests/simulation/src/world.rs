//! What all processes of a run share.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sampler_domain::{Id, Measure, Measures, Quantity, Target, Timestamp};
use sampler_store_testing::memory::MemoryStore;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::books::StandIn;
use super::conditions::Conditions;
use super::operator::Acts;
use super::provider::History;
use super::setup::Setup;
use super::truth::Truth;

/// How many different lists of measures events have.
pub(crate) const MEASURES: usize = 4;

/// What all processes of a run share.
pub(crate) struct World {
    pub(crate) setup: Setup,
    began: Instant,
    /// How far the clock of the database is ahead, ms, and how far it ever was.
    database_error: Arc<AtomicI64>,
    most_ahead: AtomicI64,
    pub(crate) store: Arc<MemoryStore>,
    pub(crate) truth: Truth,
    pub(crate) books: StandIn,
    pub(crate) history: History,
    /// What operators do next.
    pub(crate) acts: Acts,
    conditions: Mutex<(Conditions, Conditions)>,
    over: AtomicBool,
    /// The lines of the log, if one is wanted.
    lines: Option<Mutex<Vec<String>>>,
    violations: Mutex<Vec<String>>,
    counts: Mutex<Counts>,
}

/// How often what happened.
pub type Counts = BTreeMap<&'static str, u64>;

impl World {
    /// A new world; make it within the runtime whose time it uses.
    pub(crate) fn new(setup: Setup, with_log: bool) -> Self {
        let (began, base) = (Instant::now(), setup.base);
        let database_error = Arc::new(AtomicI64::new(0));
        let error = Arc::clone(&database_error);
        let clock = move || {
            let now = base.plus(millis(began.elapsed()));
            now.plus(error.load(Ordering::Relaxed))
        };
        let store = MemoryStore::new(clock).with_worker_lifetime(setup.worker_lifetime);
        Self {
            setup,
            began,
            database_error,
            most_ahead: AtomicI64::new(0),
            store: Arc::new(store),
            truth: Truth::default(),
            books: StandIn::default(),
            history: History::default(),
            acts: Acts::default(),
            conditions: Mutex::new((Conditions::Flaky, Conditions::Flaky)),
            over: AtomicBool::new(false),
            lines: with_log.then(Mutex::default),
            violations: Mutex::default(),
            counts: Mutex::default(),
        }
    }

    /// The time since the run began, ms.
    pub(crate) fn elapsed(&self) -> i64 {
        millis(self.began.elapsed())
    }

    /// The true time.
    pub(crate) fn now(&self) -> Timestamp {
        self.setup.base.plus(self.elapsed())
    }

    /// The time that the database shows.
    pub(crate) fn database_now(&self) -> Timestamp {
        let error = self.database_error.load(Ordering::Relaxed);
        self.now().plus(error)
    }

    /// The latest time that anybody can have by the database's clock.
    pub(crate) fn latest_now(&self) -> Timestamp {
        self.now().plus(self.most_ahead.load(Ordering::Relaxed))
    }

    /// Sets how far the clock of the database is ahead, ms: another machine serves it.
    pub(crate) fn set_database_clock(&self, error: i64) {
        self.database_error.store(error, Ordering::Relaxed);
        self.most_ahead.fetch_max(error, Ordering::Relaxed);
    }

    /// Waits until `at` ms after the run began.
    pub(crate) async fn until(&self, at: i64) {
        let at = Duration::from_millis(at.unsigned_abs());
        tokio::time::sleep_until(self.began + at).await;
    }

    /// Waits.
    pub(crate) async fn sleep(&self, length: i64) {
        pause(Duration::from_millis(length.unsigned_abs())).await;
    }

    pub(crate) fn set_store(&self, conditions: Conditions) {
        self.conditions.lock().expect("nobody panics with it").0 = conditions;
    }

    pub(crate) fn set_upstream(&self, conditions: Conditions) {
        self.conditions.lock().expect("nobody panics with it").1 = conditions;
    }

    pub(crate) fn store_conditions(&self) -> Conditions {
        self.conditions.lock().expect("nobody panics with it").0
    }

    pub(crate) fn upstream_conditions(&self) -> Conditions {
        self.conditions.lock().expect("nobody panics with it").1
    }

    pub(crate) fn end_faults(&self) {
        self.log("op", || "no more faults".to_owned());
        self.over.store(true, Ordering::Relaxed);
        self.set_store(Conditions::Healthy);
        self.set_upstream(Conditions::Healthy);
        self.set_database_clock(0);
    }

    /// Whether all faults have ended.
    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// Writes a line to the log, if one is kept.
    pub(crate) fn log(&self, who: &str, text: impl FnOnce() -> String) {
        if let Some(lines) = &self.lines {
            let line = format!("{} {who}: {}", self.now(), text());
            lines.lock().expect("nobody panics with it").push(line);
        }
    }

    pub(crate) fn report_violation(&self, text: String) {
        self.log("VIOLATION", || text.clone());
        let mut violations = self.violations.lock().expect("nobody panics with it");
        violations.push(text);
    }

    pub(crate) fn count(&self, what: &'static str) {
        self.add(what, 1);
    }

    pub(crate) fn add(&self, what: &'static str, number: u64) {
        let mut counts = self.counts.lock().expect("nobody panics with it");
        *counts.entry(what).or_default() += number;
    }

    pub(crate) fn counts(&self) -> Counts {
        self.counts.lock().expect("nobody panics with it").clone()
    }

    /// What was wrong, and the log.
    pub(crate) fn findings(&self) -> (Vec<String>, Vec<String>) {
        let taken = |list: &Mutex<Vec<String>>| {
            std::mem::take(&mut *list.lock().expect("nobody panics with it"))
        };
        let lines = self.lines.as_ref().map(taken).unwrap_or_default();
        (taken(&self.violations), lines)
    }
}

/// Waits; returns at once if the length is zero.
pub(crate) async fn pause(length: Duration) {
    if !length.is_zero() {
        tokio::time::sleep(length).await;
    }
}

pub(crate) fn millis(length: Duration) -> i64 {
    i64::try_from(length.as_millis()).expect("runs take less than 290 million years")
}

/// A target of that number and this many more differ in the plan alone.
pub(crate) const OTHER_PLAN: usize = 64;

/// The fields of a target by its number. Consecutive targets differ in one field.
pub(crate) fn target_fields(number: usize) -> [(&'static str, String); 6] {
    let (number, plan) = (number % OTHER_PLAN, number / OTHER_PLAN);
    [
        ("organization_id", "organization".to_owned()),
        ("space_id", format!("space-{}", number % 2)),
        ("consumer_id", "consumer".to_owned()),
        ("resource_id", format!("resource-{}", number / 2 % 2)),
        ("plan_id", ["plan", "larger"][plan].to_owned()),
        ("resource_instance_id", format!("instance-{}", number / 4)),
    ]
}

pub(crate) fn target(number: usize) -> Target {
    let fields = target_fields(number);
    Target::from_store(fields.each_ref().map(|(_, text)| text.as_str()))
}

pub(crate) fn target_number(of: &Target) -> usize {
    let mut numbers = 0..;
    numbers
        .find(|number| target(*number) == *of)
        .expect("there are no other targets")
}

/// A list of measures by its number, as JSON.
pub(crate) fn measures_json(number: usize) -> Value {
    match number {
        0 => json!([]),
        1 => json!([{"measure": "memory", "quantity": 512}]),
        2 => json!([{"measure": "memory", "quantity": 1024.5}]),
        _ => json!([
            {"measure": "instances", "quantity": {"small": 2, "large": [1, "x"]}},
            {"measure": "memory", "quantity": 9_007_199_254_740_991_i64},
        ]),
    }
}

/// The same list as it is to be kept.
pub(crate) fn measures(number: usize) -> Measures {
    let read = |item: &Value| Measure {
        measure: Id::from_store(item["measure"].as_str().expect("a name")),
        quantity: Quantity::new(item["quantity"].clone()).expect("a fit quantity"),
    };
    let json = measures_json(number);
    let items = json.as_array().expect("a list");
    Measures::new(items.iter().map(read).collect()).expect("no name twice")
}
