//! Ctrl-C while a file is sent.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;

use indicatif::HumanCount;
use sampler_verify::words::{counted, form};
use serde_json::json;
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};

use crate::output::tell_interruption;

/// The exit code of a program that a signal ends begins here.
const EXIT_SIGNAL: i32 = 128;

/// How far a command is, in case it is interrupted.
#[derive(Clone, Debug)]
pub(crate) struct Done {
    /// Events that are kept or refused.
    pub(super) events: Arc<AtomicU64>,
    /// Whether a journal says so, too.
    pub(super) is_noted: bool,
}

/// Says how to continue if the user or the system ends this command. A thread of its own waits for
/// that: the command may be waiting for its input. It may be ended at any time without harm.
pub(super) fn tell_how_to_go_on(name: String, done: Done) {
    let (ready, is_ready) = mpsc::channel();
    thread::spawn(move || {
        let runtime = Builder::new_current_thread().enable_io().build();
        let Ok(runtime) = runtime else { return };
        let number = runtime.block_on(interrupted(&ready));
        let Some(number) = number else { return };
        let exit_code = EXIT_SIGNAL + number;
        let message = done.words(&name);
        tell_interruption(
            &message,
            &json!({ "message": message, "exit_code": exit_code }),
        );
        std::process::exit(exit_code);
    });
    // From now on, or never.
    let _ = is_ready.recv();
}

/// The number of the signal; none if signals cannot be waited for.
async fn interrupted(ready: &mpsc::Sender<()>) -> Option<i32> {
    let (interrupt, terminate) = (SignalKind::interrupt(), SignalKind::terminate());
    let mut interrupts = signal(interrupt).ok()?;
    let mut terminations = signal(terminate).ok()?;
    ready.send(()).ok()?;
    let kind = tokio::select! {
        _ = interrupts.recv() => interrupt,
        _ = terminations.recv() => terminate,
    };
    Some(kind.as_raw_value())
}

impl Done {
    fn words(&self, name: &str) -> String {
        let events = self.events.load(Ordering::SeqCst);
        let is_done = form(events, "is done", "are done");
        let events = counted(HumanCount(events), "event");
        let how = if self.is_noted {
            "the same command continues from there"
        } else {
            "sent again, they change nothing if their times do not count from now"
        };
        format!("interrupted: {events} of {name} {is_done}; {how}")
    }
}
