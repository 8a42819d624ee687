//! Reads the lists of the platform, sends what follows, and keeps how far it is.

use std::time::Duration;

use sampler_verify::moment::{HOUR, InWords, Millis};
use serde_json::Value;

use super::gap::{Behind, Gap};
use super::outside::Outside;
use super::platform::Live;
use super::report::{Report, sentence};
use super::state::{Cursor, Kind, Mark, Refused, Step, Tracked};
use super::store::Store;
use super::translate::gone;
use super::usage_event::{Record, UsageEvent, What, old_enough};
use crate::failure::Failure;
use crate::output::{note, print, print_json_text, printable, wants_json, warn};

/// How often running tasks are looked up, and how often a line says how it goes, in ms.
const TASKS_EVERY: Millis = 600_000;
const LINE_EVERY: Millis = 60_000;
/// The shortest and the longest pause between two rounds.
const ROUND_MIN: Duration = Duration::from_millis(50);
const ROUND_MAX: Duration = Duration::from_mins(1);
/// How often in a row a cursor may be gone.
const GONE_MAX: u32 = 10;
/// For how long a list is read from its beginning, in ms: the platform keeps events for longer.
const BEGINNING_MAX: Millis = 12 * HOUR;

#[derive(Clone, Debug)]
pub(super) struct How {
    pub(super) records: Vec<Record>,
    /// In ms.
    pub(super) min_age: Millis,
    pub(super) is_once: bool,
    pub(super) is_dry: bool,
}

pub(super) struct Feed<O> {
    how: How,
    pub(super) outside: O,
    pub(super) store: Store,
    pub(super) report: Report,
    /// When tasks were looked up, and when a line said how it goes, in ms.
    tasks_at: Option<Millis>,
    told_at: Millis,
}

impl Feed<Live> {
    /// Runs until it has caught up, or for ever.
    pub(super) async fn run(&mut self) -> Result<(), Failure> {
        self.outside.check().await?;
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
            let fifth = u64::try_from(self.how.min_age / 5).unwrap_or_default();
            let pause = Duration::from_millis(fifth).clamp(ROUND_MIN, ROUND_MAX);
            tokio::time::sleep(pause).await;
        }
    }
}

