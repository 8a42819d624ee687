//! The state on the disk: a document, and beside it a journal of the steps since. A step is in the journal
//! before its events are sent, and counts once its answers are there, too. Killed in between, it is sent
//! again exactly as it was written, whatever the mapping says by then.

use std::fs::{self, File};
use std::io::{self, BufReader, Write};
use std::path::{Path, PathBuf};

use sampler_verify::moment::Millis;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use url::Url;

use super::rules::{Refused, State, Step};
use crate::failure::Failure;
use crate::journal::{self, Unopened, journal_of, next_line, sync_folder, write_line};

/// What the document is called that has its neighbour's refusals.
const REFUSED: &str = "refused.ndjson";
/// A journal of this many bytes is folded into the document, unless that is longer.
const JOURNAL_LEN: u64 = 4 << 20;

/// The document.
#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Document {
    /// The platform that it is of: cursors of one mean nothing to another.
    platform: String,
    /// The last step that is in it.
    number: u64,
    state: State,
}

/// A line of the journal.
#[derive(Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
enum Line {
    Sent(Box<Step>),
    Answered { number: u64, refused: Vec<Refused> },
}

/// The state, and where it is kept.
#[derive(Debug)]
pub(super) struct Store {
    pub(super) state: State,
    /// What was sent, and has no answer yet.
    pending: Option<Step>,
    number: u64,
    path: PathBuf,
    platform: String,
    /// None: nothing is kept.
    journal: Option<File>,
    /// The lengths of the journal and of the document, in bytes.
    lengths: (u64, u64),
}

impl Store {
    /// Reads the state. Unless it is only looked at, no other command can have it meanwhile.
    pub(super) fn open(path: &Path, platform: &Url, is_looked_at: bool) -> Result<Self, Failure> {
        let shown = path.display();
        let opened = Self::open_at(path, platform, is_looked_at);
        opened.map_err(|error| match error {
            Unopened::Failure(failure) => failure,
            Unopened::Io(error) => Failure::Input(format!("{shown}: {error}")),
        })
    }

    fn open_at(path: &Path, platform: &Url, is_looked_at: bool) -> Result<Self, Unopened> {
        let beside = journal_of(path);
        let journal = if is_looked_at {
            File::open(&beside).ok()
        } else {
            let taken = format!("{} is in use by another feed", path.display());
            let journal = journal::open(&beside, &taken)?;
            sync_folder(&beside)?;
            Some(journal)
        };
        let mut store = Self {
            state: State::default(),
            pending: None,
            number: 0,
            path: path.to_owned(),
            platform: platform.to_string(),
            journal: None,
            lengths: (0, 0),
        };
        store.read_document()?;
        if let Some(journal) = &journal {
            let length = store.read_journal(journal)?;
            if !is_looked_at {
                // The last line may be cut short.
                journal.set_len(length)?;
            }
            store.lengths.0 = length;
        }
        store.journal = journal.filter(|_| !is_looked_at);
        Ok(store)
    }

    fn read_document(&mut self) -> Result<(), Unopened> {
        let bytes = match fs::read(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            bytes => bytes?,
        };
        let shown = self.path.display();
        let document: Document = serde_json::from_slice(&bytes).map_err(|error| {
            let what = format!("{shown} is not the state of a feed: {error}");
            Unopened::Failure(Failure::Input(what))
        })?;
        if document.platform != self.platform {
            let what = format!("{shown} is the state of a feed of {}", document.platform);
            return Err(Unopened::Failure(Failure::Input(what)));
        }
        (self.number, self.state) = (document.number, document.state);
        self.lengths.1 = bytes.len() as u64;
        Ok(())
    }

