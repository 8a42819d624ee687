//! Group commit: writes that are in flight at the same time share one command.
//!
//! A command that waits for the journals of a majority costs about the same for one write as for
//! many. So writes gather while others of their kind are in flight. When one of a few permits for a
//! command is free, the next command takes up to an even share of all writes without an answer: 64 to 256
//! of them, and 4 MB. There is no timer: a write that arrives alone is sent alone, at once.
//!
//! Each caller gets its own answer. Sometimes the answer to the command is not enough: a unique index
//! refused a write, or an update matched nothing. Then a read finds out what happened to the write. A write
//! that is still undecided goes into another command. That is safe: each write has an id of its own, which
//! refuses a second attempt and by which a read finds it. If the answer to a command is lost, its writes
//! have none: the callers ask again.

mod settle;
#[cfg(test)]
mod tests;
mod writes;

use std::collections::VecDeque;
use std::fmt::Debug;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};
use tracing::{Instrument, Span, trace_span};

use crate::{StoreError, TRACE};

pub use writes::{
    CommandFailure, CommandResult, GroupWriter, Resolution, WriteOutcome, WriteResult, store_error,
    write_results,
};

use settle::settle;

/// Commands of one kind in flight, unless the writer says otherwise: while some wait for the journal, the
/// server works on another.
const COMMANDS_IN_FLIGHT: usize = 4;

/// The most writes in one command. More would make the server no faster.
const COMMAND_WRITES: usize = 256;

/// A command may always hold this many writes. A larger one holds at most an even share of all writes,
/// so that the other permits, and more than one processor of the server, are used, too.
const COMMAND_MIN_SHARE: usize = 64;

/// The most bytes in one command, except for a single write. The server's limit is 48 MB.
const COMMAND_BYTES: usize = 4 * 1024 * 1024;

/// The most writes that wait for a permit. A further one is refused.
const QUEUE: usize = 5_120;

/// Writes of one kind that share commands.
#[derive(Debug)]
pub struct Group<W: GroupWriter> {
    writer: Arc<W>,
    gathered: Arc<Mutex<Gathered<W>>>,
    time_limit: Duration,
}

impl<W: GroupWriter> Clone for Group<W> {
    fn clone(&self) -> Self {
        Self {
            writer: Arc::clone(&self.writer),
            gathered: Arc::clone(&self.gathered),
            time_limit: self.time_limit,
        }
    }
}

#[derive(Debug)]
struct Gathered<W: GroupWriter> {
    /// The writes that wait for a permit.
    waiting: VecDeque<Waiting<W>>,
    permits_taken: usize,
    /// The writes in the commands that are in flight.
    in_flight: usize,
}

#[derive(Debug)]
struct Waiting<W: GroupWriter> {
    write: Arc<W::Write>,
    caller: oneshot::Sender<Result<W::Answer, StoreError>>,
    /// Until when its caller waits. It is not handed on later, even if the caller has not given up yet: a
    /// program that was frozen must not send old writes when it resumes.
    until: Instant,
    /// The time that it waits, in the trace of its caller.
    span: Span,
}

impl<W: GroupWriter> Waiting<W> {
    fn is_awaited(&self) -> bool {
        !self.caller.is_closed() && Instant::now() < self.until
    }

    /// Answers the caller, if it still waits.
    fn tell(self, answer: Result<W::Answer, StoreError>) {
        drop(self.caller.send(answer));
    }
}

/// Why the outcome of a write is unknown, if no command has failed.
#[derive(Debug, thiserror::Error)]
enum NoAnswer {
    #[error("the write was not answered within {} ms", .0.as_millis())]
    TimedOut(Duration),
    #[error("the write ended early")]
    Ended,
    #[error("each attempt conflicted with another write of the same span, target or id")]
    Contended,
}

impl NoAnswer {
    fn unknown(self) -> StoreError {
        StoreError::Unknown(Box::new(self))
    }
}

impl<W: GroupWriter> Group<W> {
    /// A group whose callers wait at most for `time_limit`.
    pub fn new(writer: W, time_limit: Duration) -> Self {
        let gathered = Gathered {
            waiting: VecDeque::new(),
            permits_taken: 0,
            in_flight: 0,
        };
        Self {
            writer: Arc::new(writer),
            gathered: Arc::new(Mutex::new(gathered)),
            time_limit,
        }
    }

