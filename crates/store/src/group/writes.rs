//! Writes of one kind, and what is known of them after a command.

use std::error::Error;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::Instant;

use crate::StoreError;

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
pub enum WriteResult<A, F> {
    /// This became of it.
    Settled(A),
    /// This is the answer unless resolving it says more: only that tells a repeat from an event that
    /// collides with another.
    Provisional(A),
    /// Only resolving it can tell.
    Unresolved,
    /// It was not done, and this is why.
    Refused(F),
}

impl<A, F: CommandFailure> WriteResult<A, F> {
    /// The result of a write that failed within its command.
    pub fn failed(failure: F) -> Self {
        match failure.outcome() {
            Outcome::Refused if !failure.is_duplicate_key() => Self::Refused(failure),
            _ => Self::Unresolved,
        }
    }
}

/// The results of so many documents or statements of a command. The server says which `failed`, by
/// their index, and how many of the others were inserted or found their document (`matched`), not
/// which: where all were, nothing is left to ask, and each has its answer.
pub fn write_results<A, F: CommandFailure>(
    matched: usize,
    failed: Vec<(usize, F)>,
    items: usize,
    answer: impl Fn(usize) -> A,
) -> Vec<WriteResult<A, F>> {
    let all = matched + failed.len() == items;
    let result = |index| {
        if all {
            WriteResult::Settled(answer(index))
        } else {
            WriteResult::Unresolved
        }
    };
    let mut results: Vec<_> = (0..items).map(result).collect();
    for (index, failure) in failed {
        results[index] = WriteResult::failed(failure);
    }
    results
}

/// What became of one write; nothing where it is to be tried again.
pub type Resolution<A> = Option<Result<A, StoreError>>;

/// The results of the writes of a command, in their order; or why the command failed as a whole.
pub type CommandResult<W> =
    Result<Vec<WriteResult<<W as Writes>::Answer, <W as Writes>::Failure>>, <W as Writes>::Failure>;

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

    /// How long after it was sent a command may still be carried out whose answer is lost.
    fn carried_out_within(&self) -> Duration;

    /// Whether the answer stays true if an earlier command with the same write, which nobody
    /// answered, is carried out after all. "It was kept" does; "it is refused" does not, unless
    /// the same reason refuses the earlier command, too, whenever it comes.
    fn outlasts_late_commands(answer: &Self::Answer) -> bool;

    /// Makes the writes with one command; a result for each, in their order. A failure is of the
    /// command as a whole. Nothing is sent after `send_by`: somebody no longer waits for it then.
    async fn write(&self, batch: &[Arc<Self::Write>], send_by: Instant) -> CommandResult<Self>;

    /// Finds out what became of the writes, or what stands in their way; an entry for each, in their order.
    /// What it says must not be rolled back.
    async fn resolve(
        &self,
        batch: &[Arc<Self::Write>],
    ) -> Result<Vec<Resolution<Self::Answer>>, Self::Failure>;
}
