//! The life of a program, from its start to an orderly stop.
//!
//! A stop has two stages. The first signal (SIGTERM or SIGINT) asks to stop: the *soft* token is
//! cancelled, the program begins nothing new, and finishes the work in progress. Cloud Foundry
//! kills a program ten seconds later. So after [`DRAIN_BUDGET`] the *hard* token is cancelled,
//! unfinished work is abandoned, and the program ends within [`STOP_BUDGET`]. That is an orderly
//! end, too: another instance finds the work again. A second signal ends the program at once.

use std::collections::BTreeMap;
use std::future::Future;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context;
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::settings::EXIT_SETTINGS;

/// How long a program may take to end once it was asked to.
pub const STOP_BUDGET: Duration = Duration::from_secs(8);

/// The part of [`STOP_BUDGET`] in which the program finishes the work in progress.
pub const DRAIN_BUDGET: Duration = Duration::from_secs(7);

/// For tasks that must give up. The rest of the budget is for ending the program itself, on a
/// machine that is busy with other things.
const LETTING_GO: Duration = Duration::from_millis(300);

/// A request to stop, and all that has to hear of it. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Shutdown {
    soft: CancellationToken,
    hard: CancellationToken,
    tasks: TaskTracker,
    names: Arc<Mutex<BTreeMap<&'static str, usize>>>,
}

impl Shutdown {
    pub fn new() -> Self {
        Self::default()
    }

    /// Cancelled when the program must take no new work.
    pub fn soft(&self) -> &CancellationToken {
        &self.soft
    }

    /// Cancelled when the program must abandon unfinished work.
    pub fn hard(&self) -> &CancellationToken {
        &self.hard
    }

    pub fn is_stopping(&self) -> bool {
        self.soft.is_cancelled()
    }

    /// Asks to stop, as a signal does.
    pub fn begin(&self) {
        self.soft.cancel();
    }

    /// Runs `task` as one that the program waits for before it ends. The name is for the log,
    /// where the task is still running when the budget has run out.
    pub fn spawn<F>(&self, name: &'static str, task: F) -> JoinHandle<F::Output>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        let entry = Entry::new(self.names.clone(), name);
        self.tasks.spawn(async move {
            let _entry = entry;
            task.await
        })
    }

    /// The names of the tasks that are still running, and how many of each.
    pub fn running(&self) -> BTreeMap<&'static str, usize> {
        self.names
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    async fn drained(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }
}

/// Keeps a running task on the list of names.
struct Entry {
    names: Arc<Mutex<BTreeMap<&'static str, usize>>>,
    name: &'static str,
}

impl Entry {
    fn new(names: Arc<Mutex<BTreeMap<&'static str, usize>>>, name: &'static str) -> Self {
        *names
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .entry(name)
            .or_default() += 1;
        Self { names, name }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = names.get_mut(self.name) {
            *count -= 1;
            if *count == 0 {
                names.remove(self.name);
            }
        }
    }
}

/// A signal that asks to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// SIGINT: somebody pressed Ctrl-C.
    Interrupt,
    /// SIGTERM: the platform wants the place.
    Terminate,
}

/// A setting is wrong, and only showed so when it was used. A program that fails with it ends with
/// the exit code of wrong settings.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct UnusableSettings(String);

impl UnusableSettings {
    /// `mistake` says what is wrong, and which setting would mend it.
    pub fn new(mistake: &dyn std::fmt::Display) -> Self {
        Self(mistake.to_string())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// All was finished, or let go of after the budget.
    Orderly,
    /// The program could not continue; the log says why.
    Failed,
    /// A setting turned out to be wrong ([`UnusableSettings`]); the log says which.
    Unusable,
    /// A second signal came.
    Forced(Signal),
}

impl End {
    pub fn code(self) -> u8 {
        match self {
            Self::Orderly => 0,
            Self::Failed => 1,
            Self::Unusable => EXIT_SETTINGS,
            Self::Forced(Signal::Interrupt) => 130,
            Self::Forced(Signal::Terminate) => 143,
        }
    }
}

impl From<End> for ExitCode {
    fn from(end: End) -> Self {
        Self::from(end.code())
    }
}

/// Runs a whole program: a runtime with all its threads, the signals, and `body`, which must return
/// once the soft token is cancelled and it has finished. Returns when all tasks that were spawned on
/// [`Shutdown`] have ended, or the budget has run out, or a second signal has come. The program must
/// then exit with the code of the returned value.
///
/// An error of `body` is logged here, the other tasks are asked to stop, and the code is 1, or 64
/// where the error is [`UnusableSettings`].
pub fn run_until_stopped<F, B>(body: B) -> End
where
    B: FnOnce(Shutdown) -> F,
    F: Future<Output = anyhow::Result<()>> + Send + 'static,
{
    let runtime = match Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            tracing::error!(code = "program.runtime", error = %error, "could not start a runtime");
            return End::Failed;
        }
    };
    let end = runtime.block_on(async {
        let shutdown = Shutdown::new();
        match signals() {
            Ok(signals) => drive(body(shutdown.clone()), signals, &shutdown).await,
            Err(error) => {
                tracing::error!(
                    code = "program.signals",
                    error = format!("{error:#}"),
                    "could not listen for signals"
                );
                End::Failed
            }
        }
    });
    // A thread that is stuck in a blocking call must not hold up the end.
    runtime.shutdown_background();
    end
}

