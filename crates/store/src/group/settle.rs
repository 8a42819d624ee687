//! From a command to the answer of each caller.

use std::sync::Arc;

use tokio::time::Instant;

use super::writes::{CommandFailure, Outcome, WriteResult, Writes, store_error};
use super::{NoAnswer, Waiting};
use crate::StoreError;

/// Commands that a write is part of at the most. One is the rule; more where what stood in its way
/// is gone by the time it is resolved, or where answers are lost.
pub(super) const TRIES: usize = 5;

/// Why the outcome of an earlier command with the same writes is not known. Nothing that comes
/// after it can deny what it did.
#[derive(Debug)]
struct Doubt<F> {
    failure: Arc<F>,
    /// Until when a command that nobody answered may still be carried out, if there was one.
    late_until: Option<Instant>,
}

impl<F> Clone for Doubt<F> {
    fn clone(&self) -> Self {
        Self {
            failure: Arc::clone(&self.failure),
            late_until: self.late_until,
        }
    }
}

impl<F: CommandFailure> Doubt<F> {
    /// Whether what was asked of the store from this moment on knows all that became of the
    /// earlier commands.
    fn is_over(&self, began: Instant) -> bool {
        self.late_until.is_none_or(|until| began > until)
    }

    fn unknown(&self) -> StoreError {
        StoreError::Unknown(Box::new(Arc::clone(&self.failure)))
    }
}

/// Makes the writes, and gives each caller its answer.
pub(super) async fn settle<W: Writes>(writes: &W, open: Vec<Waiting<W>>) {
    let settling = Settling {
        writes,
        doubt: None,
    };
    settling.run(open).await;
}

/// Some writes on their way to their answers.
struct Settling<'a, W: Writes> {
    writes: &'a W,
    doubt: Option<Doubt<W::Failure>>,
}

impl<W: Writes> Settling<'_, W> {
    async fn run(mut self, mut open: Vec<Waiting<W>>) {
        for _ in 0..TRIES {
            let began = Instant::now();
            let batch = writes_of(&open);
            let write_results = match self.writes.write(&batch, send_by(&open)).await {
                Ok(write_results) => write_results,
                Err(failure) => match failure.outcome() {
                    // One of them is why; the others must not suffer.
                    Outcome::Refused if open.len() > 1 => return self.run_each(open).await,
                    Outcome::Unknown => {
                        self.doubts(failure);
                        open.iter().map(|_| WriteResult::Unresolved).collect()
                    }
                    _ if self.doubt.is_some() => break,
                    _ => return tell_all(open, &Arc::new(failure)),
                },
            };
            open = match self.resolve(began, open, write_results).await {
                Ok(open) => open,
                Err((open, failure)) => {
                    let failure = self.doubt.map_or(Arc::new(failure), |doubt| doubt.failure);
                    return tell_unknown(open, &failure);
                }
            };
            // Nobody waits for those that are given up any more, so they are left as they are.
            open.retain(Waiting::is_awaited);
            if open.is_empty() {
                return;
            }
        }
        match self.doubt {
            Some(doubt) => tell_unknown(open, &doubt.failure),
            None => {
                for waiting in open {
                    waiting.tell(Err(NoAnswer::Contended.unknown()));
                }
            }
        }
    }

    /// Makes each write with a command of its own.
    async fn run_each(self, open: Vec<Waiting<W>>) {
        for waiting in open {
            if waiting.is_awaited() {
                let alone = Self {
                    writes: self.writes,
                    doubt: self.doubt.clone(),
                };
                Box::pin(alone.run(vec![waiting])).await;
            }
        }
    }

    /// Notes that it is not known what a command did, because of this.
    fn doubts(&mut self, failure: W::Failure) {
        // It was sent before now, so this is no earlier than the end of its time.
        let late_until = failure
            .may_come_later()
            .then(|| Instant::now() + self.writes.carried_out_within());
        let earlier = self.doubt.as_ref().and_then(|doubt| doubt.late_until);
        self.doubt = Some(Doubt {
            failure: Arc::new(failure),
            late_until: late_until.or(earlier),
        });
    }

    /// What a caller is told. While an earlier command may still be carried out, what is true now
    /// need not be true in a moment: a refusal would say that nothing was kept, and then it is. What
    /// is answered rests on what was asked of the store from `began` on.
    fn tell(&self, began: Instant, waiting: Waiting<W>, answer: Result<W::Answer, StoreError>) {
        let outlasts = answer.as_ref().is_ok_and(W::outlasts_late_commands);
        waiting.tell(match &self.doubt {
            Some(doubt) if !outlasts && !doubt.is_over(began) => Err(doubt.unknown()),
            _ => answer,
        });
    }

    /// Gives those their answer of which the command or `resolve` says what became; answers with those
    /// that are to be tried again, or all that could not be resolved, and why.
    async fn resolve(
        &self,
        began: Instant,
        open: Vec<Waiting<W>>,
        results: Vec<WriteResult<W::Answer, W::Failure>>,
    ) -> Result<Vec<Waiting<W>>, (Vec<Waiting<W>>, W::Failure)> {
        let mut asked = Vec::new();
        let mut otherwise = Vec::new();
        for (waiting, result) in open.into_iter().zip(results) {
            match result {
                WriteResult::Settled(answer) => self.tell(began, waiting, Ok(answer)),
                WriteResult::Refused(failure) => {
                    self.tell(began, waiting, Err(store_error(&Arc::new(failure))));
                }
                WriteResult::Provisional(answer) => {
                    asked.push(waiting);
                    otherwise.push(Some(answer));
                }
                WriteResult::Unresolved => {
                    asked.push(waiting);
                    otherwise.push(None);
                }
            }
        }
        if asked.is_empty() {
            return Ok(asked);
        }
        let resolved_from = Instant::now();
        let resolution = match self.writes.resolve(&writes_of(&asked)).await {
            Ok(resolution) => resolution,
            Err(failure) => return Err((asked, failure)),
        };
        let mut open = Vec::new();
        for ((waiting, resolution), otherwise) in asked.into_iter().zip(resolution).zip(otherwise) {
            match (resolution, otherwise) {
                (Some(resolution), _) => self.tell(resolved_from, waiting, resolution),
                (None, Some(answer)) => self.tell(began, waiting, Ok(answer)),
                (None, None) => open.push(waiting),
            }
        }
        Ok(open)
    }
}

/// The earliest moment at which a caller no longer waits.
fn send_by<W: Writes>(waiting: &[Waiting<W>]) -> Instant {
    let until = waiting.iter().map(|waiting| waiting.until).min();
    until.unwrap_or_else(Instant::now)
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
