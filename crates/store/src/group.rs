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

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::error::Error;
use std::fmt::Debug;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

use crate::StoreError;

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

/// Commands that a write is part of at the most. One is the rule; more where what stood in its way
/// is gone by the time we look, or where answers are lost.
const TRIES: usize = 5;

/// How a command failed, or one of the writes in it.
pub trait CommandFailure: Error + Send + Sync + Sized + 'static {
    /// What the failure says of what was asked.
    fn outcome(&self) -> Outcome;

    /// Whether a unique index refused the write; nothing was written then.
    fn is_duplicate_key(&self) -> bool;

    /// Whether the command may still be carried out, because nobody has said that it is over: a
    /// server goes on with a command whose client has gone.
    fn may_come_later(&self) -> bool;
}

/// What a failure says of what was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing was sent, so nothing was changed.
    Unavailable,
    /// It may have been done.
    Unknown,
    /// It was not done, and would not be if it were asked for again.
    Refused,
}

/// The error of a caller whose command failed, which others may have shared.
pub fn store_error<F: CommandFailure>(failure: &Arc<F>) -> StoreError {
    let error = match failure.outcome() {
        Outcome::Unavailable => StoreError::Unavailable,
        Outcome::Unknown => StoreError::Unknown,
        Outcome::Refused => StoreError::Refused,
    };
    error(Box::new(Arc::clone(failure)))
}

/// What a command says of one write.
#[derive(Debug)]
pub enum Verdict<A, F> {
    /// This became of it.
    Settled(A),
    /// This became of it, unless a look says more: a repeat is told from what it collides with.
    Unless(A),
    /// A look must tell.
    Open,
    /// It was not done, and this is why.
    Refused(F),
}

impl<A, F: CommandFailure> Verdict<A, F> {
    /// The verdict on a write that failed within its command.
    pub fn failed(failure: F) -> Self {
        match failure.outcome() {
            Outcome::Refused if !failure.is_duplicate_key() => Self::Refused(failure),
            _ => Self::Open,
        }
    }
}

/// The verdicts on so many documents or statements of a command. The server says which `failed`, by
/// their place, and how many of the others were inserted or found their document (`matched`), not
/// which: where all were, nothing is left to ask, and each has its answer.
pub fn verdicts<A, F: CommandFailure>(
    matched: usize,
    failed: Vec<(usize, F)>,
    items: usize,
    answer: impl Fn(usize) -> A,
) -> Vec<Verdict<A, F>> {
    let all = matched + failed.len() == items;
    let verdict = |place| {
        if all {
            Verdict::Settled(answer(place))
        } else {
            Verdict::Open
        }
    };
    let mut verdicts: Vec<_> = (0..items).map(verdict).collect();
    for (place, failure) in failed {
        verdicts[place] = Verdict::failed(failure);
    }
    verdicts
}

/// What a look says of one write; nothing where it is to be tried again.
pub type Seen<A> = Option<Result<A, StoreError>>;

/// The verdicts on the writes of a command, in their order; or why the command failed as a whole.
pub type Verdicts<W> =
    Result<Vec<Verdict<<W as Writes>::Answer, <W as Writes>::Failure>>, <W as Writes>::Failure>;

/// Writes of one kind.
#[async_trait]
pub trait Writes: Debug + Send + Sync + Sized + 'static {
    /// One of them. It must be safe to make it twice.
    type Write: Debug + Send + Sync + 'static;
    /// What becomes of it.
    type Answer: Debug + Send + 'static;
    /// How a command fails.
    type Failure: CommandFailure;

    /// How many bytes it adds to a command.
    fn size(write: &Self::Write) -> usize;

    /// Makes the writes with one command; a verdict for each, in their order. A failure is of the
    /// command as a whole.
    async fn write(&self, batch: &[Arc<Self::Write>]) -> Verdicts<Self>;

    /// Looks what became of the writes, or stands in their way; an entry for each, in their order.
    /// What it says must not be rolled back.
    async fn look(
        &self,
        batch: &[Arc<Self::Write>],
    ) -> Result<Vec<Seen<Self::Answer>>, Self::Failure>;
}

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
    #[error("too many writes wait for the database")]
    Full,
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
            return Err(StoreError::Unavailable(Box::new(NoAnswer::Full)));
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
        let mut settling = pin!(settle(&*writes, batch, None));
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

