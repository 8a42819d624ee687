//! What each client sent, and what it was answered, line by line.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::event::Kind;

/// One line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "snake_case")]
pub enum Record {
    /// A client has a new event. The record comes before the first attempt.
    Event(Event),
    /// A client has sent an event, and was answered or not.
    Attempt(Attempt),
    /// An operator has asked for something.
    Act(Act),
    /// A fault begins or ends.
    Fault(FaultRecord),
    /// A program has ended by itself.
    ProgramEnded(ProgramEnd),
}

/// An event of a client.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Its name in the history, and its `id` unless that is the one of another event, or both are halves
    /// of one update.
    pub name: String,
    pub client: usize,
    /// Start or stop.
    pub kind: Kind,
    /// Why it is sent.
    pub intent: String,
    /// Whether it is given up without a definite answer; other events are repeated until there is one.
    pub gives_up: bool,
    /// What is sent, each time the same.
    pub body: Value,
}

/// One time that an event was sent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Attempt {
    /// The event's name.
    pub event: String,
    /// When, ms since epoch.
    pub at: i64,
    /// How long until the answer, ms.
    pub took: u64,
    pub receiver: usize,
    /// What came back.
    pub answer: Answer,
}

/// What an operator asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ActKind {
    /// To skip the planned usage of a suspended span.
    Skip,
    /// That a suspended span continues.
    Resume,
    /// That all spans of a cause go on.
    ResumeCause,
    /// That a usage is sent again.
    Resend,
    /// To read something.
    Read,
}

/// One time that an operator asked for something. Of reading, only what failed is noted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Act {
    pub kind: ActKind,
    /// When, ms since epoch.
    pub at: i64,
    /// How long until the answer, ms.
    pub took: u64,
    /// The path of what it is about.
    pub subject: String,
    /// The usage that is to be skipped or sent again.
    pub usage: Option<String>,
    /// The reason that is given, another one each time.
    pub reason: String,
    /// What came back.
    pub answer: Answer,
}

/// What came back for an event or an act.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// A response.
    Status {
        status: u16,
        /// Whether it says that the event was kept before.
        replayed: bool,
        /// The type of the problem, where there is one.
        problem: Option<String>,
        /// The seconds to wait that it asks for.
        retry_after: Option<u64>,
    },
    /// None.
    Lost {
        /// What happened instead.
        error: String,
    },
}

impl Answer {
    pub fn has_status(&self, wanted: u16) -> bool {
        matches!(self, Self::Status { status, .. } if *status == wanted)
    }

    /// Whether the event is known to be kept.
    pub fn is_accepted(&self) -> bool {
        matches!(self, Self::Status { status: 201, .. })
    }

    /// Whether the event is known not to be kept.
    pub fn is_refused(&self) -> bool {
        matches!(
            self,
            Self::Status {
                status: 400..=499,
                ..
            }
        )
    }

    /// Whether it is definite: the event was kept or refused. Otherwise the event is repeated.
    pub fn is_definite(&self) -> bool {
        self.is_accepted() || self.is_refused()
    }
}

/// A fault that begins or ends.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FaultRecord {
    /// When, ms since epoch.
    pub at: i64,
    pub fault: String,
    /// What happens to it.
    pub phase: String,
}

/// A program that has ended by itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProgramEnd {
    /// When it was noticed, ms since epoch.
    pub at: i64,
    pub program: String,
    /// How it ended.
    pub how: String,
}

/// A history that is being written.
#[derive(Debug)]
pub(crate) struct History(Mutex<Lines>);

#[derive(Debug)]
struct Lines {
    file: BufWriter<File>,
    /// The first thing that went wrong; told at the end.
    error: Option<io::Error>,
}

impl History {
    pub(crate) fn create(path: &Path) -> Result<Self> {
        let file = File::create(path).with_context(|| format!("creating {}", path.display()))?;
        let file = BufWriter::new(file);
        Ok(Self(Mutex::new(Lines { file, error: None })))
    }

    fn lines(&self) -> MutexGuard<'_, Lines> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes a line.
    pub(crate) fn note(&self, record: &Record) {
        let line = serde_json::to_string(record).expect("a record is JSON");
        let mut lines = self.lines();
        if let Err(error) = writeln!(lines.file, "{line}") {
            lines.error.get_or_insert(error);
        }
    }

    /// Makes sure that all lines are in the file.
    pub(crate) fn flush(&self) -> Result<()> {
        let mut lines = self.lines();
        let flushed = lines.file.flush();
        match lines.error.take() {
            Some(error) => Err(error).context("writing the history"),
            None => flushed.context("writing the history"),
        }
    }
}

/// Reads a history, line by line.
pub(crate) fn read_history(path: &Path) -> Result<Vec<Record>> {
    let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let records = text.lines().map(serde_json::from_str);
    records
        .collect::<serde_json::Result<_>>()
        .with_context(|| path.display().to_string())
}
