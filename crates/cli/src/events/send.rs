//! Sends events in batches, and reads the result of each.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use indicatif::HumanCount;
use sampler_api::{Batch, BatchResult};
use sampler_verify::words::{counted, form};

use super::file_event::FileEvent;
use super::input::{Input, Item};
use super::interruption::Done;
use super::journal::{Extent, Journal};
use super::outcome::{given_up, judge, pause};
use super::report::{Report, Why};
use crate::api::{Api, ApiError, Request};
use crate::failure::Failure;
use crate::output::warn;
use crate::progress::Progress;

pub(super) const PATH: [&str; 2] = ["v1", "events"];
/// The longest body of a batch, in bytes: half of what a receiver takes by default.
const BATCH_LEN_MAX: usize = 2 << 20;
/// How often events whose outcome is unknown are sent again without any of them getting on.
const ATTEMPTS: u32 = 12;
const PAUSE_FIRST: Duration = Duration::from_millis(250);
const PAUSE_MAX: Duration = Duration::from_secs(15);

pub(crate) struct Sender<'a> {
    api: &'a Api,
    journal: Journal,
    size: usize,
    /// Events that are sent next: all of one kind.
    batch: Vec<FileEvent>,
    bytes: usize,
    /// All events that were taken in.
    taken: Extent,
    /// Whether the receiver has answered a batch.
    has_sent: bool,
    /// Whether the user has given the origin of relative times, or knows it.
    pub(super) is_now_given: bool,
    /// How many events are done, for whom it interests.
    done: Arc<AtomicU64>,
    progress: Progress,
    /// How much of the input was read.
    position: u64,
}

impl<'a> Sender<'a> {
    /// `length` is that of the whole input, as [`Input::length`] has it.
    pub(super) fn new(api: &'a Api, journal: Journal, size: usize, length: Option<u64>) -> Self {
        Self {
            done: Arc::new(AtomicU64::new(journal.done.events)),
            api,
            journal,
            size,
            batch: Vec::new(),
            bytes: 0,
            taken: Extent::default(),
            has_sent: false,
            is_now_given: false,
            progress: Progress::to(length),
            position: 0,
        }
    }

    /// Sends what follows from something else than a file.
    pub(crate) fn unjournaled(api: &'a Api, size: usize, events: u64) -> Self {
        Self::new(api, Journal::none(0), size, Some(events))
    }

    pub(super) fn done(&self) -> Done {
        Done {
            events: self.done.clone(),
            is_noted: self.journal.is_kept(),
        }
    }

    /// Leaves no journal behind if nothing was sent.
    pub(super) fn forget_what_was_not_begun(&self) {
        self.progress.finish();
        self.journal.forget_what_was_not_begun();
    }

    /// Without a line on a terminal.
    pub(crate) fn quiet(self) -> Self {
        Self {
            progress: Progress::hidden(),
            ..self
        }
    }

    /// Sends what is left of a file.
    pub(super) async fn send(&mut self, mut input: Input) -> Result<(), Failure> {
        let again = self.pass_done(&mut input)?;
        self.show();
        for item in again {
            self.item(item).await?;
        }
        while let Some(item) = self.next(&mut input)? {
            self.item(item).await?;
        }
        self.flush().await
    }

    /// Passes over what is done, if all that was sent is still there. Returns what was sent, but got
    /// no answer.
    fn pass_done(&mut self, input: &mut Input) -> Result<Vec<Item>, Failure> {
        let (done, sent) = (self.journal.done, self.journal.sent);
        let (mut passed, mut again) = (Extent::default(), Vec::new());
        while passed.events < sent.events
            && let Some(item) = self.next(input)?
        {
            passed = item.extend(passed);
            if passed.events <= done.events {
                self.taken = passed;
            } else {
                again.push(item);
            }
        }
        if (self.taken, passed) == (done, sent) {
            return Ok(again);
        }
        let (name, sent) = (input.name(), counted(sent.events, "event"));
        Err(Failure::Input(format!(
            "{name}: of the {sent} sent before one has changed: restore it, or --restart sends all from \
             the beginning"
        )))
    }

    fn next(&mut self, input: &mut Input) -> Result<Option<Item>, Failure> {
        let next = input.next();
        self.position = input.position();
        if input.has_relative() && !self.is_now_given {
            self.is_now_given = true;
            let now = self.journal.now();
            warn(&format!(
                "times in the file count from now: to send the same events again, add --now {now}"
            ));
        }
        next.map_err(|failure| self.midway(failure))
    }

