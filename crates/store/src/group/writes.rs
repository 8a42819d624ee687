//! The interface between a group and its store: how writes of one kind are sent and looked up, and
//! the results of a command.

use std::error::Error;
use std::fmt::Debug;
use std::sync::Arc;

use async_trait::async_trait;
use tokio::time::Instant;

use super::COMMANDS_IN_FLIGHT;
use crate::StoreError;

pub trait CommandFailure: Error + Send + Sync + Sized + 'static {
    /// The outcome of the write, as far as the failure shows it.
    fn outcome(&self) -> WriteOutcome;

    /// Whether a unique index refused the write. Then nothing was written.
    fn is_duplicate_key(&self) -> bool;
}

/// The outcome of a write, as far as a failure shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteOutcome {
    /// Nothing was sent, so nothing was changed.
    Unavailable,
    /// It may have been executed, or may be yet.
    Unknown,
    /// It was not executed, and would be refused again.
    Refused,
}

/// The error for a caller whose command failed. Several callers can share the failure.
pub fn store_error<F: CommandFailure>(failure: &Arc<F>) -> StoreError {
    let error = match failure.outcome() {
        WriteOutcome::Unavailable => StoreError::Unavailable,
        WriteOutcome::Unknown => StoreError::Unknown,
        WriteOutcome::Refused => StoreError::Refused,
    };
    error(Box::new(Arc::clone(failure)))
}

/// The part of the answer to a command that is about one write.
#[derive(Debug)]
pub enum WriteResult<A, F> {
    /// This is the answer for the caller.
    Settled(A),
    /// This is the answer unless [`GroupWriter::resolve`] finds another one: only a read can
    /// distinguish a repeat from a new event that conflicts with an earlier one.
    Provisional(A),
    /// Only [`GroupWriter::resolve`] can find the answer.
    Unresolved,
    /// It was not executed, for this reason.
    Refused(F),
}

impl<A, F: CommandFailure> WriteResult<A, F> {
    /// The result of a write that failed within its command.
    pub fn failed(failure: F) -> Self {
        match failure.outcome() {
            WriteOutcome::Refused if !failure.is_duplicate_key() => Self::Refused(failure),
            _ => Self::Unresolved,
        }
    }
}

/// The results of the `items` documents or statements of a command. The server reports which of them
/// `failed`, by index, but of the others only how many were inserted or matched a document
/// (`matched`). If all others matched, each has its `answer`; if not, all are unresolved.
pub fn write_results<A, F: CommandFailure>(
    matched: usize,
    failed: Vec<(usize, F)>,
    items: usize,
    answer: impl Fn(usize) -> A,
) -> Vec<WriteResult<A, F>> {
    let all_others_matched = matched + failed.len() == items;
    let mut results: Vec<_> = (0..items)
        .map(|index| {
            if all_others_matched {
                WriteResult::Settled(answer(index))
            } else {
                WriteResult::Unresolved
            }
        })
        .collect();
    for (index, failure) in failed {
        results[index] = WriteResult::failed(failure);
    }
    results
}

/// The answer that a read has found for one write. `None`: its provisional answer stands; without one, it
/// must be sent again.
pub type Resolution<A> = Option<Result<A, StoreError>>;

/// The result of each write of a command, in their order, or the failure of the whole command.
pub type CommandResult<W> = Result<
    Vec<WriteResult<<W as GroupWriter>::Answer, <W as GroupWriter>::Failure>>,
    <W as GroupWriter>::Failure,
>;

/// Sends writes of one kind to the store, many with one command.
#[async_trait]
pub trait GroupWriter: Debug + Send + Sync + Sized + 'static {
    /// One write. Sending it twice must be safe.
    type Write: Debug + Send + Sync + 'static;
    type Answer: Debug + Send + 'static;
    type Failure: CommandFailure;

    /// The bytes that a write adds to a command.
    fn size(write: &Self::Write) -> usize;

    /// The most commands of this kind in flight.
    fn commands_in_flight() -> usize {
        COMMANDS_IN_FLIGHT
    }

    /// Sends the writes with one command. Returns a result for each, in their order, or the failure of
    /// the whole command. Hands nothing on after `send_by`, when the first caller has stopped waiting.
    async fn send(&self, batch: &[Arc<Self::Write>], send_by: Instant) -> CommandResult<Self>;

    /// Reads what happened to the writes, or what they conflict with. Returns an entry for each, in
    /// their order. The data must not be rolled back later. Without a read, each is sent again.
    async fn resolve(
        &self,
        batch: &[Arc<Self::Write>],
    ) -> Result<Vec<Resolution<Self::Answer>>, Self::Failure> {
        Ok(batch.iter().map(|_| None).collect())
    }
}