impl<O: Outside> Feed<O> {
    pub(super) fn new(how: How, outside: O, store: Store, report: Report) -> Self {
        let now = outside.now();
        for record in &how.records {
            let read_to = store.state(*record).read_to();
            report.has_read(*record, read_to.unwrap_or(now));
        }
        Self {
            how,
            outside,
            store,
            report,
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
        self.tell();
        Ok(())
    }

    /// Reads a list until the first event that is too young.
    async fn read(&mut self, record: Record) -> Result<(), Failure> {
        let list = record.path();
        for _ in 0..GONE_MAX {
            if self.has_read(record).await? {
                return Ok(());
            }
            if let Some(from) = self.store.state(record).read_to() {
                let (from, now) = (InWords(from), InWords(self.outside.now()));
                warn(&format!(
                    "the platform no longer has the {list} after {from}: what started and ended between then and \
                     {now} is not known"
                ));
            }
            self.store.lose_cursor(record);
        }
        let words = format!("the {list} after the cursor go as fast as they are read");
        Err(Failure::Unanswered(words))
    }

    /// The same. Returns false where the cursor is gone.
    async fn has_read(&mut self, record: Record) -> Result<bool, Failure> {
        let until = self.outside.now() - self.how.min_age;
        let is_there = match self.store.state(record).cursor {
            None => self.fill(record, until).await?,
            Some(Cursor::Beginning(at)) => until - at <= BEGINNING_MAX,
            Some(Cursor::Behind(_)) => true,
        };
        if !is_there {
            return Ok(false);
        }
        loop {
            let until = self.outside.now() - self.how.min_age;
            let mark = self.store.state(record).mark();
            let Some(page) = self.outside.events(record, mark).await? else {
                return Ok(false);
            };
            let old = old_enough(&page.events, until);
            self.take(record, &page.events[..old]).await?;
            if old < page.events.len() || page.is_last {
                self.report.has_read(record, until);
                return Ok(true);
            }
        }
    }

    /// Sends what follows from these events.
    async fn take(&mut self, record: Record, mut rest: &[UsageEvent]) -> Result<(), Failure> {
        while !rest.is_empty() {
            let (step, count) = self.store.state(record).step(record, rest);
            self.send(step).await?;
            self.report.has_read(record, rest[count - 1].at);
            rest = &rest[count..];
        }
        Ok(())
    }

    /// Takes what runs now, where the record says nothing about before. Older events than `until` say nothing more than
    /// the lists. Returns false where the record goes while it is read.
    async fn fill(&mut self, record: Record, until: Millis) -> Result<bool, Failure> {
        let now = self.outside.now();
        let listed = self.outside.running(record).await?;
        let Some(behind) = self.behind(record, None, until).await? else {
            return Ok(false);
        };
        let gap = Gap {
            record,
            state: self.store.state(record),
            // In whole seconds, as the platform's own times: an event of this second is not dated earlier.
            at: now / 1_000 * 1_000,
            listed: &listed,
            behind: &behind,
        };
        let spans = self.outside.open_spans(&gap.organizations()).await?;
        let changes = gap.changes(spans);
        for guid in &listed.unplaced {
            let guid = printable(guid);
            warn(&format!(
                "{guid} is listed, but the platform does not say where it belongs: nothing is sent about it"
            ));
        }
        let cursor = behind.mark;
        let cursor = cursor.map_or(Cursor::Beginning(now), Cursor::Behind);
        let step = Step {
            record,
            cursor: Some(cursor),
            changes,
        };
        self.send(step).await?;
        Ok(true)
    }

    /// Reads a list from a mark to its end, however young its events are. None: the mark is gone.
    async fn behind(
        &self,
        record: Record,
        mark: Option<&Mark>,
        until: Millis,
    ) -> Result<Option<Behind>, Failure> {
        let (mut behind, mut mark, mut is_old) = (Behind::default(), mark.cloned(), true);
        while let Some(page) = self.outside.events(record, mark.as_ref()).await? {
            for event in &page.events {
                is_old &= event.at <= until;
                if is_old {
                    behind.mark = Some(event.into());
                } else if let Some(says) = &event.says {
                    // A note says nothing that a list does not.
                    match says.what {
                        What::Noted => behind.noted.insert(says.guid.clone()),
                        _ => behind.left.insert(says.guid.clone()),
                    };
                }
            }
            if page.is_last {
                return Ok(Some(behind));
            }
            mark = page.events.last().map(Mark::from);
        }
        Ok(None)
    }

    /// Stops tasks whose end the platform does not tell: their start is no longer in its record.
    async fn end_tasks(&mut self) -> Result<(), Failure> {
        let record = Record::Apps;
        let tracked = self.store.state(record).tracked();
        let tasks = tracked.filter(|it| it.kind == Kind::Task).cloned();
        let tasks: Vec<Tracked> = tasks.collect();
        let guids: Vec<String> = tasks.iter().map(|task| task.key().to_owned()).collect();
        let found = self.outside.tasks(&guids).await?;
        let now = self.outside.now();
        let until = now - 2 * self.how.min_age;
        let ended_at = |task: &Tracked| match found.get(task.key()) {
            Some(ended_at) => ended_at.filter(|at| *at <= until),
            None => (task.last <= until).then_some(now),
        };
        let ended = tasks
            .iter()
            .filter_map(|task| Some((task, ended_at(task)?)));
        let mut ended: Vec<(&Tracked, Millis)> = ended.collect();
        if ended.is_empty() {
            return Ok(());
        }
        let mark = self.store.state(record).mark();
        // The next round sees a mark that is gone.
        if let Some(behind) = self.behind(record, mark, Millis::MIN).await? {
            ended.retain(|(task, _)| !behind.left.contains(task.key()));
            let changes = ended.into_iter().map(|(task, at)| gone(task, at));
            let step = Step {
                record,
                cursor: None,
                changes: changes.collect(),
            };
            self.send(step).await?;
        }
        Ok(())
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
        let bodies = step
            .changes
            .iter()
            .filter_map(|change| change.body.as_ref());
        let bodies: Vec<&Value> = bodies.collect();
        let mut refused = Refused::new();
        if self.how.is_dry {
            for body in bodies {
                print_json_text(&body.to_string())?;
            }
        } else {
            refused = self.outside.post(&bodies).await?;
        }
        self.report.count(step, &refused);
        for unknown in step.unknown(&refused) {
            warn(&sentence(unknown));
        }
        self.store.finish(&refused)?;
        self.tell();
        Ok(())
    }

    /// Says once a minute how it goes.
    fn tell(&mut self) {
        let now = self.outside.now();
        if now - self.told_at >= LINE_EVERY {
            self.told_at = now;
            note(self.report.words(now).trim_end());
        }
    }

    /// Reports what was done, and what nobody recorded and no report has told yet.
    pub(super) fn tell_all(&mut self) -> Result<(), Failure> {
        let unknown = self.store.unknown();
        if wants_json() {
            print_json_text(&self.report.document(unknown).to_string())?;
        } else {
            let lines = unknown.iter().map(|unknown| sentence(unknown) + "\n");
            let words = self.report.words(self.outside.now());
            print(&(words + &lines.collect::<String>()))?;
        }
        self.store.told()
    }
}
