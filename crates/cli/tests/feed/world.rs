//! A foundation: what it does, what its record says of that, and what it lists.

use std::collections::BTreeMap;

use sampler_verify::moment::Millis;
use sampler_verify::quantity::Measure;

use super::{Faults, Numbers};
use crate::feed::mapping::Mapping;
use crate::feed::state::{Kind, Mark, Tracked, measures};
use crate::feed::usage_event::{Says, UsageEvent, What};

const PROCESSES: u64 = 400;
/// How far the clocks of API servers differ, in ms, and how late a row is seen after its insert.
pub(super) const SKEW: i64 = 3_000;
const LATE_MAX: Millis = 60_000;
/// The time of the first row.
pub(super) const BEGIN: Millis = 1_795_000_000_000;

/// How much of a process runs.
pub(super) type Quantities = Vec<Measure>;

/// A row, and when it is seen.
pub(super) struct Row {
    pub(super) event: UsageEvent,
    seen_at: Millis,
}

/// What really happened to a process: how much of it ran from when on, as the platform has told it.
pub(super) type History = Vec<(Millis, Option<Quantities>)>;

#[derive(Default)]
pub(super) struct Foundation {
    faults: Faults,
    pub(super) rows: Vec<Row>,
    pub(super) runs: BTreeMap<String, Quantities>,
    /// What ran according to the rows that are pruned.
    ran: BTreeMap<String, Quantities>,
    pub(super) truth: BTreeMap<String, History>,
    /// How many events the record has had, and how often each fault has happened.
    pub(super) ids: u64,
    pub(super) late: u64,
    pub(super) skewed: u64,
    pub(super) repeated: u64,
    pub(super) noted: u64,
    /// Processes to note as running: at which number of events, and how.
    to_note: Vec<(u64, String, Option<Quantities>)>,
}

impl Foundation {
    pub(super) fn new(faults: Faults) -> Self {
        Self {
            faults,
            ..Self::default()
        }
    }

    pub(super) fn running(key: &str, quantities: Quantities, at: Millis) -> Tracked {
        let (names, consumer) = (Mapping::default().process(None), format!("app:{key}"));
        let ids = ["o", "s", &consumer, key];
        Tracked::new(Kind::Process, ids, names, quantities, at)
    }

    /// Somebody starts, scales or stops a process.
    pub(super) fn act(&mut self, numbers: &mut Numbers, now: Millis) {
        let key = format!("p-{}", numbers.below(PROCESSES));
        let before = self.runs.get(&key).cloned();
        let quantities = measures(64 + numbers.below(8) as i64, numbers.below(4) as i64);
        let next = match before {
            Some(_) if numbers.is_one_of(2) => None,
            _ => Some(quantities),
        };
        match next.clone() {
            Some(quantities) => self.runs.insert(key.clone(), quantities),
            None => self.runs.remove(&key),
        };
        // Each API server writes by its own clock, in whole seconds.
        let mut skew = 0;
        if self.faults.clocks {
            skew = numbers.below(2 * SKEW as u64) as i64 - SKEW;
        }
        let at = (now + skew) / 1_000 * 1_000;
        let history = self.truth.entry(key.clone()).or_default();
        let last = history.last().map_or(at, |(last, _)| *last);
        self.skewed += u64::from(at < last);
        if next != before {
            history.push((at.max(last), next.clone()));
        }
        let mut seen_at = now;
        if self.faults.late && numbers.is_one_of(5) {
            self.late += 1;
            seen_at += numbers.below(LATE_MAX as u64) as i64;
        }
        self.ids += 1;
        let guid = format!("event-{}", self.ids);
        let says = says(&key, (before.clone(), next.clone()), at);
        self.insert(&guid, says.clone(), at, seen_at);
        if self.faults.repeats && numbers.is_one_of(50) {
            self.repeated += 1;
            self.insert(&guid, says, at, now + LATE_MAX);
        }
        if self.faults.notes && numbers.is_one_of(10) {
            self.to_note
                .push((self.ids + numbers.below(60), key, next.or(before)));
        }
        let due = |(ids, _, _): &mut (u64, _, _)| *ids <= self.ids;
        let notes: Vec<_> = self.to_note.extract_if(.., due).collect();
        for (_, key, quantities) in notes {
            self.note(&key, quantities, at, now);
        }
    }