    /// A failure of this machine, which has another meaning once something was sent.
    fn midway(&self, failure: Failure) -> Failure {
        match failure {
            Failure::Input(why) if self.has_sent => {
                let done = self.journal.done.events;
                Failure::Interrupted(format!(
                    "{why}; {} before {} done; the same command continues from there",
                    counted(done, "event"),
                    form(done, "is", "are"),
                ))
            }
            failure => failure,
        }
    }

    pub(crate) async fn send_events(
        &mut self,
        events: impl Iterator<Item = FileEvent>,
    ) -> Result<(), Failure> {
        for event in events {
            let line = event.line;
            let event = Ok(event);
            self.position += 1;
            self.item(Item { line, event }).await?;
        }
        self.flush().await
    }

    pub(crate) fn finish(self) -> Result<Report, Failure> {
        self.progress.finish();
        self.journal.end()
    }

    async fn item(&mut self, item: Item) -> Result<(), Failure> {
        if let Ok(event) = &item.event {
            let is_other = self
                .batch
                .first()
                .is_some_and(|first| first.is_cloud_event != event.is_cloud_event);
            let is_full = self.bytes + event.body.len() > BATCH_LEN_MAX;
            if is_other || is_full {
                self.flush().await?;
            }
        }
        self.taken = item.extend(self.taken);
        match item.event {
            Ok(event) => {
                self.bytes += event.body.len() + 1;
                self.batch.push(event);
            }
            Err(reason) => self
                .journal
                .report
                .refuse(item.line, None, Why::Words(reason)),
        }
        if self.batch.len() >= self.size {
            self.flush().await?;
        }
        Ok(())
    }

    /// Sends the batch until all of its events are kept or refused.
    async fn flush(&mut self) -> Result<(), Failure> {
        let batch = std::mem::take(&mut self.batch);
        self.bytes = 0;
        if self.taken == self.journal.done {
            return Ok(());
        }
        let noted = self.journal.note_sent(self.taken);
        noted.map_err(|failure| self.midway(failure))?;
        // Halves of a batch that is too large, in their order: the next one last.
        let mut parts = vec![batch];
        while let Some(part) = parts.pop() {
            if let Some(halves) = self.settle(part).await? {
                parts.extend(halves);
            }
        }
        let noted = self.journal.note_done(self.taken);
        noted.map_err(|failure| self.midway(failure))?;
        self.done.store(self.journal.done.events, Ordering::SeqCst);
        self.show();
        Ok(())
    }

    fn show(&mut self) {
        let report = &self.journal.report;
        let refused = format!(", {} refused", HumanCount(report.refused));
        let events = report.events();
        self.progress
            .show(self.position, events, "events", &refused);
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
                Ok(outcomes) => {
                    self.has_sent = true;
                    outcomes
                }
                Err(error) if error.status() == Some(413) => {
                    if part.len() > 1 {
                        let second = part.split_off(part.len() / 2);
                        return Ok(Some([second, part]));
                    }
                    let reason = Why::Words(error.to_string());
                    self.journal.report.refuse(part[0].line, Some(413), reason);
                    return Ok(None);
                }
                Err(error) if self.has_sent => return Err(Failure::RefusedMidway(error)),
                Err(error) => return Err(error.into()),
            };
            let before = part.len();
            let unsettled = judge(&mut self.journal.report, part, outcomes);
            if unsettled.is_empty() {
                break;
            }
            if unsettled.len() < before {
                (attempt, own) = (1, PAUSE_FIRST);
            } else if attempt == ATTEMPTS {
                return Err(given_up(&unsettled, self.journal.done.events));
            }
            tokio::time::sleep(pause(own, &unsettled)).await;
            (attempt, own) = (attempt + 1, (own * 2).min(PAUSE_MAX));
            part = unsettled.into_iter().map(|(event, _)| event).collect();
        }
        Ok(None)
    }

    async fn post(&self, part: &[FileEvent]) -> Result<Vec<BatchResult>, ApiError> {
        let bodies: Vec<&str> = part.iter().map(|event| event.body.as_str()).collect();
        let body = format!("[{}]", bodies.join(",\n")).into_bytes();
        let request = Request::post(&PATH).body(media_type(part), body);
        let answer = self.api.call(&request).await?;
        let Batch { mut results, .. } = answer.read(&PATH)?;
        results.sort_by_key(|outcome| outcome.index);
        let is_each = results
            .iter()
            .map(|outcome| outcome.index)
            .eq(0..part.len());
        if !is_each {
            let (path, reason) = (
                "/v1/events".to_owned(),
                "not each event has a result".to_owned(),
            );
            return Err(ApiError::Unreadable { path, reason });
        }
        Ok(results)
    }
}

pub(super) fn media_type(part: &[FileEvent]) -> &'static str {
    match part.first() {
        Some(event) if event.is_cloud_event => "application/cloudevents-batch+json",
        _ => "application/json",
    }
}
