//! Reads the lists of the platform, sends what follows, and keeps how far it is.

mod receiver;

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use sampler_verify::moment::{InWords, Millis};
use tokio::time::Instant;

use super::hole::Hole;
use super::lists::Unread;
use super::mapping::Mapping;
use super::metrics::Metrics;
use super::platform::Platform;
use super::report::{Report, TOLD_MAX, UNKNOWN_SHOWN, tell_unfilled, tell_unknown};
use super::rules::{Batch, Cursor, Mark, Of, Planned, Step};
use super::store::Store;
use super::translate::task_end;
use super::usage_event::{Record, UsageEvent, old_enough};
use crate::api::Api;
use crate::clock;
use crate::failure::Failure;
use crate::output::{print, print_json_text, wants_json, warn};
use crate::show::print_json;

/// How many events are sent at once, and in one step.
const BATCH: usize = 500;
/// How often running tasks are looked up.
const TASKS_EVERY: Duration = Duration::from_mins(10);
/// The longest pause between two rounds, the shortest, and how often a line says how it goes.
const ROUND_MAX: Duration = Duration::from_mins(1);
const ROUND_MIN: Duration = Duration::from_millis(50);
const LINE_EVERY: Duration = Duration::from_mins(1);
/// How often in a row a mark may be gone.
const GONE_MAX: u32 = 10;

#[derive(Debug)]
pub(super) struct How {
    pub(super) records: Vec<Record>,
    /// In ms.
    pub(super) min_age: Millis,
    pub(super) is_once: bool,
    pub(super) is_dry: bool,
    pub(super) replays: bool,
}

pub(super) struct Feed {
    how: How,
    api: Api,
    platform: Platform,
    pub(super) store: Store,
    mapping: Mapping,
    pub(super) report: Report,
    metrics: Metrics,
    bar: ProgressBar,
    tasks_at: Option<Instant>,
    told_at: Instant,
}

impl Feed {
    pub(super) fn new(
        how: How,
        api: Api,
        platform: Platform,
        store: Store,
        mapping: Mapping,
        metrics: Metrics,
    ) -> Self {
        for record in &how.records {
            // What is not read since then, while nothing can be read.
            let mark = store.state.cursors.get(record).map(|it| it.mark.as_ref());
            let read_to = mark.flatten().and_then(Mark::at);
            metrics.has_read(*record, read_to.unwrap_or_else(clock::now));
        }
        Self {
            how,
            api,
            platform,
            store,
            mapping,
            report: Report::default(),
            metrics,
            bar: ProgressBar::hidden(),
            tasks_at: None,
            told_at: Instant::now(),
        }
    }

    /// Runs until it has caught up, or for ever.
    pub(super) async fn run(&mut self) -> Result<(), Failure> {
        if self.tells_at_once() {
            // What an earlier command has found, if it ended before it printed the table.
            let (unknown, count) = self.store.untold(TOLD_MAX)?;
            tell_unknown(unknown.iter(), count);
        }
        self.platform.check().await?;
        let mut has_worked = false;
        loop {
            match self.round().await {
                Ok(()) if self.how.is_once => return Ok(()),
                Ok(()) => has_worked = true,
                Err(failure @ Failure::Unanswered(_)) if has_worked => {
                    warn(&format!("{failure}; it is asked again"));
                }
                Err(failure) => return Err(failure),
            }
            self.platform.patience.be_endless();
            self.tell()?;
            let fifth = u64::try_from(self.how.min_age / 5).unwrap_or_default();
            let pause = Duration::from_millis(fifth).clamp(ROUND_MIN, ROUND_MAX);
            tokio::time::sleep(pause).await;
        }
    }

    async fn round(&mut self) -> Result<(), Failure> {
        // What an earlier round, or an earlier command, has sent without an answer.
        self.settle().await?;
        for record in self.how.records.clone() {
            self.read(record).await?;
        }
        self.bar.finish_and_clear();
        self.bar = ProgressBar::hidden();
        let is_due = self
            .tasks_at
            .is_none_or(|before| before.elapsed() >= TASKS_EVERY);
        if is_due && self.how.records.contains(&Record::Apps) {
            self.end_tasks().await?;
            self.tasks_at = Some(Instant::now());
        }
        Ok(())
    }

