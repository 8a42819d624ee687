//! The processes: receivers and workers that run, crash, freeze and are replaced.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::Body;
use axum::http::Request;
use http_body_util::BodyExt;
use sampler_domain::Timestamp;
use sampler_receiver::{Parts as ReceiverParts, Receiver};
use sampler_service::environment::{Clock, Random};
use sampler_service::http::Site;
use sampler_service::security::Authenticator;
use sampler_steering::DatabaseClock;
use sampler_testkit::rng::{Rng, SharedRng};
use sampler_worker::{IgnoreProgress, Parts, Worker};
use tokio::task::{AbortHandle, JoinHandle};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::conditions::CallRng;
use super::lifecycle::{Lifecycle, ProcessState};
use super::mutant::Mutant;
use super::op::{Process, ProcessFault};
use super::store::{Connection, SimStore};
use super::upstream::SimUpstream;
use super::world::World;

/// The clock of one machine: it is wrong by as much as the run says.
struct ProcessClock {
    world: Arc<World>,
    error: Arc<AtomicI64>,
}

impl Clock for ProcessClock {
    fn now(&self) -> Timestamp {
        self.world.now().plus(self.error.load(Ordering::Relaxed))
    }
}

/// The random bytes of one process.
#[derive(Debug)]
pub(crate) struct SeededRandom(SharedRng);

impl SeededRandom {
    pub(crate) fn new(mut rng: Rng) -> Self {
        Self(SharedRng::new(rng.u64()))
    }
}

impl Random for SeededRandom {
    fn fill(&self, bytes: &mut [u8]) {
        self.0.fill(bytes);
    }
}

/// What an answer says: the status, whether it is a replay, the body.
pub(crate) struct HttpAnswer {
    pub(crate) status: u16,
    pub(crate) replayed: bool,
    pub(crate) body: Vec<u8>,
}

/// One place for a process, and the process that runs there now.
pub(crate) struct Node {
    world: Arc<World>,
    process: Process,
    clock_error: Arc<AtomicI64>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// How many processes have run here.
    count: u64,
    running: Option<Running>,
    /// Workers that are shutting down.
    leaving: Vec<(Arc<Lifecycle>, JoinHandle<()>)>,
}

struct Running {
    life: Arc<Lifecycle>,
    body: Program,
}

enum Program {
    Receiver {
        receiver: Arc<Receiver>,
        clock: Arc<DatabaseClock>,
        site: Site,
        requests: Vec<AbortHandle>,
    },
    Worker {
        stop: CancellationToken,
        task: JoinHandle<()>,
    },
}

impl Node {
    pub(crate) fn new(world: &Arc<World>, process: Process) -> Arc<Self> {
        let node = Arc::new(Self {
            world: Arc::clone(world),
            process,
            clock_error: Arc::default(),
            state: Mutex::default(),
        });
        node.start(false);
        node
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().expect("nobody panics with it")
    }

    /// Sets the error of the clock, ms.
    pub(crate) fn set_clock(&self, error: i64) {
        self.clock_error.store(error, Ordering::Relaxed);
    }

    /// Starts a process, unless one is running.
    pub(crate) fn start(&self, renamed: bool) {
        let mut state = self.state();
        if state.running.is_none() {
            state.count += 1;
            state.running = Some(self.run(state.count, renamed));
        }
    }

    /// Runs the process with this number of those that have run here.
    fn run(&self, count: u64, renamed: bool) -> Running {
        let life = Arc::new(Lifecycle::new());
        let (kind, number) = match self.process {
            Process::Receiver(number) => ("receiver", number),
            Process::Worker(number) => ("worker", number),
        };
        let process = format!("{kind}-{number}");
        let name = if renamed {
            format!("{process}-{count}")
        } else {
            process
        };
        let row_of_run = |count: u64, part: u64| {
            let kind = u64::from(kind == "worker");
            let place = [kind, number as u64, count, part];
            let name = place.iter().fold(1, |all, part| all * 1_000 + part);
            Rng::new(self.world.setup.seed, name)
        };
        let row = |part| row_of_run(count, part);
        self.world.log(&name, || "starts".to_owned());
        let link = Arc::new(SimStore::new(Connection {
            world: Arc::clone(&self.world),
            name: name.clone(),
            life: Arc::clone(&life),
            call_rng: Arc::new(CallRng::new(row(0))),
            clock_error: Arc::clone(&self.clock_error),
        }));
        let clock = Arc::new(ProcessClock {
            world: Arc::clone(&self.world),
            error: Arc::clone(&self.clock_error),
        });
        // Its first number is the id of the run.
        let is_same_run = self.world.setup.mutant == Mutant::RunOutlivesProcess;
        let random = row_of_run(if is_same_run { 1 } else { count }, 1);
        let random: Arc<dyn Random> = Arc::new(SeededRandom::new(random));
        let options = &mut row(2);
        let body = match self.process {
            Process::Receiver(_) => {
                let options = self.world.setup.receiver(options);
                let clock = DatabaseClock::new(clock);
                let parts = ReceiverParts {
                    events: link.clone(),
                    reading: self.world.store.clone(),
                    operating: link,
                    provisioning: None,
                    clock: clock.clone(),
                    random,
                };
                let receiver = Receiver::new(parts, options);
                receiver.set_prepared();
                let api = Arc::clone(&receiver).routes(Authenticator::none());
                let site = Site::new(api);
                Program::Receiver {
                    receiver,
                    clock,
                    site,
                    requests: Vec::new(),
                }
            }
            Process::Worker(_) => {
                let upstream = SimUpstream {
                    world: Arc::clone(&self.world),
                    name: name.clone(),
                    life: Arc::clone(&life),
                    call_rng: CallRng::new(row(3)),
                };
                let parts = Parts {
                    work: link.clone(),
                    ledger: link.clone(),
                    operating: link,
                    upstream: Arc::new(upstream),
                    clock,
                    random,
                    processing_progress: Arc::new(IgnoreProgress),
                    cleanup_progress: Arc::new(IgnoreProgress),
                };
                let stop = CancellationToken::new();
                let options = self.world.setup.worker(name, options);
                let worker = Worker::new(parts, options, stop.clone());
                let task = tokio::spawn(async move { worker.run().await });
                Program::Worker { stop, task }
            }
        };
        Running { life, body }
    }

