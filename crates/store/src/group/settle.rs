//! Sends the writes of a command, and finds the answer for each caller.

use std::sync::Arc;

use metrics::histogram;
use tokio::time::Instant;
use tracing::{Instrument, Span, trace_span};

use super::writes::{CommandFailure, GroupWriter, WriteOutcome, WriteResult, store_error};
use super::{NoAnswer, Waiting};
use crate::{StoreError, TRACE};

/// The most commands that a write is part of. Usually one is enough. A further one is needed if the
/// conflict is gone when it is looked up, if an answer is lost, or if the server refuses for the time being. It has as many again by itself if one
/// write made the server refuse a whole command.
pub(super) const TRIES: usize = 5;

/// An earlier command with the same writes whose outcome is unknown. While it may still run, a
/// refusal is not final ([decision]).
///
/// [decision]: ../../../../docs/decisions.md#unknown-outcomes
#[derive(Debug)]
struct UnknownCommand<F> {
    failure: Arc<F>,
    /// Until when it may still run, if it had no answer at all.
    may_run_until: Option<Instant>,
}

impl<F> Clone for UnknownCommand<F> {
    fn clone(&self) -> Self {
        Self {
            failure: Arc::clone(&self.failure),
            may_run_until: self.may_run_until,
        }
    }
}

impl<F: CommandFailure> UnknownCommand<F> {
    /// Whether the command had ended before `began`, so that a read that began then sees all its
    /// writes.
    fn has_ended_before(&self, began: Instant) -> bool {
        self.may_run_until.is_none_or(|until| began > until)
    }

    fn error(&self) -> StoreError {
        StoreError::Unknown(Box::new(Arc::clone(&self.failure)))
    }
}

/// Sends the writes, and gives each caller its answer.
pub(super) async fn settle<W: GroupWriter>(writer: &W, unanswered: Vec<Waiting<W>>) {
    let settling = Settling {
        writer,
        unknown: None,
    };
    settling.run(unanswered).await;
}

/// The state of a command until all its callers are answered.
struct Settling<'a, W: GroupWriter> {
    writer: &'a W,
    unknown: Option<UnknownCommand<W::Failure>>,
}