    /// Reads a list until the first event that is too young.
    async fn read(&mut self, record: Record) -> Result<(), Failure> {
        let mut gone = 0;
        loop {
            match self.read_once(record).await {
                Ok(()) => return Ok(()),
                Err(Unread::Failure(failure)) => return Err(failure),
                Err(Unread::Gone) if gone == GONE_MAX => {
                    let words = "the events after the cursor go as fast as they are read";
                    return Err(self.platform.fatal(words).failure);
                }
                Err(Unread::Gone) => gone += 1,
            }
            // A record that is gone is a hole.
            let lost = self.store.state.cursors.remove(&record);
            if let Some(from) = lost.and_then(|cursor| cursor.mark?.at()) {
                let until = InWords(clock::now());
                warn(&format!(
                    "the platform no longer has the {} usage events after {}: what started and ended between \
                     then and {until} is not known",
                    record.name(),
                    InWords(from)
                ));
            }
        }
    }

    async fn read_once(&mut self, record: Record) -> Result<(), Unread> {
        loop {
            if let Some(cursor) = self.store.state.cursors.get(&record).cloned() {
                if !cursor.has_more {
                    self.read_pages(record).await?;
                }
                if cursor.is_complete {
                    return Ok(());
                }
                self.fill(record, self.mark(record)).await?;
            } else if self.how.replays {
                let mut step = Step::default();
                step.cursors.insert(record, Cursor::default());
                self.send(step).await?;
            } else {
                let until = clock::now() - self.how.min_age;
                let mark = self.platform.newest(record, until).await?;
                self.fill(record, mark).await?;
            }
        }
    }

    fn mark(&self, record: Record) -> Option<Mark> {
        let cursor = self.store.state.cursors.get(&record);
        cursor.and_then(|cursor| cursor.mark.clone())
    }

    async fn read_pages(&mut self, record: Record) -> Result<(), Unread> {
        loop {
            let until = clock::now() - self.how.min_age;
            let mark = self.mark(record);
            let page = self.platform.events(record, mark.as_ref()).await?;
            let old = old_enough(&page.events, until);
            if page.total > old as u64 || !page.is_last {
                self.show(page.total);
            }
            self.take(record, &page.events[..old]).await?;
            if old < page.events.len() || page.is_last {
                self.metrics.has_read(record, until);
                return Ok(());
            }
        }
    }

    /// Sends what follows from these events, in steps.
    async fn take(&mut self, record: Record, events: &[UsageEvent]) -> Result<(), Failure> {
        let mut rest = events;
        while !rest.is_empty() {
            let mut batch = Batch::new(&self.store.state, &self.mapping);
            let mut count = 0;
            for event in rest {
                if batch.step.events.len() == BATCH || batch.must_wait(event) {
                    break;
                }
                batch.add(record, event);
                count += 1;
            }
            let step = batch.step;
            self.send(step).await?;
            if let Some(event) = rest[..count].last() {
                self.metrics.has_read(record, event.at);
            }
            self.bar.inc(count as u64);
            rest = &rest[count..];
        }
        Ok(())
    }

    /// A bar on a terminal, while there is much to read.
    fn show(&mut self, total: u64) {
        if !self.how.is_dry && !wants_json() && std::io::stderr().is_terminal() {
            if self.bar.is_hidden() {
                let style = ProgressStyle::with_template("{bar:40} {pos}/{len} events, {eta}");
                self.bar = ProgressBar::new(0);
                if let Ok(style) = style {
                    self.bar.set_style(style);
                }
            }
            self.bar.set_length(self.bar.position() + total);
        }
    }

    /// Takes what runs now, where the record says nothing about before.
    async fn fill(&mut self, record: Record, mark: Option<Mark>) -> Result<(), Unread> {
        // In whole seconds, as the platform's own times: an event of this second is not dated earlier.
        let at = clock::now() / 1_000 * 1_000;
        let listed = self.platform.running(record).await?;
        let left = self.platform.subjects_after(record, mark.as_ref()).await?;
        let open = self.left_open(record, &listed.organizations).await?;
        let hole = Hole {
            record,
            state: &self.store.state,
            mapping: &self.mapping,
            at,
            mark,
            listed: &listed,
            left: &left,
            open: &open,
        };
        let answers = self.compare(hole.snapshots()).await?;
        let filled = hole.filled(&answers);
        tell_unfilled(&filled, &listed.unplaced);
        Ok(self.send(filled.step).await?)
    }

