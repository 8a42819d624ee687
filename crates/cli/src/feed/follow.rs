//! Reads the lists of the platform, sends what follows, and keeps how far it is.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::time::Duration;

use sampler_verify::moment::{InWords, Millis};
use serde_json::Value;

use super::hole::{Filled, Hole};
use super::lists::{EventPage, Listed, TaskState, Unread};
use super::metrics::Metrics;
use super::receiver::Live;
use super::report::{Report, sentence};
use super::state::{Batch, Cursor, Kind, Mark, Refused, Step};
use super::store::Store;
use super::translate::task_end;
use super::usage_event::{Record, UsageEvent, old_enough};
use crate::event::SpanSeen;
use crate::failure::Failure;
use crate::output::{note, print, print_json_text, printable, wants_json, warn};
use crate::show::print_json;

/// How often running tasks are looked up, and how often a line says how it goes, in ms.
const TASKS_EVERY: Millis = 600_000;
const LINE_EVERY: Millis = 60_000;
/// The shortest and the longest pause between two rounds.
const ROUND_MIN: Duration = Duration::from_millis(50);
const ROUND_MAX: Duration = Duration::from_mins(1);
/// How often in a row a cursor may be gone.
const GONE_MAX: u32 = 10;
/// For how long a list is read from its beginning, in ms: the platform keeps events for longer.
const BEGINNING_MAX: Millis = 12 * 3_600_000;

#[derive(Clone, Debug)]
pub(super) struct How {
    pub(super) records: Vec<Record>,
    /// In ms.
    pub(super) min_age: Millis,
    pub(super) is_once: bool,
    pub(super) is_dry: bool,
}

/// Everything outside: the platform, the receiver and the clock. The tests have another one, with faults.
pub(super) trait Outside {
    /// In ms.
    fn now(&self) -> Millis;

    /// The events after a mark, or from the beginning of the list.
    async fn events(&self, record: Record, mark: Option<&Mark>) -> Result<EventPage, Unread>;

    /// The newest event that is not younger than this, and has no younger one before it.
    async fn newest(&self, record: Record, until: Millis) -> Result<Option<Mark>, Failure>;

    async fn running(&self, record: Record) -> Result<Listed, Failure>;

    async fn tasks(&self, guids: &[String]) -> Result<HashMap<String, TaskState>, Failure>;

    /// The open spans at the receiver of which an id is one of these.
    async fn open_spans(
        &self,
        field: &'static str,
        ids: &BTreeSet<String>,
    ) -> Result<Vec<SpanSeen>, Failure>;

    /// Sends events until each is kept or refused for good.
    async fn post(&self, bodies: &[&Value]) -> Result<Refused, Failure>;
}

pub(super) struct Feed<O> {
    how: How,
    pub(super) outside: O,
    pub(super) store: Store,
    pub(super) report: Report,
    metrics: Metrics,
    /// When tasks were looked up, and when a line said how it goes, in ms.
    tasks_at: Option<Millis>,
    told_at: Millis,
}

impl Feed<Live> {
    /// Runs until it has caught up, or for ever.
    pub(super) async fn run(&mut self) -> Result<(), Failure> {
        self.outside.platform.check().await?;
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
            self.outside.platform.patience.be_endless();
            let fifth = u64::try_from(self.how.min_age / 5).unwrap_or_default();
            let pause = Duration::from_millis(fifth).clamp(ROUND_MIN, ROUND_MAX);
            tokio::time::sleep(pause).await;
        }
    }
}

impl<O: Outside> Feed<O> {
    pub(super) fn new(how: How, outside: O, store: Store, metrics: Metrics) -> Self {
        let now = outside.now();
        for record in &how.records {
            let read_to = store.state().mark(*record).and_then(Mark::at);
            metrics.has_read(*record, read_to.unwrap_or(now));
        }
        Self {
            how,
            outside,
            store,
            report: Report::default(),
            metrics,
            tasks_at: None,
            told_at: now,
        }
    }