impl<W: GroupWriter> Settling<'_, W> {
    async fn run(mut self, mut unanswered: Vec<Waiting<W>>) {
        for _ in 0..TRIES {
            let began = Instant::now();
            let batch = writes_of(&unanswered);
            let sending = self.writer.send(&batch, send_by(&unanswered));
            let sent = sending.instrument(command_span(&unanswered)).await;
            histogram!("sampler_commit_batch_events").record(batch.len() as f64);
            histogram!("sampler_commit_seconds").record(began.elapsed());
            let results = match sent {
                Ok(results) => results,
                Err(failure) => match failure.outcome() {
                    // One write is the cause, and the others may be accepted.
                    WriteOutcome::Refused if unanswered.len() > 1 => {
                        return self.run_each(unanswered).await;
                    }
                    WriteOutcome::Unknown => {
                        self.note_unknown(failure);
                        let unresolved = unanswered.iter().map(|_| WriteResult::Unresolved);
                        unresolved.collect()
                    }
                    _ if self.unknown.is_some() => break,
                    _ => return tell_all(unanswered, &Arc::new(failure)),
                },
            };
            unanswered = match self.answer_or_keep(began, unanswered, results).await {
                Ok(unanswered) => unanswered,
                Err((unanswered, failure)) => {
                    let earlier = self.unknown.map(|unknown| unknown.failure);
                    return tell_unknown(unanswered, &earlier.unwrap_or(Arc::new(failure)));
                }
            };
            unanswered.retain(Waiting::is_awaited);
            if unanswered.is_empty() {
                return;
            }
        }
        match self.unknown {
            Some(unknown) => tell_unknown(unanswered, &unknown.failure),
            None => {
                for waiting in unanswered {
                    waiting.tell(Err(NoAnswer::Contended.unknown()));
                }
            }
        }
    }

    /// Sends each write with a command of its own.
    async fn run_each(self, unanswered: Vec<Waiting<W>>) {
        for waiting in unanswered {
            if waiting.is_awaited() {
                let alone = Self {
                    writer: self.writer,
                    unknown: self.unknown.clone(),
                };
                Box::pin(alone.run(vec![waiting])).await;
            }
        }
    }

    /// Notes that the outcome of a command is unknown.
    fn note_unknown(&mut self, failure: W::Failure) {
        // The command was sent before now, so this is not earlier than the end of its time limit.
        let may_run_until = failure
            .may_still_execute()
            .then(|| Instant::now() + self.writer.execution_limit());
        let earlier = self
            .unknown
            .as_ref()
            .and_then(|unknown| unknown.may_run_until);
        self.unknown = Some(UnknownCommand {
            failure: Arc::new(failure),
            may_run_until: may_run_until.or(earlier),
        });
    }

    /// Sends an answer to a caller. `began` is when the command or the read behind the answer began.
    /// While an earlier command may still run, it can change a refusal into a success: then only an
    /// answer that such a command cannot change is sent, and any other is sent as unknown.
    fn tell(&self, began: Instant, waiting: Waiting<W>, answer: Result<W::Answer, StoreError>) {
        let is_final = answer.as_ref().is_ok_and(W::outlasts_late_commands);
        waiting.tell(match &self.unknown {
            Some(unknown) if !is_final && !unknown.has_ended_before(began) => Err(unknown.error()),
            _ => answer,
        });
    }

    /// Sends each caller its answer, if the command or a read gives it. Returns the writes that must
    /// be sent again. If the read fails, returns all writes that have no answer yet, and the failure.
    async fn answer_or_keep(
        &self,
        began: Instant,
        batch: Vec<Waiting<W>>,
        results: Vec<WriteResult<W::Answer, W::Failure>>,
    ) -> Result<Vec<Waiting<W>>, (Vec<Waiting<W>>, W::Failure)> {
        let mut unresolved = Vec::new();
        let mut provisional = Vec::new();
        for (waiting, result) in batch.into_iter().zip(results) {
            match result {
                WriteResult::Settled(answer) => self.tell(began, waiting, Ok(answer)),
                WriteResult::Refused(failure) => {
                    self.tell(began, waiting, Err(store_error(&Arc::new(failure))));
                }
                WriteResult::Provisional(answer) => {
                    unresolved.push(waiting);
                    provisional.push(Some(answer));
                }
                WriteResult::Unresolved => {
                    unresolved.push(waiting);
                    provisional.push(None);
                }
            }
        }
        if unresolved.is_empty() {
            return Ok(unresolved);
        }
        let read_began = Instant::now();
        let found = match self.writer.resolve(&writes_of(&unresolved)).await {
            Ok(found) => found,
            Err(failure) => return Err((unresolved, failure)),
        };
        let mut again = Vec::new();
        for ((waiting, found), provisional) in unresolved.into_iter().zip(found).zip(provisional) {
            match (found, provisional) {
                (Some(answer), _) => self.tell(read_began, waiting, answer),
                (None, Some(answer)) => self.tell(began, waiting, Ok(answer)),
                (None, None) => again.push(waiting),
            }
        }
        Ok(again)
    }
}

/// The span of a command. It belongs to the trace of its first write. It and the spans of all its
/// writes are linked both ways, so that each of their traces leads to it.
fn command_span<W: GroupWriter>(waiting: &[Waiting<W>]) -> Span {
    let first = waiting.first().and_then(|waiting| waiting.span.id());
    let command = trace_span!(
        target: TRACE,
        parent: first,
        "commit",
        otel.kind = "client",
        db.system.name = "mongodb",
        db.operation.batch.size = i64::try_from(waiting.len()).unwrap_or(i64::MAX),
    );
    if !command.is_disabled() {
        for Waiting { span, .. } in waiting {
            command.follows_from(span);
            span.follows_from(&command);
        }
    }
    command
}

/// The earliest time at which a caller stops waiting.
fn send_by<W: GroupWriter>(waiting: &[Waiting<W>]) -> Instant {
    let until = waiting.iter().map(|waiting| waiting.until).min();
    until.unwrap_or_else(Instant::now)
}

fn writes_of<W: GroupWriter>(waiting: &[Waiting<W>]) -> Vec<Arc<W::Write>> {
    waiting
        .iter()
        .map(|waiting| Arc::clone(&waiting.write))
        .collect()
}

/// Tells callers that the outcome is unknown. A command was sent and its effect cannot be found out,
/// so neither "nothing was changed" nor "it was refused" would be true, even if the read failed so.
fn tell_unknown<W: GroupWriter>(waiting: Vec<Waiting<W>>, failure: &Arc<W::Failure>) {
    for waiting in waiting {
        waiting.tell(Err(StoreError::Unknown(Box::new(Arc::clone(failure)))));
    }
}

fn tell_all<W: GroupWriter>(waiting: Vec<Waiting<W>>, failure: &Arc<W::Failure>) {
    for waiting in waiting {
        waiting.tell(Err(store_error(failure)));
    }
}