    /// Stops tasks whose end the platform does not report: their start is no longer in its record.
    async fn end_tasks(&mut self) -> Result<(), Failure> {
        let tracked = self.store.state.tracked();
        let tasks = tracked.filter(|(_, tracked)| tracked.of == Of::Task);
        let guids: Vec<String> = tasks.map(|(guid, _)| guid.clone()).collect();
        if guids.is_empty() {
            return Ok(());
        }
        let found = self.platform.tasks(&guids).await?;
        let now = clock::now();
        let until = now - 2 * self.how.min_age;
        let mut ended: Vec<Planned> = Vec::new();
        for (guid, tracked) in self.store.state.tracked() {
            if tracked.of != Of::Task {
                continue;
            }
            let at = match found.get(guid) {
                Some(task) if task.has_ended && task.updated_at <= until => task.updated_at,
                None if tracked.last <= until => now,
                _ => continue,
            };
            ended.push(task_end(guid, tracked, at));
        }
        if ended.is_empty() {
            return Ok(());
        }
        let mark = self.mark(Record::Apps);
        let left = self.platform.subjects_after(Record::Apps, mark.as_ref());
        let left = match left.await {
            Ok(left) => left,
            // The next round sees it.
            Err(Unread::Gone) => return Ok(()),
            Err(Unread::Failure(failure)) => return Err(failure),
        };
        ended.retain(|event| !left.contains(&event.key));
        let events = ended;
        self.send(Step {
            events,
            ..Step::default()
        })
        .await
    }

    async fn send(&mut self, step: Step) -> Result<(), Failure> {
        self.store.begin(step)?;
        self.settle().await
    }

    /// Sends what the journal says, until all of it is answered.
    async fn settle(&mut self) -> Result<(), Failure> {
        let Some(step) = self.store.pending().cloned() else {
            return Ok(());
        };
        let mut refused = Vec::new();
        if self.how.is_dry {
            for event in &step.events {
                print_json_text(&event.body.to_string())?;
            }
        } else {
            for (number, part) in step.events.chunks(BATCH).enumerate() {
                let (more, documents) = self.post(part, number * BATCH).await?;
                self.store.refuse(&documents)?;
                refused.extend(more);
            }
        }
        self.store.finish(refused.clone())?;
        self.report.count(&step, &refused, &self.metrics);
        if self.tells_at_once() {
            let unknown = step.unknown(&refused);
            let count = unknown.len() as u64;
            tell_unknown(unknown.into_iter().take(TOLD_MAX), count);
        }
        self.tell()
    }

    /// Whether it keeps running: then unrecorded starts and ends are reported as soon as they are found.
    fn tells_at_once(&self) -> bool {
        !self.how.is_once && !self.how.is_dry
    }

    /// Says once a minute how it goes.
    fn tell(&mut self) -> Result<(), Failure> {
        if self.how.is_once || self.told_at.elapsed() < LINE_EVERY {
            return Ok(());
        }
        self.told_at = Instant::now();
        if wants_json() {
            let (unknown, _) = self.store.untold(usize::MAX)?;
            print_json_text(&self.report.document(&unknown).to_string())?;
            self.store.told();
            return Ok(());
        }
        let line = self.report.line(self.metrics.lag_seconds());
        print(&format!("{line}\n"))
    }

    /// Reports at the end what was done, and what nobody recorded and was not reported yet.
    pub(super) fn tell_all(&mut self, is_json: bool) -> Result<(), Failure> {
        if is_json {
            let (unknown, _) = self.store.untold(usize::MAX)?;
            print_json(&self.report.document(&unknown))?;
        } else {
            let (unknown, count) = self.store.untold(UNKNOWN_SHOWN)?;
            print(&self.report.words(&unknown, count))?;
        }
        self.store.told();
        self.store.fold()
    }
}

/// What the followed lists are: both, unless one is named.
pub(super) fn records(apps: bool, services: bool) -> Vec<Record> {
    let mut records = Vec::new();
    if services || !apps {
        records.push(Record::Services);
    }
    if apps || !services {
        records.push(Record::Apps);
    }
    records
}
