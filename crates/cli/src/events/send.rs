//! Sends events in batches until each is kept or refused.

use std::fmt::Write;
use std::time::Duration;

use sampler_api::{Batch, BatchResult, Problem};
use sampler_verify::words::counted;
use serde::Serialize;

use super::FileEvent;
use crate::api::{Api, ApiError, JSON, pause_until};
use crate::failure::{Failure, in_one_line};
use crate::output::Progress;

/// The longest body of a batch, in bytes: half of what a receiver takes by default.
const BATCH_LEN_MAX: usize = 2 << 20;
/// How often events whose outcome is unknown are sent again without any of them getting on.
const ATTEMPTS: u32 = 12;
const PAUSE_FIRST: Duration = Duration::from_millis(250);
const PAUSE_MAX: Duration = Duration::from_secs(15);
/// How many refused events are told; the others are counted.
const REFUSALS_MAX: usize = 1_000;

/// What became of events. The counts add up to all of them.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Report {
    events: u64,
    accepted: u64,
    replayed: u64,
    refused: u64,
    pub(crate) refusals: Vec<Refusal>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Refusal {
    pub(crate) line: u64,
    pub(crate) status: u16,
    pub(crate) problem: Problem,
}

impl Report {
    fn refuse(&mut self, line: u64, status: u16, problem: Option<Problem>) {
        (self.events, self.refused) = (self.events + 1, self.refused + 1);
        if self.refusals.len() < REFUSALS_MAX {
            self.refusals.push(Refusal {
                line,
                status,
                problem: problem.unwrap_or_default(),
            });
        }
    }

    /// Whether all events are kept.
    pub(crate) fn is_good(&self) -> bool {
        self.refused == 0
    }

    /// For people.
    pub(crate) fn words(&self) -> String {
        let mut words = String::new();
        for refusal in &self.refusals {
            let (line, status) = (refusal.line, refusal.status);
            let problem = in_one_line(&refusal.problem);
            let _ = writeln!(words, "line {line}: {status} {problem}");
        }
        let more = self.refused - self.refusals.len() as u64;
        if more > 0 {
            let _ = writeln!(words, "... and {more} more");
        }
        let events = counted(self.events, "event");
        let (accepted, replayed, refused) = (self.accepted, self.replayed, self.refused);
        words + &format!("{events}: {accepted} accepted, {replayed} replayed, {refused} refused.\n")
    }
}

pub(crate) struct Sender<'a> {
    api: &'a Api,
    size: usize,
    report: Report,
    progress: Progress,
}

impl<'a> Sender<'a> {
    /// Sends so many events at once.
    pub(crate) fn new(api: &'a Api, size: usize, progress: Progress) -> Self {
        Self {
            api,
            size,
            report: Report::default(),
            progress,
        }
    }

    /// How many events are kept or refused.
    pub(super) fn done(&self) -> u64 {
        self.report.events
    }

    pub(crate) fn finish(self) -> Report {
        self.progress.finish();
        self.report
    }

    /// Sends events in their order, in batches of one kind.
    pub(crate) async fn send_events(
        &mut self,
        events: impl IntoIterator<Item = FileEvent>,
    ) -> Result<(), Failure> {
        let (mut batch, mut bytes) = (Vec::<FileEvent>::new(), 0);
        for event in events {
            let first = batch.first();
            let is_other = first.is_some_and(|first| first.is_cloud_event != event.is_cloud_event);
            let is_full = batch.len() >= self.size || bytes + event.body.len() > BATCH_LEN_MAX;
            if is_other || is_full {
                self.settle(std::mem::take(&mut batch)).await?;
                bytes = 0;
            }
            bytes += event.body.len() + 1;
            batch.push(event);
        }
        self.settle(batch).await
    }

    /// Sends a batch until each of its events is kept or refused; in halves, if it is too large.
    async fn settle(&mut self, mut batch: Vec<FileEvent>) -> Result<(), Failure> {
        let (mut attempt, mut own) = (1, PAUSE_FIRST);
        while !batch.is_empty() {
            self.show();
            let outcomes = match self.post(&batch).await {
                Ok(outcomes) => outcomes,
                Err(error) if error.status() == Some(413) && batch.len() > 1 => {
                    let second = batch.split_off(batch.len() / 2);
                    Box::pin(self.settle(batch)).await?;
                    return Box::pin(self.settle(second)).await;
                }
                Err(error) if error.status() == Some(413) => {
                    let problem = error.problem().cloned();
                    self.report.refuse(batch[0].line, 413, problem);
                    return Ok(());
                }
                Err(error) if self.done() > 0 => return Err(Failure::RefusedMidway(error)),
                Err(error) => return Err(error.into()),
            };
            let sent = batch.len();
            let left = self.judge(batch, outcomes);
            if left.len() < sent {
                (attempt, own) = (1, PAUSE_FIRST);
            } else if attempt == ATTEMPTS {
                return Err(given_up(&left, self.done()));
            }
            if !left.is_empty() {
                let asked = left.iter().filter_map(|(_, outcome)| outcome.retry_after);
                let asked = Duration::from_secs(asked.max().unwrap_or_default());
                tokio::time::sleep(pause_until(own, Some(own.max(asked)))).await;
            }
            (attempt, own) = (attempt + 1, (own * 2).min(PAUSE_MAX));
            batch = left.into_iter().map(|(event, _)| event).collect();
        }
        self.show();
        Ok(())
    }

