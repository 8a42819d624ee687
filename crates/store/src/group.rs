//! Group commit: writes that are in flight at the same moment share one command.
//!
//! A write that waits alone for the journals of a majority costs ten times one that shares the
//! wait. So writes gather while others of their kind are under way, and the moment that one of a
//! few slots is free, whatever has gathered goes out in one command. There is no timer: a write
//! that comes alone goes out alone, at once.
//!
//! Each caller gets its own answer, whatever becomes of the command. What it does not tell (who
//! lost to a unique index, who found nothing to change, whether it was done at all when its answer
//! is lost) is looked up; what is still open after that goes into another command. That is safe
//! because every write carries an id of its own, by which a second attempt is refused, and by
//! which it is found.

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

pub use writes::{CommandFailure, Outcome, Seen, Verdict, Verdicts, Writes, store_error, verdicts};

use settle::settle;

/// Commands of one kind in flight: while some wait for the journal, the next one is at work.
const SLOTS: usize = 4;

/// Writes in one command at the most. Beyond that the server gains nothing.
const BATCH_WRITES: usize = 256;

/// Writes that one command may hold however few there are in all. Beyond that, all that are under way
/// or wait are shared out evenly among the slots: one that took everything would leave the others
/// idle, and one processor of the server at work for all.
const BATCH_SHARED: usize = 64;

/// Bytes of one command at the most, but for a single write. The server's limit is 48 MB.
const BATCH_BYTES: usize = 4 * 1024 * 1024;

/// Writes that wait for a slot at the most; who comes after that is turned away.
const QUEUE: usize = 2_048;

/// Where writes of one kind gather.
#[derive(Debug)]
pub struct Group<W: Writes> {
    writes: Arc<W>,
    gathered: Arc<Mutex<Gathered<W>>>,
    patience: Duration,
}

impl<W: Writes> Clone for Group<W> {
    fn clone(&self) -> Self {
        Self {
            writes: Arc::clone(&self.writes),
            gathered: Arc::clone(&self.gathered),
            patience: self.patience,
        }
    }
}

/// What waits for a slot, how many slots are taken, and with how many writes.
#[derive(Debug)]
struct Gathered<W: Writes> {
    waiting: VecDeque<Waiting<W>>,
    slots: usize,
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
    /// A group whose callers wait for `patience` at the most.
    pub fn new(writes: W, patience: Duration) -> Self {
        let gathered = Gathered {
            waiting: VecDeque::new(),
            slots: 0,
            under_way: 0,
        };
        Self {
            writes: Arc::new(writes),
            gathered: Arc::new(Mutex::new(gathered)),
            patience,
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
            until: Instant::now() + self.patience,
        };
        if !self.join(waiting) {
            return Err(StoreError::Overloaded);
        }
        match timeout(self.patience, answer).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(NoAnswer::Ended.unknown()),
            Err(_) => Err(NoAnswer::TimedOut(self.patience).unknown()),
        }
    }

    /// Lets a write wait with the others, and takes a slot if one is free. Says whether there was
    /// room.
    fn join(&self, waiting: Waiting<W>) -> bool {
        let mut gathered = self.lock();
        if gathered.waiting.len() == QUEUE {
            return false;
        }
        gathered.waiting.push_back(waiting);
        if gathered.slots < SLOTS {
            gathered.slots += 1;
            tokio::spawn(work(Slot::new(self.clone())));
        }
        true
    }

    /// What is to go out next, from a slot that is done with so many. Where that is nothing, the slot
    /// is given back, while nobody joins.
    fn next(&self, done: usize) -> Option<Vec<Waiting<W>>> {
        let mut gathered = self.lock();
        gathered.under_way -= done;
        gathered.waiting.retain(Waiting::is_awaited);
        let share = (gathered.waiting.len() + gathered.under_way).div_ceil(SLOTS);
        let share = share.clamp(BATCH_SHARED, BATCH_WRITES);
        let batch = gather(&mut gathered.waiting, share);
        if batch.is_empty() {
            gathered.slots -= 1;
            return None;
        }
        gathered.under_way += batch.len();
        Some(batch)
    }

    fn lock(&self) -> MutexGuard<'_, Gathered<W>> {
        self.gathered.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A slot that is taken, and how many writes have gone out from it last. It is given back when
/// nothing is left to go out, and whatever else becomes of the task that holds it.
#[derive(Debug)]
struct Slot<W: Writes> {
    group: Group<W>,
    under_way: usize,
    is_taken: bool,
}

impl<W: Writes> Slot<W> {
    /// A slot that counts as taken already.
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

    /// Hands the slot over to a task of its own.
    fn pass_on(&mut self) {
        self.is_taken = false;
        let mut slot = Self::new(self.group.clone());
        slot.under_way = self.under_way;
        tokio::spawn(work(slot));
    }
}

impl<W: Writes> Drop for Slot<W> {
    fn drop(&mut self) {
        if self.is_taken {
            let mut gathered = self.group.lock();
            gathered.slots -= 1;
            gathered.under_way -= self.under_way;
        }
    }
}

/// Sends out what has gathered, until nothing is left.
async fn work<W: Writes>(mut slot: Slot<W>) {
    let (writes, patience) = (Arc::clone(&slot.group.writes), slot.group.patience);
    loop {
        // Who is about to ask, because its request is read already, is to come along.
        tokio::task::yield_now().await;
        let Some(batch) = slot.next() else {
            return;
        };
        let mut settling = pin!(settle(&*writes, batch));
        if timeout(patience, &mut settling).await.is_err() {
            // A link that swallows the answer must not keep the slot. The command goes on: a call
            // of the driver that is dropped can leave its connection in a bad state.
            slot.pass_on();
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
