//! How far a file was sent: a file beside it, so that an interrupted command can go on.
//!
//! The first line says what is sent to where, each other one what came of a batch. A line is written
//! once its batch is answered. If the last line is missing or cut short, its batch is sent again,
//! which changes nothing: each event has an id.

use std::fs::{self, File, TryLockError};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use sampler_verify::moment::Millis;
use serde::{Deserialize, Serialize};
use url::Url;
use uuid::Uuid;

use super::FileArguments;
use super::report::Report;
use crate::failure::Failure;

/// The suffix of the journal's name, after that of the file.
const EXTENSION: &str = "sampler-journal";
/// How much of the file is compared, in bytes.
const COMPARED: u64 = 1 << 20;

/// The command that was begun.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(super) struct Begun {
    target: String,
    /// The moment from which relative moments count.
    now: Millis,
    offset: Millis,
    /// How long the file was, in bytes, and what it began with.
    length: u64,
    beginning: Uuid,
}

/// The result of a batch.
#[derive(Debug, Deserialize, Serialize)]
struct Step {
    /// How many events of the file are done.
    done: u64,
    report: Report,
}

/// How far a file was sent.
#[derive(Debug)]
pub(crate) struct Journal {
    now: Millis,
    /// How many events of the file are done, and what came of them.
    pub(super) done: u64,
    pub(super) report: Report,
    kept: Option<(PathBuf, File)>,
}

impl Begun {
    pub(super) fn new(file: &FileArguments, now: Millis, target: &Url) -> Result<Self, Failure> {
        let compared = read_beginning(&file.file, COMPARED);
        let (length, beginning) = compared.map_err(|error| wrong(&file.file, &error))?;
        Ok(Self {
            target: target.to_string(),
            now,
            offset: file.offset,
            length,
            beginning,
        })
    }

    /// Whether this goes on with what was begun: to the same receiver, from a file that is the same
    /// or has grown.
    fn goes_on(&self, before: &Self, file: &Path) -> io::Result<bool> {
        let is_same = (&self.target, self.offset) == (&before.target, before.offset);
        if !is_same || self.length < before.length {
            return Ok(false);
        }
        let (_, beginning) = read_beginning(file, COMPARED.min(before.length))?;
        Ok(beginning == before.beginning)
    }
}

fn read_beginning(path: &Path, compared: u64) -> io::Result<(u64, Uuid)> {
    let file = File::open(path)?;
    let length = file.metadata()?.len();
    let mut bytes = Vec::new();
    file.take(compared).read_to_end(&mut bytes)?;
    Ok((length, Uuid::new_v5(&Uuid::NAMESPACE_OID, &bytes)))
}

impl Journal {
    /// Keeps nothing.
    pub(crate) fn none(now: Millis) -> Self {
        Self {
            now,
            done: 0,
            report: Report::default(),
            kept: None,
        }
    }

    /// Goes on with what is there, or begins.
    pub(super) fn open(file: &Path, begun: Begun, restart: bool) -> Result<Self, Failure> {
        let mut name = file.file_name().unwrap_or_default().to_owned();
        name.push(".");
        name.push(EXTENSION);
        let path = file.with_file_name(name);
        let opened = Self::open_at(&path, file, begun, restart);
        opened.map_err(|error| match error {
            Unopened::Failure(failure) => failure,
            Unopened::Io(error) => {
                let shown = path.display();
                Failure::Input(format!("{shown}: {error}; --no-journal sends without it"))
            }
        })
    }

    fn open_at(path: &Path, file: &Path, begun: Begun, restart: bool) -> Result<Self, Unopened> {
        let mut options = File::options();
        let mut kept = options.read(true).append(true).create(true).open(path)?;
        match kept.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let shown = file.display();
                let what = format!("{shown} is being sent by another command");
                return Err(Unopened::Failure(Failure::Input(what)));
            }
            Err(TryLockError::Error(error)) => return Err(error.into()),
        }
        let found = if restart { None } else { read(&mut kept)? };
        let mut begun = begun;
        let mut journal = Self::none(begun.now);
        if let Some((before, steps)) = found {
            if !begun.goes_on(&before, file)? {
                let (shown, file) = (path.display(), file.display());
                let what = format!(
                    "{shown} is about another file, receiver or offset; --restart sends {file} from \
                     the beginning"
                );
                return Err(Unopened::Failure(Failure::Input(what)));
            }
            // Relative moments count from where they did, or repeats would be other events.
            (journal.now, begun) = (before.now, before);
            if let Some(step) = steps {
                (journal.done, journal.report) = (step.done, step.report);
            }
        }
        // Anew, with one line for all steps: the last one may be cut short.
        kept.set_len(0)?;
        journal.kept = Some((path.to_owned(), kept));
        journal.write_line(&serde_json::to_string(&begun).map_err(io::Error::other)?)?;
        if journal.done > 0 {
            journal.note_step()?;
        }
        Ok(journal)
    }

    /// The moment from which relative moments count.
    pub(super) fn now(&self) -> Millis {
        self.now
    }

    /// Notes that so many events more are done.
    pub(super) fn note(&mut self, events: u64) -> Result<(), Failure> {
        self.done += events;
        let noted = self.note_step();
        noted.map_err(|error| Failure::Input(format!("the journal: {error}")))
    }

    fn note_step(&self) -> io::Result<()> {
        if self.kept.is_none() {
            return Ok(());
        }
        let step = Step {
            done: self.done,
            report: self.report.clone(),
        };
        self.write_line(&serde_json::to_string(&step)?)
    }

    fn write_line(&self, line: &str) -> io::Result<()> {
        let Some((_, kept)) = &self.kept else {
            return Ok(());
        };
        let mut kept = kept;
        kept.write_all(format!("{line}\n").as_bytes())
    }

    /// Everything is done: nothing is left to go on with.
    pub(super) fn end(self) -> Result<Report, Failure> {
        if let Some((path, _)) = &self.kept {
            fs::remove_file(path).map_err(|error| wrong(path, &error))?;
        }
        Ok(self.report.sorted())
    }
}

/// Why a journal cannot be used.
enum Unopened {
    Failure(Failure),
    Io(io::Error),
}

impl From<io::Error> for Unopened {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// The command that was begun, and the last step that is complete in the journal.
fn read(file: &mut File) -> io::Result<Option<(Begun, Option<Step>)>> {
    file.seek(SeekFrom::Start(0))?;
    let mut lines = BufReader::new(file).lines();
    let Some(begun) = lines.next().transpose()? else {
        return Ok(None);
    };
    let Ok(begun) = serde_json::from_str(&begun) else {
        return Ok(None);
    };
    let mut last = None;
    for line in lines {
        match serde_json::from_str(&line?) {
            Ok(step) => last = Some(step),
            Err(_) => break,
        }
    }
    Ok(Some((begun, last)))
}

fn wrong(path: &Path, error: &io::Error) -> Failure {
    Failure::Input(format!("{}: {error}", path.display()))
}
