//! Group commit: writes that are in flight at the same moment share one command.
//!
//! A write that waits alone for the journals of a majority costs ten times one that shares the
//! wait. So writes gather while others of their kind are under way, and the moment that one of a
//! few permits for a command is free, whatever has gathered goes out in one command. There is no
//! timer: a write that comes alone goes out alone, at once.
//!
//! Each caller gets its own answer, whatever becomes of the command. What it does not tell (which
//! writes lost to a unique index, which found nothing to change, whether they were made at all when
//! the answer is lost) is resolved by reading; what is still open then goes into another command. That is safe
//! because every write carries an id of its own, by which a second attempt is refused, and by
//! which it is found.

mod ranges;
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

use crate::StoreError;

pub use ranges::Ranges;
pub use writes::{
    CommandFailure, CommandResult, Outcome, Resolution, WriteResult, Writes, store_error,
    write_results,
};

use settle::settle;

/// Commands of one kind in flight: while some wait for the journal, the next one is at work.
const COMMANDS_IN_FLIGHT: usize = 4;

/// Writes in one command at the most. Beyond that the server gains nothing.
const BATCH_WRITES: usize = 256;

/// Writes that one command may hold however few there are in all. Beyond that, all that are under way
/// or wait are shared out evenly among the commands: one that took everything would leave the others
/// idle, and one processor of the server at work for all.
const BATCH_SHARED: usize = 64;

/// Bytes of one command at the most, but for a single write. The server's limit is 48 MB.
const BATCH_BYTES: usize = 4 * 1024 * 1024;

/// Writes that wait for a permit at the most. The next one is turned away.
const QUEUE: usize = 2_048;

/// Where writes of one kind gather.
#[derive(Debug)]
pub struct Group<W: Writes> {
    writes: Arc<W>,
    gathered: Arc<Mutex<Gathered<W>>>,
    time_limit: Duration,
}

impl<W: Writes> Clone for Group<W> {
    fn clone(&self) -> Self {
        Self {
            writes: Arc::clone(&self.writes),
            gathered: Arc::clone(&self.gathered),
            time_limit: self.time_limit,
        }
    }
}

/// What waits for a permit, how many permits are taken, and with how many writes.
#[derive(Debug)]
struct Gathered<W: Writes> {
    waiting: VecDeque<Waiting<W>>,
    permits_taken: usize,
    under_way: usize,
}

/// A write whose caller waits.
#[derive(Debug)]
struct Waiting<W: Writes> {
    write: Arc<W::Write>,
    caller: oneshot::Sender<Result<W::Answer, StoreError>>,
    /// When its caller waits no longer, whether or not it has come round to go away: a program that
    /// was frozen must not send, when it wakes up, what was asked of it long ago.
    until: Instant,
}

impl<W: Writes> Waiting<W> {
    fn is_awaited(&self) -> bool {
        !self.caller.is_closed() && Instant::now() < self.until
    }

    /// A caller that has gone away needs no answer.
    fn tell(self, answer: Result<W::Answer, StoreError>) {
        drop(self.caller.send(answer));
    }
}

/// Why a write has no answer.
#[derive(Debug, thiserror::Error)]
enum NoAnswer {
    #[error("the write was not answered within {} ms", .0.as_millis())]
    TimedOut(Duration),
    #[error("the write ended early")]
    Ended,
    #[error("other events for the same target or id kept coming between")]
    Contended,
}

impl NoAnswer {
    fn unknown(self) -> StoreError {
        StoreError::Unknown(Box::new(self))
    }
}

impl<W: Writes> Group<W> {
    /// A group whose callers wait for `time_limit` at the most.
    pub fn new(writes: W, time_limit: Duration) -> Self {
        let gathered = Gathered {
            waiting: VecDeque::new(),
            permits_taken: 0,
            under_way: 0,
        };
        Self {
            writes: Arc::new(writes),
            gathered: Arc::new(Mutex::new(gathered)),
            time_limit,
        }
    }