    /// Reads everything that is old enough.
    pub(super) async fn round(&mut self) -> Result<(), Failure> {
        // What an earlier round, or an earlier command, has sent without an answer.
        self.settle().await?;
        for record in self.how.records.clone() {
            self.read(record).await?;
        }
        let now = self.outside.now();
        let is_due = self
            .tasks_at
            .is_none_or(|before| now - before >= TASKS_EVERY);
        if is_due && self.how.records.contains(&Record::Apps) {
            self.end_tasks().await?;
            self.tasks_at = Some(now);
        }
        self.store.save_answers()?;
        self.tell()
    }

    /// Reads a list until the first event that is too young.
    async fn read(&mut self, record: Record) -> Result<(), Failure> {
        for _ in 0..GONE_MAX {
            match self.read_once(record).await {
                Ok(()) => return Ok(()),
                Err(Unread::Failure(failure)) => return Err(failure),
                Err(Unread::Gone) => {}
            }
            // A list that has lost its cursor has a hole.
            if let Some(from) = self.store.state().mark(record).and_then(Mark::at) {
                warn(&format!(
                    "the platform no longer has the {} usage events after {}: what started and ended between \
                     then and {} is not known",
                    record.name(),
                    InWords(from),
                    InWords(self.outside.now())
                ));
            }
            self.store.lose_cursor(record);
        }
        let name = record.name();
        let words = format!("the {name} usage events after the cursor go as fast as they are read");
        Err(Failure::Unanswered(words))
    }

    async fn read_once(&mut self, record: Record) -> Result<(), Unread> {
        let until = self.outside.now() - self.how.min_age;
        match self.store.state().cursors.get(&record) {
            None => {
                let mark = self.outside.newest(record, until).await?;
                self.fill(record, mark).await?;
            }
            Some(Cursor::Beginning(at)) if until - at > BEGINNING_MAX => return Err(Unread::Gone),
            Some(_) => {}
        }
        loop {
            let until = self.outside.now() - self.how.min_age;
            let mark = self.store.state().mark(record);
            let page = self.outside.events(record, mark).await?;
            let old = old_enough(&page.events, until);
            self.take(record, &page.events[..old]).await?;
            if old < page.events.len() || page.is_last {
                self.metrics.has_read(record, until);
                return Ok(());
            }
        }
    }

    /// Sends what follows from these events.
    async fn take(&mut self, record: Record, events: &[UsageEvent]) -> Result<(), Failure> {
        let mut rest = events;
        while let Some(first) = rest.first() {
            let mut batch = Batch::new(self.store.state());
            let count = rest
                .iter()
                .take_while(|event| batch.add(record, event))
                .count();
            let step = batch.step;
            self.send(step).await?;
            let last = rest[..count].last().unwrap_or(first);
            self.metrics.has_read(record, last.at);
            rest = &rest[count..];
        }
        Ok(())
    }

    /// Takes what runs now, where the record says nothing about before.
    async fn fill(&mut self, record: Record, mark: Option<Mark>) -> Result<(), Unread> {
        let now = self.outside.now();
        // In whole seconds, as the platform's own times: an event of this second is not dated earlier.
        let at = now / 1_000 * 1_000;
        let listed = self.outside.running(record).await?;
        let (left, noted) = self.subjects_after(record, mark.as_ref()).await?;
        let mut organizations = listed.organizations.clone();
        organizations.extend(self.store.state().organizations());
        let mut spans = self
            .outside
            .open_spans("organization_id", &organizations)
            .await?;
        let hole = Hole {
            record,
            state: self.store.state(),
            at,
            listed: &listed,
            left: &left,
            noted: &noted,
        };
        // Spans of organizations that are gone have these resources.
        let resources = hole.resources(&spans);
        spans.extend(self.outside.open_spans("resource_id", &resources).await?);
        let Filled { changes, others } = hole.filled(spans);
        for target in others {
            let target = printable(&target.to_string());
            warn(&format!(
                "the span of {target} stays open: the platform does not have its organization, so it may be \
                 another platform's"
            ));
        }
        for guid in &listed.unplaced {
            let guid = printable(guid);
            warn(&format!(
                "{guid} is listed, but the platform does not say where it belongs: nothing is sent about it"
            ));
        }
        let cursor = mark.map_or(Cursor::Beginning(now), Cursor::Behind);
        let cursors = [(record, cursor)].into();
        Ok(self.send(Step { cursors, changes }).await?)
    }

