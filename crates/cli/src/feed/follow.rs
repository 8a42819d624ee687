//! Reads the lists of the platform, sends what follows, and keeps how far it is.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::time::Duration;

use sampler_verify::moment::{InWords, Millis};
use serde_json::Value;

use super::gap::{Gap, Span};
use super::lists::{EventPage, Listed, TaskState, Unread};
use super::receiver::Live;
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

    async fn running(&self, record: Record) -> Result<Listed, Failure>;

    async fn tasks(&self, guids: &[String]) -> Result<HashMap<String, TaskState>, Failure>;

    /// The open spans at the receiver of which an id is one of these.
    async fn open_spans(
        &self,
        field: &'static str,
        ids: &BTreeSet<String>,
    ) -> Result<Vec<Span>, Failure>;

    /// Sends events until each is kept or refused for good.
    async fn post(&self, bodies: &[&Value]) -> Result<Refused, Failure>;
}

/// What a list has behind the events that are old enough.
#[derive(Debug, Default)]
struct Behind {
    /// The last event that is old enough.
    mark: Option<Mark>,
    /// What has events behind that: these say more than a list.
    left: HashSet<String>,
    /// What is noted behind that, as running.
    noted: HashSet<String>,
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
    pub(super) fn new(how: How, outside: O, store: Store, report: Report) -> Self {
        let now = outside.now();
        for record in &how.records {
            let read_to = store.state().read_to(*record);
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
            if let Some(from) = self.store.state().read_to(record) {
                let (name, from, now) = (record.name(), InWords(from), InWords(self.outside.now()));
                warn(&format!(
                    "the platform no longer has the {name} usage events after {from}: what started and ended between \
                     then and {now} is not known"
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
            None => self.fill(record, until).await?,
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
                self.report.has_read(record, until);
                return Ok(());
            }
        }
    }

    /// Sends what follows from these events.
    async fn take(&mut self, record: Record, mut rest: &[UsageEvent]) -> Result<(), Failure> {
        while !rest.is_empty() {
            let (step, count) = self.store.state().step(record, rest);
            self.send(step).await?;
            self.report.has_read(record, rest[count - 1].at);
            rest = &rest[count..];
        }
        Ok(())
    }

    /// Takes what runs now, where the record says nothing about before. Older events than `until` say nothing more than
    /// the lists.
    async fn fill(&mut self, record: Record, until: Millis) -> Result<(), Unread> {
        let now = self.outside.now();
        let listed = self.outside.running(record).await?;
        let behind = self.behind(record, None, until).await?;
        let mut organizations = listed.organizations.clone();
        organizations.extend(self.store.state().organizations());
        let of_organizations = self.outside.open_spans("organization_id", &organizations);
        let mut spans = of_organizations.await?;
        let gap = Gap {
            record,
            state: self.store.state(),
            // In whole seconds, as the platform's own times: an event of this second is not dated earlier.
            at: now / 1_000 * 1_000,
            listed: &listed,
            left: &behind.left,
            noted: &behind.noted,
        };
        // Spans of organizations that are gone have these resources.
        let resources = gap.resources(&spans);
        spans.extend(self.outside.open_spans("resource_id", &resources).await?);
        let filled = gap.filled(spans);
        for target in filled.others {
            warn(&format!(
                "the span of {} stays open: the platform does not have its organization, so it may be another \
                 platform's",
                printable(&target.to_string())
            ));
        }
        for guid in &listed.unplaced {
            let guid = printable(guid);
            warn(&format!(
                "{guid} is listed, but the platform does not say where it belongs: nothing is sent about it"
            ));
        }
        let cursor = behind.mark;
        let cursor = cursor.map_or(Cursor::Beginning(now), Cursor::Behind);
        let step = Step {
            cursors: [(record, cursor)].into(),
            changes: filled.changes,
        };
        Ok(self.send(step).await?)
    }

    /// Reads a list from a mark to its end, however young its events are.
    async fn behind(
        &self,
        record: Record,
        mark: Option<&Mark>,
        until: Millis,
    ) -> Result<Behind, Unread> {
        let (mut behind, mut mark, mut is_old) = (Behind::default(), mark.cloned(), true);
        loop {
            let page = self.outside.events(record, mark.as_ref()).await?;
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
                return Ok(behind);
            }
            mark = page.events.last().map(Mark::from);
        }
    }

    /// Stops tasks whose end the platform does not tell: their start is no longer in its record.
    async fn end_tasks(&mut self) -> Result<(), Failure> {
        let tasks = self
            .store
            .state()
            .tracked()
            .filter(|it| it.kind == Kind::Task);
        let mut tasks: Vec<Tracked> = tasks.cloned().collect();
        if tasks.is_empty() {
            return Ok(());
        }
        let guids: Vec<String> = tasks.iter().map(|task| task.key().to_owned()).collect();
        let found = self.outside.tasks(&guids).await?;
        let now = self.outside.now();
        let until = now - 2 * self.how.min_age;
        let ended_at = |task: &Tracked| match found.get(task.key()) {
            Some(found) => Some(found.updated_at).filter(|at| found.has_ended && *at <= until),
            None => (task.last <= until).then_some(now),
        };
        tasks.retain(|task| ended_at(task).is_some());
        if tasks.is_empty() {
            return Ok(());
        }
        let mark = self.store.state().mark(Record::Apps);
        let behind = match self.behind(Record::Apps, mark, Millis::MIN).await {
            Ok(behind) => behind,
            // The next round sees it.
            Err(Unread::Gone) => return Ok(()),
            Err(Unread::Failure(failure)) => return Err(failure),
        };
        tasks.retain(|task| !behind.left.contains(task.key()));
        let changes = tasks
            .iter()
            .filter_map(|task| Some(gone(task, ended_at(task)?)));
        let changes = changes.collect();
        let cursors = [].into();
        self.send(Step { cursors, changes }).await
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
        self.tell()
    }

    /// Says once a minute how it goes.
    fn tell(&mut self) -> Result<(), Failure> {
        let now = self.outside.now();
        if now - self.told_at < LINE_EVERY {
            return Ok(());
        }
        self.told_at = now;
        if self.how.is_once || self.how.is_dry {
            note(self.report.words(now).trim_end());
            return Ok(());
        }
        if wants_json() {
            return self.tell_all();
        }
        print(&self.report.words(now))
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
