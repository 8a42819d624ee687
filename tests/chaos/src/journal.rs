//! What a run has come to: counts, the events that were accepted, and what is wrong.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use serde_json::Value;

/// How many mistakes are shown.
const SHOWN: usize = 20;
/// How long a text may be that is shown in one line.
const TEXT_MAX: usize = 160;

/// What is counted.
pub(crate) const ACCEPTED: &str = "events accepted";
pub(crate) const REFUSED: &str = "events refused";
pub(crate) const RETRIES: &str = "retries";
pub(crate) const REPEATS: &str = "repeats";
pub(crate) const SKIPS: &str = "skips";
pub(crate) const RESUMES: &str = "resumes";
pub(crate) const RESENDS: &str = "resends";
pub(crate) const USAGES: &str = "usages that count";
pub(crate) const CORRECTIONS: &str = "of them taken back";

/// A run in which nothing of these happens proves nothing.
const ESSENTIAL: [&str; 7] = [
    ACCEPTED,
    REFUSED,
    RETRIES,
    SKIPS,
    RESUMES,
    RESENDS,
    CORRECTIONS,
];

/// Written by all tasks of a run.
#[derive(Debug)]
pub(crate) struct Journal {
    began: Instant,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    counts: BTreeMap<&'static str, u64>,
    faults: BTreeMap<String, u64>,
    accepted: Vec<Value>,
    mistakes: Vec<String>,
    last_error: String,
}

impl Journal {
    pub(crate) fn new() -> Self {
        Self {
            began: Instant::now(),
            inner: Mutex::default(),
        }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn say(&self, text: &str) {
        eprintln!("{:>4} s  {text}", self.began.elapsed().as_secs());
    }

    pub(crate) fn count(&self, what: &'static str, number: usize) {
        *self.inner().counts.entry(what).or_default() += number as u64;
    }

    pub(crate) fn fault_begins(&self, kind: String) {
        *self.inner().faults.entry(kind).or_default() += 1;
    }

    /// An event that counts, as a line of a file of events.
    pub(crate) fn accepted(&self, line: Value) {
        self.inner().accepted.push(line);
    }

    pub(crate) fn lines(&self) -> Vec<Value> {
        self.inner().accepted.clone()
    }

    /// Something is wrong.
    pub(crate) fn mistake(&self, text: String) {
        self.say(&text);
        self.inner().mistakes.push(text);
    }

    /// Something went wrong, as it may.
    pub(crate) fn error(&self, text: &str) {
        self.inner().last_error = text.chars().take(TEXT_MAX).collect();
    }

    /// Says how things are.
    pub(crate) fn draw(&self, more: &str) {
        let inner = self.inner();
        let count = |what| inner.counts.get(what).copied().unwrap_or_default();
        let (events, retries) = (count(ACCEPTED) + count(REFUSED), count(RETRIES));
        let error = inner.last_error.clone();
        drop(inner);
        self.say(&format!(
            "events {events}, retries {retries}, {more}; last error: {error}"
        ));
    }

    pub(crate) fn report(&self, title: String, folder: PathBuf) -> Report {
        let inner = self.inner();
        Report {
            title,
            folder,
            counts: inner.counts.clone(),
            faults: inner.faults.clone(),
            mistakes: inner.mistakes.clone(),
        }
    }
}

/// What came of a run.
#[derive(Debug)]
pub struct Report {
    title: String,
    /// Where the files of the run are.
    pub folder: PathBuf,
    counts: BTreeMap<&'static str, u64>,
    faults: BTreeMap<String, u64>,
    mistakes: Vec<String>,
}

impl Report {
    /// Whether nothing is wrong.
    pub fn is_right(&self) -> bool {
        self.mistakes.is_empty()
    }

    /// What did not happen, of all that each run must meet.
    pub fn missing(&self) -> Vec<&'static str> {
        let is_missing = |what: &&str| !self.counts.contains_key(what);
        ESSENTIAL.into_iter().filter(is_missing).collect()
    }

    /// How many faults there were.
    pub fn faults(&self) -> u64 {
        self.faults.values().sum()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\n{}", self.title)?;
        for (kind, count) in &self.faults {
            writeln!(f, "  {kind:<32}{count:>9}")?;
        }
        for (what, count) in &self.counts {
            writeln!(f, "  {what:<32}{count:>9}")?;
        }
        if self.is_right() {
            writeln!(
                f,
                "\nright: what was acknowledged is billed, once, and nothing else"
            )?;
        } else {
            writeln!(f, "\nWRONG: {} mistakes", self.mistakes.len())?;
        }
        for mistake in self.mistakes.iter().take(SHOWN) {
            writeln!(f, "  - {mistake}")?;
        }
        write!(f, "files in {}", self.folder.display())
    }
}
