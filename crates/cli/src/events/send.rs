//! Sends events in batches until each is kept or refused.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use indicatif::HumanCount;
use sampler_api::{Batch, BatchResult, Problem};

use super::input::FileEvent;
use super::outcome::{Unsettled, given_up, judge, pause};
use super::report::Report;
use crate::api::{Api, ApiError, Request};
use crate::failure::Failure;
use crate::progress::Progress;

const PATH: [&str; 2] = ["v1", "events"];
/// The longest body of a batch, in bytes: half of what a receiver takes by default.
const BATCH_LEN_MAX: usize = 2 << 20;
/// How often events whose outcome is unknown are sent again without any of them getting on.
const ATTEMPTS: u32 = 12;
const PAUSE_FIRST: Duration = Duration::from_millis(250);
const PAUSE_MAX: Duration = Duration::from_secs(15);

pub(crate) struct Sender<'a> {
    api: &'a Api,
    size: usize,
    /// Events that are sent next: all of one kind.
    batch: Vec<FileEvent>,
    bytes: usize,
    report: Report,
    /// How many events are kept or refused, for whom it interests.
    done: Arc<AtomicU64>,
    progress: Progress,
}

impl<'a> Sender<'a> {
    /// Sends so many events at once; `total` is how many come.
    pub(crate) fn new(api: &'a Api, size: usize, total: u64) -> Self {
        Self {
            api,
            size,
            batch: Vec::new(),
            bytes: 0,
            report: Report::default(),
            done: Arc::default(),
            progress: Progress::to(Some(total)),
        }
    }

    /// Without a line on a terminal.
    pub(crate) fn quiet(self) -> Self {
        Self {
            progress: Progress::hidden(),
            ..self
        }
    }

    pub(super) fn done(&self) -> Arc<AtomicU64> {
        self.done.clone()
    }

    pub(crate) async fn send_events(
        &mut self,
        events: impl Iterator<Item = FileEvent>,
    ) -> Result<(), Failure> {
        for event in events {
            self.add(event).await?;
        }
        self.flush().await
    }

    pub(crate) fn finish(self) -> Report {
        self.progress.finish();
        self.report
    }

    pub(super) async fn add(&mut self, event: FileEvent) -> Result<(), Failure> {
        let first = self.batch.first();
        let is_other = first.is_some_and(|first| first.is_cloud_event != event.is_cloud_event);
        let is_full = self.bytes + event.body.len() > BATCH_LEN_MAX;
        if is_other || is_full || self.batch.len() >= self.size {
            self.flush().await?;
        }
        self.bytes += event.body.len() + 1;
        self.batch.push(event);
        Ok(())
    }

    /// Sends the batch until all of its events are kept or refused.
    pub(super) async fn flush(&mut self) -> Result<(), Failure> {
        self.bytes = 0;
        self.show();
        // Halves of a batch that is too large, in their order: the next one last.
        let mut parts = vec![std::mem::take(&mut self.batch)];
        while let Some(part) = parts.pop() {
            if let Some(halves) = self.settle(part).await? {
                parts.extend(halves);
            }
            self.show();
        }
        Ok(())
    }

    fn show(&mut self) {
        let (events, refused) = (self.report.events(), self.report.refused);
        self.done.store(events, Ordering::SeqCst);
        let refused = format!(", {} refused", HumanCount(refused));
        self.progress.show(events, events, "events", &refused);
    }

    /// Sends events until each is kept or refused. Returns the halves of a batch that the receiver
    /// finds too large.
    async fn settle(
        &mut self,
        mut part: Vec<FileEvent>,
    ) -> Result<Option<[Vec<FileEvent>; 2]>, Failure> {
        let (mut attempt, mut own) = (1, PAUSE_FIRST);
        while !part.is_empty() {
            let outcomes = match self.post(&part).await {
                Ok(outcomes) => outcomes,
                Err(error) if error.status() == Some(413) => return Ok(self.halved(part, &error)),
                Err(error) if self.report.events() > 0 => {
                    return Err(Failure::RefusedMidway(error));
                }
                Err(error) => return Err(error.into()),
            };
            let before = part.len();
            let unsettled: Vec<Unsettled> = judge(&mut self.report, part, outcomes);
            if unsettled.is_empty() {
                break;
            }
            if unsettled.len() < before {
                (attempt, own) = (1, PAUSE_FIRST);
            } else if attempt == ATTEMPTS {
                return Err(given_up(&unsettled, self.report.events()));
            }
            tokio::time::sleep(pause(own, &unsettled)).await;
            (attempt, own) = (attempt + 1, (own * 2).min(PAUSE_MAX));
            part = unsettled.into_iter().map(|(event, _)| event).collect();
        }
        Ok(None)
    }

    /// The halves of what is too large; an event alone is refused.
    fn halved(
        &mut self,
        mut part: Vec<FileEvent>,
        error: &ApiError,
    ) -> Option<[Vec<FileEvent>; 2]> {
        if part.len() > 1 {
            let second = part.split_off(part.len() / 2);
            return Some([second, part]);
        }
        let problem = error.problem().cloned().unwrap_or_else(|| Problem {
            detail: error.to_string(),
            ..Problem::default()
        });
        self.report.refuse(part[0].line, 413, problem);
        None
    }

    async fn post(&self, part: &[FileEvent]) -> Result<Vec<BatchResult>, ApiError> {
        let bodies: Vec<&str> = part.iter().map(|event| event.body.as_str()).collect();
        let body = format!("[{}]", bodies.join(",\n")).into_bytes();
        let media_type = if part[0].is_cloud_event {
            "application/cloudevents-batch+json"
        } else {
            "application/json"
        };
        let request = Request::post(&PATH).body(media_type, body);
        let answer = self.api.call(&request).await?;
        let Batch { mut results, .. } = answer.read(&PATH)?;
        results.sort_by_key(|outcome| outcome.index);
        let indices = results.iter().map(|outcome| outcome.index);
        if !indices.eq(0..part.len()) {
            return Err(ApiError::Unreadable {
                path: "/v1/events".to_owned(),
                reason: "not each event has a result".to_owned(),
            });
        }
        Ok(results)
    }
}
