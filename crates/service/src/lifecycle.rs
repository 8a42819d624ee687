//! The life of a program, from its start to an orderly stop.
//!
//! A stop has two stages. The first signal (SIGTERM or SIGINT) asks to stop: the *soft* token is
//! cancelled, the program begins nothing new, and finishes the work in progress. Cloud Foundry
//! kills a program ten seconds later. So after [`DRAIN_BUDGET`] the *hard* token is cancelled,
//! unfinished work is abandoned, and the program ends within [`STOP_BUDGET`]. That is an orderly
//! end, too: another instance finds the work again. A second signal ends the program at once.

use std::time::Duration;

use tokio::runtime::Builder;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinError;
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

/// Runs a whole program: a runtime with all its threads, the signals, and `body`, which must return once the
/// soft token is cancelled and it has finished. Returns when `body` has ended, or the budget has run out, or a
/// second signal has come. The program must then exit with the returned code: 0 if all was finished, or let go of after
/// the budget; 1 after an error of `body`, which is logged here; and 128 more than the number of a second signal.
pub fn run_until_stopped<F, B>(body: B) -> u8
where
    B: FnOnce(Shutdown) -> F,
    F: Future<Output = anyhow::Result<()>> + Send + 'static,
{
    let runtime = match Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return end_of(Ok(Err(error.into()))),
    };
    let end = runtime.block_on(drive(body));
    // A thread that is stuck in a blocking call must not hold up the end.
    runtime.shutdown_background();
    end
}

async fn drive<F, B>(body: B) -> u8
where
    B: FnOnce(Shutdown) -> F,
    F: Future<Output = anyhow::Result<()>> + Send + 'static,
{
    let listened = [SignalKind::interrupt(), SignalKind::terminate()].map(signal);
    let [Ok(mut interrupt), Ok(mut terminate)] = listened else {
        return end_of(Ok(Err(anyhow::anyhow!("signals cannot be received"))));
    };
    let shutdown = Shutdown::default();
    // A task, so that what it has begun goes on where it is no longer waited for.
    let mut body = tokio::spawn(body(shutdown.clone()));
    tokio::select! {
        ended = &mut body => return end_of(ended),
        () = shutdown.soft.cancelled() => {}
        _ = next(&mut interrupt, &mut terminate) => {}
    }
    tracing::info!("stopping");
    shutdown.begin();
    let drained = async {
        if let Ok(ended) = timeout(DRAIN_BUDGET, &mut body).await {
            return end_of(ended);
        }
        tracing::warn!(code = "program.stop_timeout", "the time to stop is over");
        shutdown.hard.cancel();
        let ended = timeout(LETTING_GO, &mut body).await;
        end_of(ended.unwrap_or(Ok(Ok(()))))
    };
    tokio::select! {
        end = drained => end,
        end = next(&mut interrupt, &mut terminate) => {
            tracing::warn!(code = "program.second_signal", "a second signal: ending at once");
            end
        }
    }
}

/// Waits for a signal, and returns the code of the end that a second one is.
async fn next(interrupt: &mut Signal, terminate: &mut Signal) -> u8 {
    tokio::select! {
        _ = interrupt.recv() => 130,
        _ = terminate.recv() => 143,
    }
}

fn end_of(ended: Result<anyhow::Result<()>, JoinError>) -> u8 {
    // Of a panic, the hook has logged what it said.
    let Err(error) = ended.map_err(anyhow::Error::from).flatten() else {
        tracing::info!("stopped");
        return 0;
    };
    tracing::error!(
        code = "program.failed",
        error = format!("{error:#}"),
        "the program failed"
    );
    1
}
