//! The life of a program, from its start to an orderly stop.
//!
//! A stop has two stages. The first signal (SIGTERM or SIGINT) asks to stop: the *soft* token is
//! cancelled, the program begins nothing new, and finishes the work in progress. Cloud Foundry
//! kills a program ten seconds later. So after [`DRAIN_BUDGET`] the *hard* token is cancelled,
//! unfinished work is abandoned, and the program ends within [`STOP_BUDGET`]. That is an orderly
//! end, too: another instance finds the work again. A second signal ends the program at once.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use tokio::runtime::Builder;
use tokio::signal::unix::{self, SignalKind, signal};
use tokio::task::{JoinError, JoinHandle};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// The exit code after a wrong command line or wrong settings (`EX_USAGE`).
pub const EXIT_SETTINGS: u8 = 64;

/// How long a program may take to end once it was asked to.
pub const STOP_BUDGET: Duration = Duration::from_secs(8);

/// The part of [`STOP_BUDGET`] in which the program finishes the work in progress.
pub const DRAIN_BUDGET: Duration = Duration::from_secs(7);

/// For what must give up. The rest of the budget is for ending the program itself, on a machine that is busy
/// with other things.
const LETTING_GO: Duration = Duration::from_millis(300);

/// A request to stop, and all that has to hear of it. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Shutdown {
    soft: CancellationToken,
    hard: CancellationToken,
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

/// Runs a whole program: a runtime with all its threads, the signals, and `body`, which must return once the
/// soft token is cancelled and it has finished. Returns when `body` has ended, or the budget has run out, or a
/// second signal has come. The program must then exit with the code of the returned value.
///
/// An error of `body` is logged here, and the code is 1, or 64 where the error is [`UnusableSettings`].
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
        match Signals::listen() {
            Ok(signals) => drive(body, signals).await,
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

/// The signals of this process.
struct Signals {
    interrupt: unix::Signal,
    terminate: unix::Signal,
}

impl Signals {
    fn listen() -> anyhow::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt()).context("listening for SIGINT")?,
            terminate: signal(SignalKind::terminate()).context("listening for SIGTERM")?,
        })
    }

    async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.interrupt.recv() => Signal::Interrupt,
            _ = self.terminate.recv() => Signal::Terminate,
        }
    }
}

/// A body under way. It is a task, so that what it has begun goes on where it is no longer waited for.
type Body = JoinHandle<anyhow::Result<()>>;

async fn drive<F, B>(body: B, mut signals: Signals) -> End
where
    B: FnOnce(Shutdown) -> F,
    F: Future<Output = anyhow::Result<()>> + Send + 'static,
{
    let shutdown = Shutdown::new();
    let mut body = tokio::spawn(body(shutdown.clone()));
    tokio::select! {
        ended = &mut body => return end_of(ended),
        () = shutdown.soft.cancelled() => tracing::info!("stopping"),
        signal = signals.next() => tracing::info!(signal = ?signal, "stopping"),
    }
    shutdown.begin();
    tokio::select! {
        end = drain(&mut body, &shutdown) => end,
        signal = signals.next() => {
            tracing::warn!(code = "program.second_signal", signal = ?signal, "a second signal: ending at once");
            End::Forced(signal)
        }
    }
}

/// Finishes within the budget, or lets go.
async fn drain(body: &mut Body, shutdown: &Shutdown) -> End {
    if let Ok(ended) = timeout(DRAIN_BUDGET, &mut *body).await {
        return end_of(ended);
    }
    tracing::warn!(code = "program.stop_timeout", "the time to stop is over");
    shutdown.hard.cancel();
    let ended = timeout(LETTING_GO, body).await;
    end_of(ended.unwrap_or(Ok(Ok(()))))
}

fn end_of(ended: Result<anyhow::Result<()>, JoinError>) -> End {
    let (end, error) = match ended {
        Ok(Ok(())) => {
            tracing::info!("stopped");
            return End::Orderly;
        }
        Ok(Err(error)) if error.is::<UnusableSettings>() => (End::Unusable, format!("{error:#}")),
        Ok(Err(error)) => (End::Failed, format!("{error:#}")),
        // The hook has logged what the panic said.
        Err(error) => (End::Failed, error.to_string()),
    };
    tracing::error!(code = "program.failed", error, "the program failed");
    end
}
