//! A store in memory whose answers can be held back, spoilt or lost.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use sampler_domain::Entry;
use sampler_store::{Ledger, StoreError};
use sampler_store_testing::faulty::{Fault, Faults, FaultyStore};
use sampler_store_testing::memory::MemoryStore;
use tokio::sync::{Semaphore, watch};

use crate::world::DAY;

/// What the store's errors say, and no answer may.
pub(crate) const SECRET: &str = "mongodb://sampler:secret@db.internal";

/// How the store answers calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Behaviour {
    /// They are answered.
    Served,
    /// They wait until they are let go, then are answered.
    Held,
    /// The store cannot be reached.
    Unavailable,
    /// An index for sums is being made. All else is answered.
    Preparing,
    /// Too many others wait.
    Overloaded,
    /// They are done, and their answers are lost.
    Lost,
    /// They are not done, and nobody can say so.
    Unknown,
    /// The store refuses.
    Refused,
    /// The call panics.
    Panics,
}

pub(crate) struct Store {
    pub(crate) memory: Arc<MemoryStore>,
    /// What answers all calls.
    pub(crate) port: Arc<FaultyStore>,
    script: Script,
}

/// How calls are answered.
#[derive(Clone)]
struct Script(Arc<State>);

struct State {
    behaviour: Mutex<Behaviour>,
    /// For the records of operators' actions, and for the actions themselves.
    record_behaviour: Mutex<Behaviour>,
    change_behaviour: Mutex<Behaviour>,
    /// For all calls behind a stop.
    behaviour_after_stop: Mutex<Option<Behaviour>>,
    calls: AtomicUsize,
    held: watch::Sender<usize>,
    gate: Semaphore,
}

impl Store {
    pub(crate) fn new(memory: MemoryStore) -> Self {
        let memory = Arc::new(memory);
        let script = Script(Arc::new(State {
            behaviour: Mutex::new(Behaviour::Served),
            record_behaviour: Mutex::new(Behaviour::Served),
            change_behaviour: Mutex::new(Behaviour::Served),
            behaviour_after_stop: Mutex::new(None),
            calls: AtomicUsize::new(0),
            held: watch::Sender::new(0),
            gate: Semaphore::new(0),
        }));
        let port = FaultyStore::new(Arc::clone(&memory), script.clone());
        Self {
            memory,
            port,
            script,
        }
    }

    /// Sets how calls are answered from now on.
    pub(crate) fn set_behaviour(&self, behaviour: Behaviour) {
        *self.script.0.behaviour.lock().unwrap() = behaviour;
    }

    /// Sets how records of operators' actions are answered from now on.
    pub(crate) fn set_record_behaviour(&self, behaviour: Behaviour) {
        *self.script.0.record_behaviour.lock().unwrap() = behaviour;
    }

    /// Sets how operators' actions are answered from now on.
    pub(crate) fn set_change_behaviour(&self, behaviour: Behaviour) {
        *self.script.0.change_behaviour.lock().unwrap() = behaviour;
    }

    /// Sets how calls are answered after the next stop.
    pub(crate) fn set_behaviour_after_next_stop(&self, behaviour: Behaviour) {
        *self.script.0.behaviour_after_stop.lock().unwrap() = Some(behaviour);
    }

    /// Keeps an entry of the ledger.
    pub(crate) async fn keep(&self, entry: &Entry) {
        let expires_at = entry.acceptance.at.plus(100 * DAY);
        let kept = self.memory.write_entry(entry, expires_at, None);
        kept.await.unwrap();
    }

    /// How often the store was asked.
    pub(crate) fn calls(&self) -> usize {
        self.script.0.calls.load(Ordering::Relaxed)
    }

    /// Waits until `count` calls have been held.
    pub(crate) async fn wait_until_held(&self, count: usize) {
        let mut held = self.script.0.held.subscribe();
        held.wait_for(|now| *now == count).await.unwrap();
    }

    /// Lets one of the calls go that are held.
    pub(crate) fn release_one(&self) {
        self.script.0.gate.add_permits(1);
    }

    /// Lets go what is held, and holds nothing more.
    pub(crate) fn release(&self) {
        self.set_behaviour(Behaviour::Served);
        self.script.0.gate.close();
    }
}

impl State {
    /// How a call of this method is answered.
    fn behaviour_of(&self, method: &str) -> Behaviour {
        let behaviour = match method {
            "record_action" => *self.record_behaviour.lock().unwrap(),
            "change_by_operator" | "resend_missing" | "resume_batch" => {
                *self.change_behaviour.lock().unwrap()
            }
            _ => *self.behaviour.lock().unwrap(),
        };
        if method == "stop"
            && let Some(next) = self.behaviour_after_stop.lock().unwrap().take()
        {
            *self.behaviour.lock().unwrap() = next;
        }
        behaviour
    }
}

#[async_trait]
impl Faults for Script {
    async fn fault(&self, method: &'static str, _: String) -> Option<Fault> {
        let behaviour = self.0.behaviour_of(method);
        if behaviour == Behaviour::Preparing && method == "sums" {
            return Some(Fault::NotDone(StoreError::Preparing));
        }
        self.0.calls.fetch_add(1, Ordering::Relaxed);
        let not_done = |error| Some(Fault::NotDone(error));
        match behaviour {
            Behaviour::Served | Behaviour::Preparing => None,
            Behaviour::Held => {
                self.0.held.send_modify(|held| *held += 1);
                // Closed, it lets all go.
                if let Ok(permit) = self.0.gate.acquire().await {
                    permit.forget();
                }
                None
            }
            Behaviour::Unavailable => not_done(StoreError::Unavailable(SECRET.into())),
            Behaviour::Overloaded => not_done(StoreError::Overloaded),
            Behaviour::Lost => Some(Fault::AnswerLost(StoreError::Unknown(SECRET.into()))),
            Behaviour::Unknown => not_done(StoreError::Unknown(SECRET.into())),
            Behaviour::Refused => not_done(StoreError::Refused(SECRET.into())),
            Behaviour::Panics => panic!("{SECRET}"),
        }
    }
}
