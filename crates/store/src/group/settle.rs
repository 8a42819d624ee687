//! Sends the writes of a command, and finds the answer for each caller.

use std::sync::Arc;

use metrics::histogram;
use tokio::time::Instant;
use tracing::{Instrument, Span, trace_span};

use super::writes::{CommandFailure, GroupWriter, WriteOutcome, WriteResult, store_error};
use super::{NoAnswer, Waiting};
use crate::{StoreError, TRACE};

/// The most commands that a write is part of. Usually one is enough. A further one is needed if the
/// conflict is gone when it is looked up. A write has as many again by itself if one write made the server
/// refuse a whole command.
pub(super) const TRIES: usize = 5;

/// Sends the writes, and gives each caller its answer. A command without an answer may still run: then
/// nothing that is read now is final, and each caller is told so ([decision]).
///
/// [decision]: ../../../../docs/decisions.md#unknown-outcomes
pub(super) async fn settle<W: GroupWriter>(writer: &W, mut unanswered: Vec<Waiting<W>>) {
    for _ in 0..TRIES {
        let began = Instant::now();
        let batch = writes_of(&unanswered);
        let sending = writer.send(&batch, send_by(&unanswered));
        let sent = sending.instrument(command_span(&unanswered)).await;
        histogram!("sampler_commit_batch_events").record(batch.len() as f64);
        histogram!("sampler_commit_seconds").record(began.elapsed());
        let results = match sent {
            Ok(results) => results,
            // One write is the cause, and the others may be accepted.
            Err(failure) if failure.outcome() == WriteOutcome::Refused && unanswered.len() > 1 => {
                return settle_each(writer, unanswered).await;
            }
            Err(failure) => return tell_all(unanswered, &Arc::new(failure)),
        };
        unanswered = match answer_or_keep(writer, unanswered, results).await {
            Ok(unanswered) => unanswered,
            Err((unanswered, failure)) => return tell_unknown(unanswered, &Arc::new(failure)),
        };
        unanswered.retain(Waiting::is_awaited);
        if unanswered.is_empty() {
            return;
        }
    }
    for waiting in unanswered {
        waiting.tell(Err(NoAnswer::Contended.unknown()));
    }
}

/// Sends each write with a command of its own.
async fn settle_each<W: GroupWriter>(writer: &W, unanswered: Vec<Waiting<W>>) {
    for waiting in unanswered {
        if waiting.is_awaited() {
            Box::pin(settle(writer, vec![waiting])).await;
        }
    }
}

/// Sends each caller its answer, if the command or a read gives it. Returns the writes that must
/// be sent again. If the read fails, returns all writes that have no answer yet, and the failure.
async fn answer_or_keep<W: GroupWriter>(
    writer: &W,
    batch: Vec<Waiting<W>>,
    results: Vec<WriteResult<W::Answer, W::Failure>>,
) -> Result<Vec<Waiting<W>>, (Vec<Waiting<W>>, W::Failure)> {
    let (mut unresolved, mut provisional) = (Vec::new(), Vec::new());
    for (waiting, result) in batch.into_iter().zip(results) {
        let answer = match result {
            WriteResult::Settled(answer) => {
                waiting.tell(Ok(answer));
                continue;
            }
            WriteResult::Refused(failure) => {
                waiting.tell(Err(store_error(&Arc::new(failure))));
                continue;
            }
            WriteResult::Provisional(answer) => Some(answer),
            WriteResult::Unresolved => None,
        };
        unresolved.push(waiting);
        provisional.push(answer);
    }
    if unresolved.is_empty() {
        return Ok(unresolved);
    }
    let found = match writer.resolve(&writes_of(&unresolved)).await {
        Ok(found) => found,
        Err(failure) => return Err((unresolved, failure)),
    };
    let mut again = Vec::new();
    for ((waiting, found), provisional) in unresolved.into_iter().zip(found).zip(provisional) {
        match found.or(provisional.map(Ok)) {
            Some(answer) => waiting.tell(answer),
            None => again.push(waiting),
        }
    }
    Ok(again)
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
