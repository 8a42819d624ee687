//! Whether every stopped span gets complete once faults cease and no more events come.

use std::collections::HashSet;
use std::sync::{PoisonError, RwLock};

use sampler_domain::{CauseId, Entry, Resend, SpanId, Timestamp};
use sampler_store::KeptCause;
use sampler_store_testing::hash_of;

use crate::protocol::Protocol;
use crate::state::{History, Provider, State, Worker};
use crate::{resend, worker};

/// More steps than any span of a scenario needs to its end.
const STEPS_MAX: usize = 200;

/// More rounds of probes and going on than any cause needs.
const ROUNDS_MAX: usize = 8;

/// The states from which all has been driven to its end, by their hashes. Many states differ only in what
/// happened before, or come to the same once the workers have nothing in hand.
#[derive(Debug, Default)]
pub(crate) struct Proven {
    begun: Found,
    in_hand_done: Found,
}

#[derive(Debug, Default)]
struct Found(RwLock<HashSet<u64>>);

impl Found {
    /// Whether it holds for a state, which is found out once.
    fn holds(&self, state: &State, find_out: impl FnOnce() -> bool) -> bool {
        let hash = hash_of(state);
        let found = self.0.read().unwrap_or_else(PoisonError::into_inner);
        if found.contains(&hash) {
            return true;
        }
        drop(found);
        let holds = find_out();
        if holds {
            let mut found = self.0.write().unwrap_or_else(PoisonError::into_inner);
            found.insert(hash);
        }
        holds
    }
}

impl State {
    /// What is to be driven on: all but the provider, which sends nothing more, and what the properties alone
    /// look at. Left out, neither can play a role in what becomes of the rest.
    fn without_past(&self) -> Self {
        Self {
            now: self.now,
            provider: Provider {
                event: 0,
                answered: false,
                sent: Vec::new(),
            },
            table: self.table.clone(),
            workers: self.workers.clone(),
            resender: self.resender.clone(),
            in_flight: self.in_flight.clone(),
            counted: self.counted.clone(),
            aside: self.aside.clone(),
            fresh: self.fresh.clone(),
            remembered: self.remembered.clone(),
            confirmer: self.confirmer.clone(),
            history: History {
                posts: self.history.posts,
                ..History::default()
            },
        }
    }
}

impl Protocol {
    /// What becomes of a state if no more faults happen and no more events come: what is on its
    /// way arrives, the workers end what they have in hand, with whatever they remember, and all
    /// that is due is driven, long after the end of the scenario. Whether every span with an end is
    /// complete by then.
    pub(crate) fn ends_complete(&self, state: &State) -> bool {
        let state = state.without_past();
        self.proven.begun.holds(&state, || {
            let mut state = state.clone();
            for worker in 0..state.workers.len() {
                self.run(&mut state, worker);
            }
            let moments = &self.scenario.moments;
            state.now = moments[moments.len() - 1].plus(self.scenario.retry.max(60_000));
            state.fresh.clear();
            self.proven.in_hand_done.holds(&state, || {
                let mut rest = state.clone();
                self.drive_to_rest(&mut rest);
                is_complete(&rest)
            })
        })
    }

    /// Drives all that is due, and what is suspended.
    fn drive_to_rest(&self, state: &mut State) {
        for _ in 0..ROUNDS_MAX {
            self.drive_all(state);
            // Those of a worker that slept between keeping its cause and suspending its span.
            let table = state.table.make_mut();
            table.register_missing(Timestamp::MIN, Timestamp::MIN);
            let suspended = |cause: &&KeptCause| table.count_suspended(cause.id) > 0;
            let causes = table.causes().filter(suspended).map(|cause| cause.id);
            let causes: Vec<CauseId> = causes.collect();
            if causes.is_empty() {
                break;
            }
            for cause in causes {
                self.look_after(state, cause);
            }
        }
        resend::run(&self.scenario, state);
    }

    /// Drives all that is due and has an end.
    fn drive_all(&self, state: &mut State) {
        for _ in 0..STEPS_MAX {
            let has_end = |id: &SpanId| state.table.find(id).is_some_and(|span| span.end.is_some());
            let Some(span) = worker::due(state).into_iter().find(has_end) else {
                break;
            };
            worker::read(&self.scenario, state, 0, &span);
            self.run(state, 0);
        }
    }

    /// Lets one worker go on until it has nothing in hand.
    fn run(&self, state: &mut State, worker: usize) {
        for _ in 0..STEPS_MAX {
            while let Some(message) = state.in_flight.pop_first() {
                worker::arrive(&self.scenario, state, &message);
            }
            if !worker::can_step(state, &state.workers[worker]) {
                // Its post has taken no effect, and never will.
                state.workers[worker] = Worker::Idle;
                return;
            }
            worker::step(&self.scenario, state, worker);
        }
    }
}

/// Whether every span with an end is complete, and nothing is left marked that could be sent again.
fn is_complete(rest: &State) -> bool {
    // Spans without an end are not driven on.
    let is_open = |id| rest.table.find(id).is_some_and(|span| span.end.is_none());
    // What takes back a usage that was set aside once more waits until that is sent again.
    let waits = |entry: &Entry, resend: &Resend| {
        resend.acceptance.is_none() && rest.table.takes_back_uncounted(entry)
    };
    let mut entries = rest.table.entries().map(|kept| &kept.entry);
    let marks_go = entries.all(|entry| {
        let mut left = entry.resend.iter();
        left.all(|resend| is_open(&entry.span) || waits(entry, resend))
    });
    let mut spans = rest.table.all().map(|kept| &kept.span);
    marks_go && spans.all(|span| span.end.is_none() || span.processing.complete)
}
