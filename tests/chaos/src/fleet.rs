//! The receivers and workers, which die at any time and are started again.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use sampler_testkit::Program;
use sampler_testkit::program::{Launch, RECEIVER, WORKER};
use tokio::sync::Mutex;

use crate::journal::Journal;

/// How many receivers there are.
pub(crate) const RECEIVERS: usize = 2;
/// How many workers there are.
pub(crate) const WORKERS: usize = 3;
/// How long a program may take for a stop that it is asked for.
const STOP_LIMIT: Duration = Duration::from_secs(15);
/// How long a program may take until it says that it is ready.
const READY_LIMIT: Duration = Duration::from_mins(1);

/// Where the receivers are, at the moment or before they died.
#[derive(Debug, Default)]
pub(crate) struct Addresses(RwLock<Vec<String>>);

impl Addresses {
    pub(crate) fn count(&self) -> usize {
        self.0.read().unwrap_or_else(PoisonError::into_inner).len()
    }

    pub(crate) fn get(&self, number: usize) -> String {
        let addresses = self.0.read().unwrap_or_else(PoisonError::into_inner);
        addresses.get(number).cloned().unwrap_or_default()
    }

    fn set(&self, number: usize, address: String) {
        let mut addresses = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if addresses.len() <= number {
            addresses.resize(number + 1, String::new());
        }
        addresses[number] = address;
    }
}

/// One program, which is started again and again.
#[derive(Debug)]
struct Managed {
    name: String,
    launch: Launch,
    starts: AtomicU32,
    /// None while a fault keeps it away.
    program: Mutex<Option<Program>>,
}

/// All programs.
#[derive(Debug)]
pub(crate) struct Fleet {
    programs: Vec<Managed>,
    pub(crate) receivers: Arc<Addresses>,
    journal: Arc<Journal>,
    folder: PathBuf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgramId {
    /// The receiver of that number.
    Receiver(usize),
    /// The worker of that number.
    Worker(usize),
}

impl ProgramId {
    fn place(self) -> usize {
        match self {
            Self::Receiver(number) => number % RECEIVERS,
            Self::Worker(number) => RECEIVERS + number % WORKERS,
        }
    }
}

impl Fleet {
    /// Starts all programs and waits until they are ready.
    pub(crate) async fn start(
        database: &str,
        abacus: &str,
        folder: &Path,
        journal: Arc<Journal>,
    ) -> Result<Self> {
        let launch = |name| Launch::new(name).env("DB_URI", database);
        let receivers = (0..RECEIVERS).map(|number| {
            let launch = receiver(launch(RECEIVER));
            (RECEIVER, number, database_limits(launch, number))
        });
        let workers = (0..WORKERS).map(|number| {
            let launch = worker(launch(WORKER), abacus);
            (WORKER, number, database_limits(launch, number))
        });
        let managed = |(name, number, launch): (&str, usize, Launch)| Managed {
            name: format!("{}-{number}", name.trim_start_matches("sampler-")),
            launch,
            starts: AtomicU32::new(0),
            program: Mutex::new(None),
        };
        let fleet = Self {
            programs: receivers.chain(workers).map(managed).collect(),
            receivers: Arc::default(),
            journal,
            folder: folder.to_owned(),
        };
        fleet.start_all().await?;
        fleet.wait_ready().await?;
        Ok(fleet)
    }

    /// Starts whatever does not run.
    pub(crate) async fn start_all(&self) -> Result<()> {
        for place in 0..self.programs.len() {
            self.run(place).await?;
        }
        Ok(())
    }

    async fn run(&self, place: usize) -> Result<()> {
        let managed = &self.programs[place];
        let mut program = managed.program.lock().await;
        if program.is_some() {
            return Ok(());
        }
        let start = managed.starts.fetch_add(1, Ordering::Relaxed);
        let log = self.folder.join(format!("{}.{start}.log", managed.name));
        let started = managed.launch.clone().log_file(log).start().await;
        let started = started.with_context(|| format!("starting {}", managed.name))?;
        if place < RECEIVERS {
            self.receivers.set(place, started.base_url());
        }
        *program = Some(started);
        Ok(())
    }