    /// Makes a write in company. Where the caller goes away, a write that has gone out goes on; one
    /// that has not is given up: by the time it went out, its caller might have asked elsewhere.
    ///
    /// # Errors
    /// Where no command says what became of the write, or one was refused.
    pub async fn submit(&self, write: W::Write) -> Result<W::Answer, StoreError> {
        let (caller, answer) = oneshot::channel();
        let waiting = Waiting {
            write: Arc::new(write),
            caller,
            until: Instant::now() + self.time_limit,
        };
        if !self.join(waiting) {
            return Err(StoreError::Overloaded);
        }
        match timeout(self.time_limit, answer).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(NoAnswer::Ended.unknown()),
            Err(_) => Err(NoAnswer::TimedOut(self.time_limit).unknown()),
        }
    }

    /// Lets a write wait with the others, and takes a permit if one is free. Says whether there was
    /// room.
    fn join(&self, waiting: Waiting<W>) -> bool {
        let mut gathered = self.lock();
        if gathered.waiting.len() == QUEUE {
            return false;
        }
        gathered.waiting.push_back(waiting);
        if gathered.permits_taken < COMMANDS_IN_FLIGHT {
            gathered.permits_taken += 1;
            tokio::spawn(work(CommandPermit::new(self.clone())));
        }
        true
    }

    /// What is to go out next, from a permit that is done with so many. Where that is nothing, the permit
    /// is given back, while nobody joins.
    fn next(&self, done: usize) -> Option<Vec<Waiting<W>>> {
        let mut gathered = self.lock();
        gathered.under_way -= done;
        gathered.waiting.retain(Waiting::is_awaited);
        let share = (gathered.waiting.len() + gathered.under_way).div_ceil(COMMANDS_IN_FLIGHT);
        let share = share.clamp(BATCH_SHARED, BATCH_WRITES);
        let batch = gather(&mut gathered.waiting, share);
        if batch.is_empty() {
            gathered.permits_taken -= 1;
            return None;
        }
        gathered.under_way += batch.len();
        Some(batch)
    }

    fn lock(&self) -> MutexGuard<'_, Gathered<W>> {
        self.gathered.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A permit that is taken, and how many writes have gone out from it last. It is given back when
/// nothing is left to go out, and whatever else becomes of the task that holds it.
#[derive(Debug)]
struct CommandPermit<W: Writes> {
    group: Group<W>,
    under_way: usize,
    is_taken: bool,
}

impl<W: Writes> CommandPermit<W> {
    /// A permit that counts as taken already.
    fn new(group: Group<W>) -> Self {
        Self {
            group,
            under_way: 0,
            is_taken: true,
        }
    }

    /// What is to go out next.
    fn next(&mut self) -> Option<Vec<Waiting<W>>> {
        let batch = self.group.next(self.under_way);
        self.under_way = batch.as_ref().map_or(0, Vec::len);
        self.is_taken = batch.is_some();
        batch
    }

    /// Hands the permit over to a task of its own.
    fn hand_over(&mut self) {
        self.is_taken = false;
        let mut permit = Self::new(self.group.clone());
        permit.under_way = self.under_way;
        tokio::spawn(work(permit));
    }
}

impl<W: Writes> Drop for CommandPermit<W> {
    fn drop(&mut self) {
        if self.is_taken {
            let mut gathered = self.group.lock();
            gathered.permits_taken -= 1;
            gathered.under_way -= self.under_way;
        }
    }
}

/// Sends out what has gathered, until nothing is left.
async fn work<W: Writes>(mut permit: CommandPermit<W>) {
    let (writes, time_limit) = (Arc::clone(&permit.group.writes), permit.group.time_limit);
    loop {
        // A caller whose request is read already, and that is about to submit, is to come along.
        tokio::task::yield_now().await;
        let Some(batch) = permit.next() else {
            return;
        };
        let mut settling = pin!(settle(&*writes, batch));
        if timeout(time_limit, &mut settling).await.is_err() {
            // A link that swallows the answer must not keep the permit. The command goes on: a call
            // of the driver that is dropped can leave its connection in a bad state.
            permit.hand_over();
            return settling.await;
        }
    }
}

/// Takes up to so many, as far as one command may hold them.
fn gather<W: Writes>(waiting: &mut VecDeque<Waiting<W>>, most: usize) -> Vec<Waiting<W>> {
    let mut bytes = 0;
    let fitting = waiting.iter().take(most).take_while(|waiting| {
        bytes += W::size(&waiting.write);
        bytes <= BATCH_BYTES
    });
    // One that is too large by itself goes alone.
    let count = fitting.count().max(1).min(waiting.len());
    waiting.drain(..count).collect()
}