/// Makes the writes, and gives each caller its answer. `lost` is why the answer to an earlier command
/// is not known, if it is not: what that did, nothing that comes after it can deny.
async fn settle<W: Writes>(
    writes: &W,
    mut open: Vec<Waiting<W>>,
    mut lost: Option<Arc<W::Failure>>,
) {
    for _ in 0..TRIES {
        let batch = writes_of(&open);
        let verdicts = match writes.write(&batch).await {
            Ok(verdicts) => verdicts,
            Err(failure) => match failure.outcome() {
                // One of them is why; the others must not suffer.
                Outcome::Refused if open.len() > 1 => {
                    return settle_each(writes, open, lost.as_ref()).await;
                }
                Outcome::Unknown => {
                    lost = Some(Arc::new(failure));
                    open.iter().map(|_| Verdict::Open).collect()
                }
                _ if lost.is_some() => break,
                _ => return tell_all(open, &Arc::new(failure)),
            },
        };
        open = match look(writes, open, verdicts).await {
            Ok(open) => open,
            Err((open, failure)) => return tell_unknown(open, &lost.unwrap_or(Arc::new(failure))),
        };
        // Nobody waits for those that are given up any more, so they are left as they are.
        open.retain(Waiting::is_awaited);
        if open.is_empty() {
            return;
        }
    }
    match lost {
        Some(failure) => tell_unknown(open, &failure),
        None => {
            for waiting in open {
                waiting.tell(Err(NoAnswer::Contended.unknown()));
            }
        }
    }
}

/// Makes each write with a command of its own.
async fn settle_each<W: Writes>(writes: &W, open: Vec<Waiting<W>>, lost: Option<&Arc<W::Failure>>) {
    for waiting in open {
        if waiting.is_awaited() {
            Box::pin(settle(writes, vec![waiting], lost.cloned())).await;
        }
    }
}

/// Gives those their answer of which the verdict or a look says what became; answers with those
/// that are to be tried again, or all that were looked for and the reason why none was found.
async fn look<W: Writes>(
    writes: &W,
    open: Vec<Waiting<W>>,
    verdicts: Vec<Verdict<W::Answer, W::Failure>>,
) -> Result<Vec<Waiting<W>>, (Vec<Waiting<W>>, W::Failure)> {
    let mut asked = Vec::new();
    let mut otherwise = Vec::new();
    for (waiting, verdict) in open.into_iter().zip(verdicts) {
        match verdict {
            Verdict::Settled(answer) => waiting.tell(Ok(answer)),
            Verdict::Refused(failure) => waiting.tell(Err(store_error(&Arc::new(failure)))),
            Verdict::Unless(answer) => {
                asked.push(waiting);
                otherwise.push(Some(answer));
            }
            Verdict::Open => {
                asked.push(waiting);
                otherwise.push(None);
            }
        }
    }
    if asked.is_empty() {
        return Ok(asked);
    }
    let seen = match writes.look(&writes_of(&asked)).await {
        Ok(seen) => seen,
        Err(failure) => return Err((asked, failure)),
    };
    let mut open = Vec::new();
    for ((waiting, seen), otherwise) in asked.into_iter().zip(seen).zip(otherwise) {
        match seen.or(otherwise.map(Ok)) {
            Some(answer) => waiting.tell(answer),
            None => open.push(waiting),
        }
    }
    Ok(open)
}

fn writes_of<W: Writes>(waiting: &[Waiting<W>]) -> Vec<Arc<W::Write>> {
    let write = |waiting: &Waiting<W>| Arc::clone(&waiting.write);
    waiting.iter().map(write).collect()
}

/// A command has gone out, and what it did cannot be found out: that is neither "nothing was changed"
/// nor "it was refused", whatever keeps us from finding out.
fn tell_unknown<W: Writes>(waiting: Vec<Waiting<W>>, failure: &Arc<W::Failure>) {
    for waiting in waiting {
        waiting.tell(Err(StoreError::Unknown(Box::new(Arc::clone(failure)))));
    }
}

fn tell_all<W: Writes>(waiting: Vec<Waiting<W>>, failure: &Arc<W::Failure>) {
    for waiting in waiting {
        waiting.tell(Err(store_error(failure)));
    }
}