    /// Takes in the steps of a journal. Returns how long its whole lines are together.
    fn read_journal(&mut self, journal: &File) -> Result<u64, Unopened> {
        let (mut reader, mut line, mut length) = (BufReader::new(journal), Vec::new(), 0);
        while next_line(&mut reader, &mut line)? {
            length += line.len() as u64;
            let Ok(read) = serde_json::from_slice(&line) else {
                let shown = journal_of(&self.path);
                let what = format!("{} cannot be read", shown.display());
                return Err(Unopened::Failure(Failure::Input(what)));
            };
            match read {
                // What the document has already, if a kill came before the journal was emptied.
                Line::Sent(step) if step.number <= self.number => {}
                Line::Sent(step) => self.pending = Some(*step),
                Line::Answered { number, refused } => {
                    if let Some(step) = self.pending.take_if(|step| step.number == number) {
                        self.number = number;
                        self.state.apply(step, &refused);
                    }
                }
            }
        }
        Ok(length)
    }

    /// What was sent before this program was started, and has no answer yet.
    pub(super) fn pending(&self) -> Option<&Step> {
        self.pending.as_ref()
    }

    /// Notes what is about to be sent.
    pub(super) fn begin(&mut self, mut step: Step) -> Result<&Step, Failure> {
        step.number = self.number + 1;
        let line = Line::Sent(Box::new(step));
        self.write(&line)?;
        let Line::Sent(step) = line else {
            unreachable!("it was made above")
        };
        Ok(self.pending.insert(*step))
    }

    /// Notes the answers, and makes what was sent true.
    pub(super) fn finish(&mut self, refused: Vec<Refused>, now: Millis) -> Result<(), Failure> {
        let Some(step) = self.pending.take() else {
            return Ok(());
        };
        let number = step.number;
        let line = Line::Answered { number, refused };
        self.write(&line)?;
        if let Line::Answered { refused, .. } = &line {
            self.state.apply(step, refused);
        }
        self.number = number;
        if self.lengths.0 > JOURNAL_LEN.max(self.lengths.1) {
            self.fold(now)?;
        }
        Ok(())
    }

    fn write(&mut self, line: &Line) -> Result<(), Failure> {
        let Some(journal) = &self.journal else {
            return Ok(());
        };
        let written = write_line(journal, line).and_then(|length| {
            journal.sync_data()?;
            Ok(length)
        });
        self.lengths.0 += written.map_err(|error| self.failed(&error))?;
        Ok(())
    }

    /// Writes the document, and empties the journal unless it has a step without answers.
    pub(super) fn fold(&mut self, now: Millis) -> Result<(), Failure> {
        if self.journal.is_none() || self.pending.is_some() {
            return Ok(());
        }
        self.state.forget_ends(now);
        let document = Document {
            platform: self.platform.clone(),
            number: self.number,
            state: std::mem::take(&mut self.state),
        };
        let folded = self.write_document(&document);
        self.state = document.state;
        folded.map_err(|error| self.failed(&error))
    }

    fn write_document(&mut self, document: &Document) -> io::Result<()> {
        let bytes = serde_json::to_vec(document)?;
        let mut name = self.path.file_name().unwrap_or_default().to_owned();
        name.push(".new");
        let beside = self.path.with_file_name(name);
        let mut file = File::create(&beside)?;
        file.write_all(&bytes)?;
        file.sync_all()?;
        fs::rename(&beside, &self.path)?;
        sync_folder(&self.path)?;
        if let Some(journal) = &self.journal {
            journal.set_len(0)?;
            journal.sync_data()?;
        }
        self.lengths = (0, bytes.len() as u64);
        Ok(())
    }

    /// Keeps an event that the receiver refuses for good.
    pub(super) fn refuse(&self, refusal: &Value) -> Result<(), Failure> {
        if self.journal.is_none() {
            return Ok(());
        }
        let path = self.path.with_file_name(REFUSED);
        let mut options = File::options();
        let file = options.append(true).create(true).open(&path);
        let written = file.and_then(|file| {
            write_line(&file, refusal)?;
            file.sync_data()
        });
        written.map_err(|error| Failure::Interrupted(format!("{}: {error}", path.display())))
    }

    fn failed(&self, error: &io::Error) -> Failure {
        let shown = self.path.display();
        Failure::Interrupted(format!("{shown}: {error}; the same command continues"))
    }
}

#[cfg(test)]
#[path = "store_tests.rs"]
mod tests;