    pub(crate) fn inject(self: &Arc<Self>, fault: ProcessFault) {
        if self.world.is_over() {
            return;
        }
        let running = self
            .state()
            .running
            .as_ref()
            .map(|one| Arc::clone(&one.life));
        let Some(life) = running else {
            return;
        };
        let node = Arc::clone(self);
        let soon = Duration::from_millis(2 * self.world.setup.scale.length.unsigned_abs());
        match fault {
            ProcessFault::Crash {
                checkpoints,
                down,
                renamed,
            } => {
                life.set_after(checkpoints, ProcessState::Dead);
                tokio::spawn(async move {
                    let _ = timeout(soon, life.wait_for(ProcessState::Dead)).await;
                    if node.crash(&life) {
                        node.world.sleep(down).await;
                        // Once faults have ended, each place has a process already.
                        if !node.world.is_over() {
                            node.start(renamed);
                        }
                    }
                });
            }
            ProcessFault::Replace { renamed } => {
                self.retire();
                self.start(renamed);
            }
            ProcessFault::Freeze {
                checkpoints,
                length,
            } => {
                life.set_after(checkpoints, ProcessState::Frozen);
                tokio::spawn(async move {
                    let _ = timeout(soon, life.wait_for(ProcessState::Frozen)).await;
                    if !node.world.is_over() {
                        life.set(ProcessState::Frozen);
                        node.world.sleep(length).await;
                    }
                    life.set(ProcessState::Running);
                });
            }
        }
    }

    /// The process crashes, whatever it does. Returns whether it was there to crash. Once faults
    /// have ended, only a process that is dead already crashes.
    fn crash(&self, life: &Arc<Lifecycle>) -> bool {
        let mut state = self.state();
        let spared = self.world.is_over() && life.stage() != ProcessState::Dead;
        let Some(running) = state
            .running
            .take_if(|one| !spared && Arc::ptr_eq(&one.life, life))
        else {
            return false;
        };
        drop(state);
        self.world.count("crashes");
        running.life.set(ProcessState::Dead);
        match running.body {
            Program::Receiver { requests, .. } => requests.iter().for_each(AbortHandle::abort),
            // The spans that it drives are tasks of their own: their next call never returns.
            Program::Worker { task, .. } => task.abort(),
        }
        true
    }

    /// The process shuts down: it finishes what it has begun.
    fn retire(&self) {
        let mut state = self.state();
        if let Some(Running {
            life,
            body: Program::Worker { stop, task },
        }) = state.running.take()
        {
            stop.cancel();
            state.leaving.push((life, task));
        }
    }

    /// Hands a request to the receiver that runs here; none where nothing listens.
    pub(crate) fn request(&self, request: Request<Body>) -> Option<JoinHandle<HttpAnswer>> {
        let mut state = self.state();
        let Some(Running {
            life,
            body:
                Program::Receiver {
                    receiver,
                    clock,
                    site,
                    requests,
                },
        }) = &mut state.running
        else {
            return None;
        };
        let (life, site) = (Arc::clone(life), site.clone());
        let (receiver, clock) = (Arc::clone(receiver), Arc::clone(clock));
        let now = self.world.database_now();
        let task = tokio::spawn(async move {
            clock.note(Instant::now(), now);
            receiver.steering.poll().await;
            life.checkpoint().await;
            let (parts, body) = site.answer(request).await.into_parts();
            let body = body
                .collect()
                .await
                .expect("the body is at hand")
                .to_bytes();
            life.checkpoint().await;
            HttpAnswer {
                status: parts.status.as_u16(),
                replayed: parts.headers.contains_key("idempotent-replayed"),
                body: body.to_vec(),
            }
        });
        requests.retain(|request| !request.is_finished());
        requests.push(task.abort_handle());
        Some(task)
    }

    /// Ends all faults: a process runs here, is not frozen, and has the right time.
    pub(crate) fn heal(&self) {
        self.set_clock(0);
        let running = self
            .state()
            .running
            .as_ref()
            .map(|one| Arc::clone(&one.life));
        match running {
            Some(life) if life.stage() == ProcessState::Dead => _ = self.crash(&life),
            Some(life) => life.set(ProcessState::Running),
            None => {}
        }
        self.state().leaving.retain(|(life, task)| {
            life.set(ProcessState::Running);
            let is_dead = life.stage() == ProcessState::Dead;
            if is_dead {
                task.abort();
            }
            !is_dead
        });
        self.start(false);
    }

    /// Tells the process to stop.
    pub(crate) fn stop(&self) {
        self.retire();
    }

    /// Whether every worker that was asked to shut down has ended.
    pub(crate) fn is_at_rest(&self) -> bool {
        let state = self.state();
        state.running.is_none() && state.leaving.iter().all(|(_, task)| task.is_finished())
    }
}