    /// The platform notes that a process runs; it may just have stopped.
    fn note(&mut self, key: &str, quantities: Option<Quantities>, at: Millis, now: Millis) {
        let Some(quantities) = quantities else {
            return;
        };
        self.noted += 1;
        let says = Says {
            guid: key.to_owned(),
            what: What::Noted,
            part: Some(Self::running(key, quantities, at)),
            was: None,
        };
        self.insert(&format!("note-{}", self.noted), says, at, now);
    }

    fn insert(&mut self, guid: &str, says: Says, at: Millis, seen_at: Millis) {
        let event = UsageEvent {
            guid: guid.to_owned(),
            created_at: shown(at),
            at,
            state: "STATE".to_owned(),
            says: Some(says),
        };
        self.rows.push(Row { event, seen_at });
    }

    /// An administrator purges the table, which is seeded with what runs.
    pub(super) fn purge(&mut self, now: Millis) {
        self.rows.clear();
        self.ran.clear();
        for (key, quantities) in self.runs.clone() {
            let at = now / 1_000 * 1_000;
            let runs = Some(quantities);
            self.insert(&key, says(&key, (runs.clone(), runs), at), at, now);
        }
    }

    /// Takes the oldest rows away.
    pub(super) fn prune(&mut self, count: usize) {
        for row in self.rows.drain(..count) {
            tell(&row.event, &mut self.ran);
        }
    }

    pub(super) fn position(&self, mark: &Mark) -> Option<usize> {
        let mut marks = self
            .rows
            .iter()
            .map(|row| (&row.event.guid, &row.event.created_at));
        marks.rposition(|found| found == (&mark.guid, &mark.created_at))
    }

    /// What is listed: a change that is not committed is in no list.
    pub(super) fn listed(&self, now: Millis) -> BTreeMap<String, Quantities> {
        let mut running = self.ran.clone();
        for row in self.rows.iter().filter(|row| row.seen_at <= now) {
            tell(&row.event, &mut running);
        }
        running
    }

    /// The events after a mark that are seen; none if the mark is gone.
    pub(super) fn after(&self, mark: Option<&Mark>, now: Millis) -> Option<Vec<UsageEvent>> {
        let begin = match mark {
            None => 0,
            Some(mark) => self.position(mark)? + 1,
        };
        let rows = self.rows[begin..].iter();
        let seen = rows.filter(|row| row.seen_at <= now);
        Some(seen.map(|row| row.event.clone()).collect())
    }
}

/// What the record says of a change.
fn says(key: &str, (before, next): (Option<Quantities>, Option<Quantities>), at: Millis) -> Says {
    let running = |quantities| Foundation::running(key, quantities, at);
    let what = match (&before, &next) {
        (_, None) => What::Ends,
        (Some(_), Some(_)) => What::Changes,
        (None, Some(_)) => What::Starts,
    };
    Says {
        guid: key.to_owned(),
        what,
        part: next.clone().or(before.clone()).map(running),
        was: before.or(next),
    }
}

fn tell(event: &UsageEvent, running: &mut BTreeMap<String, Quantities>) {
    let Some(says) = &event.says else { return };
    match (says.what, &says.part) {
        (What::Starts | What::Changes, Some(part)) => {
            running.insert(says.guid.clone(), part.measures.clone());
        }
        (What::Ends, _) => _ = running.remove(&says.guid),
        _ => {}
    }
}

fn shown(at: Millis) -> String {
    chrono::DateTime::from_timestamp_millis(at)
        .unwrap()
        .format("%Y-%m-%dT%H:%M:%SZ")
        .to_string()
}