    fn show(&self) {
        let refused = format!(", {} refused", self.report.refused);
        self.progress.show(self.done(), "events", &refused);
    }

    /// Counts what is kept or refused for good. Returns the others. Behind one of these a refusal may follow from
    /// what it says, and is not final.
    fn judge(
        &mut self,
        batch: Vec<FileEvent>,
        outcomes: Vec<BatchResult>,
    ) -> Vec<(FileEvent, BatchResult)> {
        let mut left = Vec::new();
        for (event, outcome) in batch.into_iter().zip(outcomes) {
            match outcome.status {
                200..=299 => {
                    self.report.events += 1;
                    let is_replayed = outcome.replayed == Some(true);
                    self.report.replayed += u64::from(is_replayed);
                    self.report.accepted += u64::from(!is_replayed);
                }
                409 | 422 if !left.is_empty() => left.push((event, outcome)),
                status if is_final(&outcome) => {
                    self.report.refuse(event.line, status, outcome.problem);
                }
                _ => left.push((event, outcome)),
            }
        }
        left
    }

    async fn post(&self, batch: &[FileEvent]) -> Result<Vec<BatchResult>, ApiError> {
        let bodies: Vec<&str> = batch.iter().map(|event| event.body.as_str()).collect();
        let body = format!("[{}]", bodies.join(",\n"));
        let media_type = if batch[0].is_cloud_event {
            "application/cloudevents-batch+json"
        } else {
            JSON
        };
        let answer = self.api.post(&["v1", "events"], media_type, body).await?;
        let Batch { mut results, .. } = answer.read()?;
        results.sort_by_key(|outcome| outcome.index);
        let indices = results.iter().map(|outcome| outcome.index);
        if !indices.eq(0..batch.len()) {
            let what = "the answer to /v1/events cannot be read: not each event has a result";
            return Err(ApiError::new(what));
        }
        Ok(results)
    }
}

/// Whether the event was refused for good. An update is sent until its other half is kept, too: the target
/// is not metered meanwhile.
fn is_final(outcome: &BatchResult) -> bool {
    let is_half_kept = outcome.problem.as_ref().is_some_and(Problem::has_stopped);
    !matches!(outcome.status, 408 | 429 | 500..) && !is_half_kept
}

/// The failure where events get no final answer however often they are sent.
fn given_up(left: &[(FileEvent, BatchResult)], done: u64) -> Failure {
    let (event, outcome) = &left[0];
    let (line, status) = (event.line, outcome.status);
    let problem = outcome.problem.clone();
    let why = problem.as_ref().map(in_one_line).unwrap_or_default();
    let (left, done) = (counted(left.len(), "event"), counted(done, "event"));
    Failure::RefusedMidway(ApiError {
        message: format!(
            "no final answer to {left}, the first in line {line}: {status} {why}; {done} done before; send the file \
             again: what is kept is recognised"
        ),
        status: Some(status),
        problem: problem.map(Box::new),
        ..ApiError::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_without_a_final_answer_are_told_with_the_first_of_them() {
        let problem = Problem {
            r#type: "/problems/throttled".to_owned(),
            detail: "Nothing was kept.".to_owned(),
            ..Problem::default()
        };
        let outcome = BatchResult {
            status: 503,
            problem: Some(problem),
            ..BatchResult::default()
        };
        let event = FileEvent {
            line: 7,
            is_cloud_event: false,
            body: String::new(),
        };
        let failure = given_up(&[(event, outcome)], 6);
        let words = "no final answer to 1 event, the first in line 7: 503 throttled: Nothing was kept.; 6 events \
                     done before; send the file again: what is kept is recognised";
        assert_eq!(failure.to_string(), words);
        assert_eq!(
            (failure.exit_code(), &failure.document()["status"]),
            (3, &503.into())
        );
    }
}