    /// Waits until each program says that it is ready.
    async fn wait_ready(&self) -> Result<()> {
        for managed in &self.programs {
            let program = managed.program.lock().await;
            let program = program.as_ref();
            let program = program.with_context(|| format!("{} is away", managed.name))?;
            program.until_ready(READY_LIMIT).await?;
        }
        Ok(())
    }

    /// Kills a program with SIGKILL; it stays away until [`Fleet::back`].
    pub(crate) async fn kill(&self, id: ProgramId) -> Result<()> {
        match self.programs[id.place()].program.lock().await.take() {
            Some(program) => program.kill(),
            None => Ok(()),
        }
    }

    /// Asks a program to stop, as a platform does that replaces it.
    pub(crate) async fn stop(&self, id: ProgramId) -> Result<()> {
        self.stop_at(id.place()).await
    }

    async fn stop_at(&self, place: usize) -> Result<()> {
        let managed = &self.programs[place];
        let Some(program) = managed.program.lock().await.take() else {
            return Ok(());
        };
        program.sigterm()?;
        let ended = program.wait_exit(STOP_LIMIT).await;
        let how = match &ended {
            Ok(0) => return Ok(()),
            Ok(code) => format!("it ended with code {code} when it was asked to stop"),
            Err(_) => "it did not stop when it was asked to".to_owned(),
        };
        self.journal.mistake(format!("{}: {how}", managed.name));
        program.kill()
    }

    pub(crate) async fn freeze(&self, id: ProgramId) -> Result<()> {
        match &*self.programs[id.place()].program.lock().await {
            Some(program) => program.freeze(),
            None => Ok(()),
        }
    }

    pub(crate) async fn thaw(&self, id: ProgramId) -> Result<()> {
        match &*self.programs[id.place()].program.lock().await {
            Some(program) => program.thaw(),
            None => Ok(()),
        }
    }

    /// Starts a program again.
    pub(crate) async fn back(&self, id: ProgramId) -> Result<()> {
        self.run(id.place()).await
    }

    /// Notes programs that have ended by themselves, and starts them again.
    pub(crate) async fn restart_ended(&self) -> Result<()> {
        for (place, managed) in self.programs.iter().enumerate() {
            let mut program = managed.program.lock().await;
            let Some(code) = program.as_ref().and_then(Program::exit_code) else {
                continue;
            };
            *program = None;
            drop(program);
            let name = &managed.name;
            self.journal
                .mistake(format!("{name} ended by itself with code {code}"));
            self.run(place).await?;
        }
        Ok(())
    }

    /// Stops all programs, all at the same time, for good.
    pub(crate) async fn stop_all(&self) -> Result<()> {
        let stops = (0..self.programs.len()).map(|place| self.stop_at(place));
        let stopped = futures_util::future::join_all(stops).await;
        let failed = stopped.iter().filter(|stopped| stopped.is_err()).count();
        ensure!(failed == 0, "{failed} programs could not be stopped");
        Ok(())
    }
}

/// The first of its kind waits as long as it does by default, the others are less patient, so that
/// both are met.
fn database_limits(launch: Launch, number: usize) -> Launch {
    if number == 0 {
        return launch;
    }
    launch.env("SAMPLER_DB_OPERATION_TIMEOUT", "4s")
}

fn receiver(launch: Launch) -> Launch {
    launch.env("SAMPLER_DIMENSION", "hour")
}

fn worker(launch: Launch, abacus: &str) -> Launch {
    launch
        .env("COLLECTOR_URL", abacus)
        .env("SAMPLER_DIMENSION", "hour")
        .env("PROCESS_SCHEDULE_INTERVAL", "50ms")
        .env("SAMPLER_POST_TIMEOUT", "3s")
        .env("SAMPLER_RETRY_LIMIT", "2s")
        .env("SAMPLER_SUSPEND_AFTER", "2")
        .env("SAMPLER_PROBE_INTERVAL", "40s")
        .env("SAMPLER_CONFIRM", "true")
        // So that faults of seconds count as distress.
        .env("SAMPLER_COMMIT_UPPER", "2s")
        .env("SAMPLER_COMMIT_LOWER", "1s")
}