    /// Sends a write, in one command with others that wait. If the caller stops waiting, a write that
    /// was sent is completed; a write that was not sent is dropped, because its caller may have sent
    /// it to another instance. The write is shared, so that each of very many callers is small.
    ///
    /// # Errors
    /// If the queue is full, nothing could be sent, the outcome is unknown, or the store refused the write.
    pub async fn submit(&self, write: Arc<W::Write>) -> Result<W::Answer, StoreError> {
        let (caller, answer) = oneshot::channel();
        let span = trace_span!(target: TRACE, "write");
        let waiting = Waiting {
            write,
            caller,
            until: Instant::now() + self.time_limit,
            span: span.clone(),
        };
        if !self.join(waiting) {
            return Err(StoreError::Overloaded);
        }
        let answered = timeout(self.time_limit, answer).instrument(span);
        match answered.await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(NoAnswer::Ended.unknown()),
            Err(_) => Err(NoAnswer::TimedOut(self.time_limit).unknown()),
        }
    }

    /// Queues a write, and takes a permit if one is free. Returns `false` if the queue is full.
    fn join(&self, waiting: Waiting<W>) -> bool {
        let mut gathered = self.lock();
        if gathered.waiting.len() == QUEUE {
            return false;
        }
        gathered.waiting.push_back(waiting);
        if gathered.permits_taken < W::commands_in_flight() {
            gathered.permits_taken += 1;
            tokio::spawn(send_commands(CommandPermit::for_taken(self.clone())));
        }
        true
    }

    /// Takes the writes of the next command for a permit whose last command had `finished` of them. If
    /// nothing waits, gives the permit back under the same lock, so that no write can join in between
    /// and be left.
    fn next_writes(&self, finished: usize) -> Option<Vec<Waiting<W>>> {
        let mut gathered = self.lock();
        gathered.in_flight -= finished;
        gathered.waiting.retain(Waiting::is_awaited);
        let unanswered = gathered.waiting.len() + gathered.in_flight;
        let share = unanswered
            .div_ceil(W::commands_in_flight())
            .clamp(COMMAND_MIN_SHARE, COMMAND_WRITES);
        let writes = gather(&mut gathered.waiting, share);
        if writes.is_empty() {
            gathered.permits_taken -= 1;
            return None;
        }
        gathered.in_flight += writes.len();
        Some(writes)
    }

    fn lock(&self) -> MutexGuard<'_, Gathered<W>> {
        self.gathered.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The permit to have one command in flight. It is given back when no write waits, or when it is
/// dropped, such as by a panic.
#[derive(Debug)]
struct CommandPermit<W: GroupWriter> {
    group: Group<W>,
    /// The writes in its command.
    in_flight: usize,
    is_taken: bool,
}

impl<W: GroupWriter> CommandPermit<W> {
    /// Wraps a permit that `join` has counted.
    fn for_taken(group: Group<W>) -> Self {
        Self {
            group,
            in_flight: 0,
            is_taken: true,
        }
    }

    /// The writes of the next command. If there are none, the permit is given back.
    fn next_writes(&mut self) -> Option<Vec<Waiting<W>>> {
        let writes = self.group.next_writes(self.in_flight);
        self.in_flight = writes.as_ref().map_or(0, Vec::len);
        self.is_taken = writes.is_some();
        writes
    }

    /// Passes the permit to a new task.
    fn hand_over(&mut self) {
        self.is_taken = false;
        let mut permit = Self::for_taken(self.group.clone());
        permit.in_flight = self.in_flight;
        tokio::spawn(send_commands(permit));
    }
}

impl<W: GroupWriter> Drop for CommandPermit<W> {
    fn drop(&mut self) {
        if self.is_taken {
            let mut gathered = self.group.lock();
            gathered.permits_taken -= 1;
            gathered.in_flight -= self.in_flight;
        }
    }
}

/// Sends what has gathered, one command after the other, until no write waits.
async fn send_commands<W: GroupWriter>(mut permit: CommandPermit<W>) {
    let (writer, time_limit) = (Arc::clone(&permit.group.writer), permit.group.time_limit);
    loop {
        // Callers that are ready to run can submit their writes first, and share this command.
        tokio::task::yield_now().await;
        let Some(command) = permit.next_writes() else {
            return;
        };
        let mut settling = pin!(settle(&*writer, command));
        if timeout(time_limit, &mut settling).await.is_err() {
            // A command without an answer must not keep the permit. It is not cancelled: dropping a
            // call of the driver can leave its connection in a bad state.
            permit.hand_over();
            return settling.await;
        }
    }
}

/// Takes up to `most` writes that fit into one command.
fn gather<W: GroupWriter>(waiting: &mut VecDeque<Waiting<W>>, most: usize) -> Vec<Waiting<W>> {
    let mut bytes = 0;
    let fitting = waiting.iter().take(most).take_while(|waiting| {
        bytes += W::size(&waiting.write);
        bytes <= COMMAND_BYTES
    });
    // A write that is larger than the limit is sent alone.
    let count = fitting.count().max(1).min(waiting.len());
    waiting.drain(..count).collect()
}
