//! What all processes of a run share.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sampler_domain::{Id, Measure, Measures, Quantity, Target, Timestamp};
use sampler_store_testing::memory::MemoryStore;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::books::StandIn;
use super::conditions::Conditions;
use super::provider::History;
use super::server::Server;
use super::setup::{Closing, Setup};
use super::truth::Truth;

/// How many different lists of measures events have.
pub(crate) const MEASURES: usize = 4;

/// What all processes of a run share.
pub(crate) struct World {
    pub(crate) setup: Setup,
    began: Instant,
    pub(crate) store: Arc<MemoryStore>,
    pub(crate) server: Server,
    pub(crate) truth: Truth,
    pub(crate) abacus: StandIn,
    pub(crate) history: History,
    conditions: Mutex<(Conditions, Conditions)>,
    over: AtomicBool,
    /// The lines of the log, if one is wanted.
    lines: Option<Mutex<Vec<String>>>,
    violations: Mutex<Vec<String>>,
    pub(crate) tally: Tally,
}

/// Counts of what happened.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) calls: AtomicU64,
    pub(crate) posts: AtomicU64,
    pub(crate) finds: AtomicU64,
    pub(crate) requests: AtomicU64,
    pub(crate) crashes: AtomicU64,
    pub(crate) closing: AtomicU64,
    pub(crate) excused: AtomicU64,
    pub(crate) set_aside: AtomicU64,
    pub(crate) set_aside_again: AtomicU64,
    pub(crate) lost_answers: AtomicU64,
    pub(crate) deaths: AtomicU64,
    pub(crate) lost_notes: AtomicU64,
    pub(crate) second_posts: AtomicU64,
}

impl Tally {
    pub(crate) fn add(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

impl World {
    /// A new world; make it within the runtime whose time it uses.
    pub(crate) fn new(setup: Setup, with_log: bool) -> Self {
        let (began, base, rate) = (Instant::now(), setup.base, setup.heartbeat_slowdown);
        let store = MemoryStore::new(move || base.plus(millis(began.elapsed()) / rate));
        Self {
            setup,
            began,
            store: Arc::new(store),
            server: Server::default(),
            truth: Truth::default(),
            abacus: StandIn::default(),
            history: History::default(),
            conditions: Mutex::new((Conditions::Flaky, Conditions::Flaky)),
            over: AtomicBool::new(false),
            lines: with_log.then(Mutex::default),
            violations: Mutex::default(),
            tally: Tally::default(),
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

    pub(crate) fn set_abacus(&self, conditions: Conditions) {
        self.conditions.lock().expect("nobody panics with it").1 = conditions;
    }

    pub(crate) fn store_conditions(&self) -> Conditions {
        self.as_allowed(self.conditions.lock().expect("nobody panics with it").0)
    }

    pub(crate) fn abacus_conditions(&self) -> Conditions {
        self.as_allowed(self.conditions.lock().expect("nobody panics with it").1)
    }

    fn as_allowed(&self, conditions: Conditions) -> Conditions {
        if conditions != Conditions::Healthy && self.is_quiet() {
            return Conditions::Flaky;
        }
        conditions
    }

    /// Whether a month closes soon, so that there are no severe faults.
    pub(crate) fn is_quiet(&self) -> bool {
        let now = self.now();
        let quiet = |closing: Closing| closing.quiet_from() <= now && now <= closing.closes_at();
        self.setup.closing.is_some_and(quiet)
    }

    pub(crate) fn end_faults(&self) {
        self.log("op", || "no more faults".to_owned());
        self.over.store(true, Ordering::Relaxed);
        self.set_store(Conditions::Healthy);
        self.set_abacus(Conditions::Healthy);
    }

    /// Whether all faults have ended.
    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// Whether no further process crashes or freezes.
    pub(crate) fn suppresses_faults(&self) -> bool {
        self.is_over() || self.is_quiet()
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
