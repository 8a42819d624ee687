//! The state on the disk: a document, and beside it a journal of the steps since. A step is in the journal
//! before its events are sent, and counts once its answers are there, too. Killed in between, it is sent
//! again exactly as it was written, whatever the mapping says by then. What nobody recorded is in a file of
//! its own before the step counts.

use std::fs::{self, File};
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use url::Url;

use super::rules::{FeedState, Refused, Step, Unknown};
use crate::failure::Failure;
use crate::journal::{self, Unopened, journal_of, next_line, sync_folder, write_line};

/// The name of the file with refusals, beside the document.
const REFUSED: &str = "refused.ndjson";
/// The end of the name of the file that lists what nobody recorded, beside the document.
const UNKNOWN: &str = "unknown.ndjson";
/// A journal of this many bytes is folded into the document, unless that is longer.
const JOURNAL_LEN: u64 = 4 << 20;

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Document {
    /// The platform that it is of: cursors of one mean nothing to another.
    platform: String,
    /// The last step that is in it.
    number: u64,
    /// How many bytes of what nobody recorded are reported.
    #[serde(default)]
    told: u64,
    state: FeedState,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
enum Line {
    Sent {
        step: Box<Step>,
        /// How long the list of what nobody recorded was before the step, in bytes.
        unknown_len: u64,
    },
    Answered {
        number: u64,
        refused: Vec<Refused>,
    },
}

/// The state, and where it is kept.
#[derive(Debug)]
pub(super) struct Store {
    pub(super) state: FeedState,
    /// What was sent, and has no answer yet.
    pending: Option<Step>,
    /// Whether another command had sent it before.
    is_resumed: bool,
    number: u64,
    path: PathBuf,
    platform: String,
    /// None: nothing is kept.
    journal: Option<File>,
    /// The disk has failed: what is on it is for the next command to read.
    has_failed: bool,
    /// Of the list of what nobody recorded: how many bytes it has, and how many are reported.
    unknown_len: u64,
    told: u64,
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
            state: FeedState::default(),
            pending: None,
            is_resumed: false,
            number: 0,
            path: path.to_owned(),
            platform: platform.to_string(),
            journal: None,
            has_failed: false,
            unknown_len: 0,
            told: 0,
            lengths: (0, 0),
        };
        store.read_document()?;
        if let Some(journal) = &journal {
            let length = store.read_journal(journal)?;
            if !is_looked_at {
                // The last line may be cut short.
                journal.set_len(length)?;
                // What is read here may have been written, and not synced, before a failure.
                journal.sync_data()?;
            }
            store.lengths.0 = length;
        }
        if !is_looked_at {
            store.cut_unknown()?;
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
        self.told = document.told;
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
                Line::Sent { step, .. } if step.number <= self.number => {}
                Line::Sent { step, unknown_len } => {
                    self.pending = Some(*step);
                    self.is_resumed = true;
                    self.unknown_len = unknown_len;
                }
                Line::Answered { number, refused } => {
                    if let Some(step) = self.pending.take_if(|step| step.number == number) {
                        self.is_resumed = false;
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
        let line = Line::Sent {
            step: Box::new(step),
            unknown_len: self.unknown_len,
        };
        self.write(&line)?;
        let Line::Sent { step, .. } = line else {
            unreachable!("it was made above")
        };
        Ok(self.pending.insert(*step))
    }

    /// Notes the answers, and makes what was sent true.
    pub(super) fn finish(&mut self, refused: Vec<Refused>) -> Result<(), Failure> {
        let Some(step) = &self.pending else {
            return Ok(());
        };
        let number = step.number;
        let lines: Vec<Value> = step
            .unknown(&refused)
            .into_iter()
            .map(|unknown| json!(unknown))
            .collect();
        self.keep_unknown(&lines)?;
        let line = Line::Answered { number, refused };
        self.write(&line)?;
        if let (Line::Answered { refused, .. }, Some(step)) = (&line, self.pending.take()) {
            self.state.apply(step, refused);
        }
        self.number = number;
        self.is_resumed = false;
        if self.lengths.0 > JOURNAL_LEN.max(self.lengths.1) {
            self.fold()?;
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

    fn unknown_path(&self) -> PathBuf {
        self.path.with_added_extension(UNKNOWN)
    }

    /// Takes away what a step has added that is to be done again. If somebody has moved the list away,
    /// it begins again.
    fn cut_unknown(&mut self) -> io::Result<()> {
        let length = match fs::metadata(self.unknown_path()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
            metadata => metadata?.len(),
        };
        if self.pending.is_some() && length > self.unknown_len {
            let file = File::options().write(true).open(self.unknown_path())?;
            file.set_len(self.unknown_len)?;
            file.sync_data()?;
        } else {
            self.unknown_len = length;
        }
        if self.told > self.unknown_len {
            self.told = 0;
        }
        Ok(())
    }

    fn keep_unknown(&mut self, lines: &[Value]) -> Result<(), Failure> {
        if self.journal.is_none() || lines.is_empty() {
            return Ok(());
        }
        let path = self.unknown_path();
        let kept = append(&path, lines, |_| true);
        self.unknown_len = kept.map_err(|error| self.failed(&error))?;
        if self.told > self.unknown_len {
            self.told = 0;
        }
        Ok(())
    }

    /// The first entries of what nobody recorded and no table has shown yet, and how many there are.
    pub(super) fn untold(&self, most: usize) -> Result<(Vec<Unknown>, u64), Failure> {
        self.read_untold(most).map_err(|error| {
            let shown = self.unknown_path();
            Failure::Interrupted(format!("{}: {error}", shown.display()))
        })
    }

    fn read_untold(&self, most: usize) -> io::Result<(Vec<Unknown>, u64)> {
        let mut file = match File::open(self.unknown_path()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((vec![], 0)),
            file => file?,
        };
        file.seek(SeekFrom::Start(self.told))?;
        let (mut reader, mut line) = (BufReader::new(file), Vec::new());
        let (mut first, mut count) = (Vec::new(), 0);
        while next_line(&mut reader, &mut line)? {
            if first.len() < most {
                first.push(serde_json::from_slice(&line)?);
            }
            count += 1;
        }
        Ok((first, count))
    }

    /// Marks what was unreported as reported.
    pub(super) fn told(&mut self) {
        self.told = self.unknown_len;
    }

    /// Writes the document, and empties the journal unless it has a step without answers.
    pub(super) fn fold(&mut self) -> Result<(), Failure> {
        if self.journal.is_none() || self.pending.is_some() || self.has_failed {
            return Ok(());
        }
        self.state.forget_ends();
        let document = Document {
            platform: self.platform.clone(),
            number: self.number,
            told: self.told,
            state: std::mem::take(&mut self.state),
        };
        let folded = self.write_document(&document);
        self.state = document.state;
        folded.map_err(|error| self.failed(&error))
    }

    fn write_document(&mut self, document: &Document) -> io::Result<()> {
        let bytes = serde_json::to_vec(document)?;
        let beside = self.path.with_added_extension("new");
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

    /// Keeps events that the receiver refuses for good. What a command that was killed has kept already is
    /// not kept again.
    pub(super) fn refuse(&mut self, refusals: &[Value]) -> Result<(), Failure> {
        if self.journal.is_none() || refusals.is_empty() {
            return Ok(());
        }
        let path = self.path.with_file_name(REFUSED);
        let kept = match (self.is_resumed, fs::read(&path)) {
            (true, Ok(kept)) => kept,
            _ => Vec::new(),
        };
        let events: Vec<Value> = kept
            .split(|byte| *byte == b'\n')
            .filter_map(|line| serde_json::from_slice::<Value>(line).ok())
            .map(|mut refusal| refusal["event"].take())
            .collect();
        let kept = append(&path, refusals, |refusal| {
            !events.contains(&refusal["event"])
        });
        kept.map_err(|error| {
            self.has_failed = true;
            Failure::Interrupted(format!("{}: {error}", path.display()))
        })?;
        Ok(())
    }

    fn failed(&mut self, error: &io::Error) -> Failure {
        self.has_failed = true;
        let shown = self.path.display();
        Failure::Interrupted(format!("{shown}: {error}; the same command continues"))
    }
}

/// Appends lines to a list that outlives this command, behind its last whole line. Returns its length.
fn append(path: &Path, lines: &[Value], is_wanted: impl Fn(&Value) -> bool) -> io::Result<u64> {
    let mut options = File::options();
    let file = options.read(true).append(true).create(true).open(path)?;
    // Two feeds with states in one folder have one list of what is refused.
    file.lock()?;
    let mut length = whole_lines(&file)?;
    file.set_len(length)?;
    for line in lines.iter().filter(|line| is_wanted(line)) {
        length += write_line(&file, line)?;
    }
    file.sync_data()?;
    sync_folder(path)?;
    Ok(length)
}

/// How long the whole lines of a file are together.
fn whole_lines(mut file: &File) -> io::Result<u64> {
    let length = file.metadata()?.len();
    if length == 0 {
        return Ok(0);
    }
    let mut last = [0];
    file.seek(SeekFrom::Start(length - 1))?;
    file.read_exact(&mut last)?;
    if last == *b"\n" {
        return Ok(length);
    }
    file.seek(SeekFrom::Start(0))?;
    let (mut reader, mut line, mut whole) = (BufReader::new(file), Vec::new(), 0);
    while next_line(&mut reader, &mut line)? {
        whole += line.len() as u64;
    }
    Ok(whole)
}

#[cfg(test)]
#[path = "store_tests.rs"]
mod tests;