/// The signals of this process, as they come, from now on.
fn signals() -> anyhow::Result<mpsc::Receiver<Signal>> {
    let mut interrupt = signal(SignalKind::interrupt()).context("listening for SIGINT")?;
    let mut terminate = signal(SignalKind::terminate()).context("listening for SIGTERM")?;
    let (sender, receiver) = mpsc::channel(2);
    tokio::spawn(async move {
        loop {
            let signal = tokio::select! {
                _ = interrupt.recv() => Signal::Interrupt,
                _ = terminate.recv() => Signal::Terminate,
            };
            if sender.send(signal).await.is_err() {
                return;
            }
        }
    });
    Ok(receiver)
}

/// The same with signals from anywhere, for tests.
async fn drive<F>(body: F, mut signals: mpsc::Receiver<Signal>, shutdown: &Shutdown) -> End
where
    F: Future<Output = anyhow::Result<()>> + Send + 'static,
{
    let mut body = Body::new(shutdown.spawn("program", body));
    tokio::select! {
        () = body.finished() => {}
        () = shutdown.soft.cancelled() => tracing::info!("stopping"),
        signal = next(&mut signals) => tracing::info!(signal = ?signal, "stopping"),
    }
    shutdown.begin();
    tokio::select! {
        end = drain(&mut body, shutdown) => end,
        signal = next(&mut signals) => {
            tracing::warn!(code = "program.second_signal", signal = ?signal, "a second signal: ending at once");
            End::Forced(signal)
        }
    }
}

/// Finishes within the budget, or lets go.
async fn drain(body: &mut Body, shutdown: &Shutdown) -> End {
    {
        let finish = async {
            body.finished().await;
            shutdown.drained().await;
        };
        tokio::pin!(finish);
        if timeout(DRAIN_BUDGET, &mut finish).await.is_err() {
            let left: Vec<_> = shutdown
                .running()
                .iter()
                .map(|(name, count)| format!("{count} {name}"))
                .collect();
            tracing::warn!(
                code = "program.stop_timeout",
                left = left.join(", "),
                "the time to stop is over"
            );
            shutdown.hard.cancel();
            let _ = timeout(LETTING_GO, finish).await;
        }
    }
    if body.end == End::Orderly {
        tracing::info!("stopped");
    }
    body.end
}

/// The next signal; never, where no more can come.
async fn next(signals: &mut mpsc::Receiver<Signal>) -> Signal {
    match signals.recv().await {
        Some(signal) => signal,
        None => std::future::pending().await,
    }
}

/// The body of a program, and its result.
struct Body {
    handle: Option<JoinHandle<anyhow::Result<()>>>,
    end: End,
}

impl Body {
    fn new(handle: JoinHandle<anyhow::Result<()>>) -> Self {
        Self {
            handle: Some(handle),
            end: End::Orderly,
        }
    }