    /// What has events after a mark, however young they are; and what is only noted: a note says nothing that
    /// a list does not.
    async fn subjects_after(
        &self,
        record: Record,
        mark: Option<&Mark>,
    ) -> Result<(HashSet<String>, HashSet<String>), Unread> {
        let (mut left, mut noted, mut mark) = (HashSet::new(), HashSet::new(), mark.cloned());
        loop {
            let page = self.outside.events(record, mark.as_ref()).await?;
            for event in &page.events {
                let subjects = if event.is_note() {
                    &mut noted
                } else {
                    &mut left
                };
                subjects.extend(event.subject().map(str::to_owned));
            }
            if page.is_last {
                return Ok((left, noted));
            }
            mark = page.events.last().map(Mark::from);
        }
    }

    /// Stops tasks whose end the platform does not tell: their start is no longer in its record.
    async fn end_tasks(&mut self) -> Result<(), Failure> {
        let tracked = self.store.state().tracked();
        let tasks = tracked.filter(|(_, tracked)| tracked.kind == Kind::Task);
        let tasks: Vec<_> = tasks.map(|(guid, it)| (guid.clone(), it.clone())).collect();
        if tasks.is_empty() {
            return Ok(());
        }
        let guids: Vec<String> = tasks.iter().map(|(guid, _)| guid.clone()).collect();
        let found = self.outside.tasks(&guids).await?;
        let now = self.outside.now();
        let until = now - 2 * self.how.min_age;
        let mut changes = Vec::new();
        for (guid, tracked) in &tasks {
            let at = match found.get(guid) {
                Some(task) if task.has_ended && task.updated_at <= until => task.updated_at,
                None if tracked.last <= until => now,
                _ => continue,
            };
            changes.push(task_end(guid, tracked, at));
        }
        if changes.is_empty() {
            return Ok(());
        }
        let mark = self.store.state().mark(Record::Apps);
        let left = match self.subjects_after(Record::Apps, mark).await {
            Ok((left, _)) => left,
            // The next round sees it.
            Err(Unread::Gone) => return Ok(()),
            Err(Unread::Failure(failure)) => return Err(failure),
        };
        changes.retain(|change| change.key.as_ref().is_none_or(|key| !left.contains(key)));
        self.send(Step {
            changes,
            ..Step::default()
        })
        .await
    }

    async fn send(&mut self, step: Step) -> Result<(), Failure> {
        self.store.begin(step)?;
        self.settle().await
    }

    /// Sends what is written, until all of it is answered.
    async fn settle(&mut self) -> Result<(), Failure> {
        let Some(step) = self.store.pending() else {
            return Ok(());
        };
        let bodies: Vec<&Value> = step.events().map(|event| &event.body).collect();
        let mut refused = Refused::new();
        if self.how.is_dry {
            for body in bodies {
                print_json_text(&body.to_string())?;
            }
        } else {
            refused = self.outside.post(&bodies).await?;
        }
        self.report.count(step, &refused, &self.metrics);
        for unknown in step.unknown(&refused) {
            warn(&sentence(unknown));
        }
        self.store.finish(&refused)?;
        self.tell()
    }

    /// Says once a minute how it goes.
    fn tell(&mut self) -> Result<(), Failure> {
        let now = self.outside.now();
        if now - self.told_at < LINE_EVERY {
            return Ok(());
        }
        self.told_at = now;
        let line = self.report.line(self.metrics.lag_seconds(now));
        match (self.how.is_once || self.how.is_dry, wants_json()) {
            (true, _) => {
                note(&line);
                Ok(())
            }
            (false, false) => print(&format!("{line}\n")),
            (false, true) => {
                let document = self.report.document(self.store.unknown());
                print_json_text(&document.to_string())?;
                self.store.told()
            }
        }
    }

    /// Reports at the end what was done, and what nobody recorded and no report has told yet.
    pub(super) fn tell_all(&mut self, is_json: bool) -> Result<(), Failure> {
        let unknown = self.store.unknown();
        if is_json {
            print_json(&self.report.document(unknown))?;
        } else {
            print(&self.report.words(unknown))?;
        }
        self.store.told()
    }
}