    /// Waits for its end. Can be given up and asked again.
    async fn finished(&mut self) {
        let Some(handle) = &mut self.handle else {
            return;
        };
        let result = handle.await;
        self.handle = None;
        let error = match result {
            Ok(Ok(())) => return,
            Ok(Err(error)) if error.is::<UnusableSettings>() => {
                self.end = End::Unusable;
                format!("{error:#}")
            }
            Ok(Err(error)) => {
                self.end = End::Failed;
                format!("{error:#}")
            }
            // The hook has logged what the panic said.
            Err(error) => {
                self.end = End::Failed;
                error.to_string()
            }
        };
        tracing::error!(code = "program.failed", error, "the program failed");
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;
    use tokio::time::{Instant, sleep};

    use super::*;

    /// Drives `body`, with a sender for signals.
    fn driven<F>(
        body: impl FnOnce(Shutdown) -> F,
    ) -> (mpsc::Sender<Signal>, Shutdown, JoinHandle<End>)
    where
        F: Future<Output = anyhow::Result<()>> + Send + 'static,
    {
        let (sender, signals) = mpsc::channel(2);
        let shutdown = Shutdown::new();
        let (body, of_program) = (body(shutdown.clone()), shutdown.clone());
        let end = tokio::spawn(async move { drive(body, signals, &of_program).await });
        (sender, shutdown, end)
    }

    async fn until_stopped(shutdown: Shutdown) -> anyhow::Result<()> {
        shutdown.soft().cancelled().await;
        Ok(())
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_signal_asks_and_what_was_taken_in_is_finished() {
        let (signals, shutdown, end) = driven(until_stopped);
        let (finished, seen) = oneshot::channel();
        shutdown.spawn("slow task", async move {
            sleep(Duration::from_secs(6)).await;
            finished.send(()).unwrap();
        });
        assert!(!shutdown.is_stopping());
        signals.send(Signal::Terminate).await.unwrap();
        assert_eq!(end.await.unwrap(), End::Orderly);
        assert!(shutdown.is_stopping());
        assert!(!shutdown.hard().is_cancelled());
        seen.await.expect("the task was finished");
        assert!(shutdown.running().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_left_after_the_budget_is_let_go_and_the_end_is_orderly() {
        let (signals, shutdown, end) = driven(until_stopped);
        shutdown.spawn("stuck task", std::future::pending::<()>());
        let before = Instant::now();
        signals.send(Signal::Terminate).await.unwrap();
        assert_eq!(end.await.unwrap(), End::Orderly);
        assert!(shutdown.hard().is_cancelled());
        let took = before.elapsed();
        assert!(took >= DRAIN_BUDGET && took < STOP_BUDGET, "{took:?}");
        assert_eq!(shutdown.running(), BTreeMap::from([("stuck task", 1)]));
    }

    #[tokio::test(start_paused = true)]
    async fn those_who_heed_the_hard_token_end_before_the_program_does() {
        let (signals, shutdown, end) = driven(until_stopped);
        let hard = shutdown.hard().clone();
        shutdown.spawn("obedient task", async move { hard.cancelled().await });
        signals.send(Signal::Interrupt).await.unwrap();
        assert_eq!(end.await.unwrap(), End::Orderly);
        assert!(shutdown.running().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_second_signal_ends_at_once() {
        for (signal, code) in [(Signal::Interrupt, 130), (Signal::Terminate, 143)] {
            let (signals, shutdown, end) = driven(until_stopped);
            shutdown.spawn("stuck task", std::future::pending::<()>());
            let before = Instant::now();
            signals.send(Signal::Terminate).await.unwrap();
            signals.send(signal).await.unwrap();
            let end = end.await.unwrap();
            assert_eq!((end, end.code()), (End::Forced(signal), code));
            assert!(before.elapsed() < Duration::from_secs(1));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_stops_the_rest_and_is_told() {
        let (_signals, shutdown, end) = driven(|_| async { anyhow::bail!("no port") });
        let soft = shutdown.soft().clone();
        shutdown.spawn("other task", async move { soft.cancelled().await });
        let end = end.await.unwrap();
        assert_eq!((end, end.code()), (End::Failed, 1));
        assert!(shutdown.running().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_panic_of_the_program_is_a_failure() {
        let (_signals, _stop, end) = driven(|_| async { panic!("on purpose") });
        assert_eq!(end.await.unwrap(), End::Failed);
    }

    #[tokio::test(start_paused = true)]
    async fn a_program_can_ask_itself_and_has_the_same_budget() {
        let (_signals, shutdown, end) = driven(|_| std::future::pending());
        shutdown.begin();
        assert_eq!(end.await.unwrap(), End::Orderly);
        assert_eq!(shutdown.running(), BTreeMap::from([("program", 1)]));
    }

    #[tokio::test(start_paused = true)]
    async fn a_program_that_is_done_ends_without_being_asked() {
        let (_signals, _stop, end) = driven(|_| async { Ok(()) });
        let end = end.await.unwrap();
        assert_eq!((end, end.code()), (End::Orderly, 0));
    }

    #[tokio::test]
    async fn a_name_goes_from_the_list_however_its_task_ends() {
        let shutdown = Shutdown::new();
        let (panicking, aborted) = (
            shutdown.spawn("task", async { panic!("on purpose") }),
            shutdown.spawn("task", std::future::pending::<()>()),
        );
        assert_eq!(shutdown.running(), BTreeMap::from([("task", 2)]));
        aborted.abort();
        let _ = (panicking.await, aborted.await);
        assert!(shutdown.running().is_empty());
    }
}
