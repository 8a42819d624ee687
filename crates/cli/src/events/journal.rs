//! How far a file was sent: a file beside it, so that an interrupted command can continue.
//!
//! The first line says what is sent to where. Then there are two lines for each batch: before it is
//! sent, and once it is answered. A batch without the second is sent again, which changes nothing:
//! each event has an id. So what was sent, answered or not, must still be what the file says.
//!
//! The journal is kept until all is done: its first line has the time from which timestamps and ids are
//! made. That line is on the disk before the first event is sent.

use std::fs::{self, File};
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};

use sampler_verify::moment::Millis;
use serde::{Deserialize, Serialize};
use url::Url;
use uuid::Uuid;

use super::FileArguments;
use super::report::Report;
use crate::failure::Failure;
use crate::journal::{self, Unopened, journal_of, next_line, sync_folder, write_line};

/// The command that was begun.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(super) struct Begun {
    target: String,
    /// The time from which relative times count.
    now: Millis,
    offset: Millis,
    /// The columns of a table that are measures, as they were named.
    measures: Option<Vec<String>>,
}

/// The result of a batch.
#[derive(Debug, Deserialize, Serialize)]
struct Step {
    done: Extent,
    report: Report,
}

/// A line behind the first.
#[derive(Deserialize, Serialize)]
#[serde(untagged)]
enum Line {
    Answered(Step),
    /// So many events of the file may be kept.
    Sent(Extent),
}

/// The first events of the file: how many, and a digest of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub(super) struct Extent {
    pub(super) events: u64,
    pub(super) digest: Uuid,
}

enum Read {
    Nothing,
    Unreadable,
    Found(Box<JournalState>),
}

struct JournalState {
    begun: Begun,
    answered: Option<Step>,
    /// What was sent last.
    sent: Extent,
    /// How long its complete lines are together, in bytes.
    length: u64,
}

/// How far a file was sent.
#[derive(Debug)]
pub(crate) struct Journal {
    now: Millis,
    pub(super) done: Extent,
    pub(super) report: Report,
    /// The events that were sent: those that are done, and the next ones if they got no answer.
    pub(super) sent: Extent,
    kept: Option<(PathBuf, File)>,
}

impl Begun {
    pub(super) fn new(
        file: &FileArguments,
        now: Millis,
        target: &Url,
        measures: Option<&[String]>,
    ) -> Self {
        Self {
            target: target.to_string(),
            now,
            offset: file.offset,
            measures: measures.map(<[String]>::to_vec),
        }
    }

    /// Whether this continues what was begun: to the same receiver, with the same measures. Says
    /// why not. Whether the events are the same is checked while they are skipped.
    fn continues(&self, before: &Self) -> Result<(), String> {
        if (&self.target, self.offset) != (&before.target, before.offset) {
            return Err("is about another receiver or offset".to_owned());
        }
        if self.measures != before.measures {
            return Err(format!(
                "was begun with the measures {}, and now they are {}: name the same ones",
                shown(before),
                shown(self)
            ));
        }
        Ok(())
    }
}

fn shown(begun: &Begun) -> String {
    format!("{:?}", begun.measures.as_deref().unwrap_or_default())
}

impl Journal {
    /// Keeps nothing.
    pub(crate) fn none(now: Millis) -> Self {
        Self {
            now,
            done: Extent::default(),
            report: Report::default(),
            sent: Extent::default(),
            kept: None,
        }
    }

    /// Goes on with what is there, or begins.
    pub(super) fn open(file: &Path, begun: &Begun, restart: bool) -> Result<Self, Failure> {
        let path = journal_of(file);
        let opened = Self::open_at(&path, file, begun, restart);
        opened.map_err(|error| match error {
            Unopened::Failure(failure) => failure,
            Unopened::Io(error) => {
                let shown = path.display();
                Failure::Input(format!("{shown}: {error}; --no-journal sends without it"))
            }
        })
    }

    fn open_at(path: &Path, file: &Path, begun: &Begun, restart: bool) -> Result<Self, Unopened> {
        let taken = format!("{} is being sent by another command", file.display());
        let kept = journal::open(path, &taken)?;
        let mut journal = Self::none(begun.now);
        match read(&kept, restart)? {
            Read::Nothing => {
                kept.set_len(0)?;
                write_line(&kept, begun)?;
                kept.sync_all()?;
                sync_folder(path)?;
            }
            Read::Unreadable => return Err(unusable(path, file, "cannot be read")),
            Read::Found(found) => {
                let continued = begun.continues(&found.begun);
                continued.map_err(|why| unusable(path, file, &why))?;
                // The last line may be cut short.
                kept.set_len(found.length)?;
                // Relative times count from where they did, or repeats would be other events.
                journal.now = found.begun.now;
                journal.sent = found.sent;
                if let Some(step) = found.answered {
                    (journal.done, journal.report) = (step.done, step.report);
                }
            }
        }
        journal.kept = Some((path.to_owned(), kept));
        Ok(journal)
    }

    /// The time from which relative times count.
    pub(super) fn now(&self) -> Millis {
        self.now
    }

    /// Notes which events are about to be sent, unless it was noted before.
    pub(super) fn note_sent(&mut self, sent: Extent) -> Result<(), Failure> {
        if sent.events > self.sent.events {
            self.write(&Line::Sent(sent))?;
            if self.sent.events == 0 {
                // Without this line the next command would count relative times from another one.
                self.sync()?;
            }
            self.sent = sent;
        }
        Ok(())
    }

    pub(super) fn note_done(&mut self, done: Extent) -> Result<(), Failure> {
        let report = self.report.clone();
        self.write(&Line::Answered(Step { done, report }))?;
        self.done = done;
        Ok(())
    }

    fn write(&self, line: &Line) -> Result<(), Failure> {
        let Some((path, kept)) = &self.kept else {
            return Ok(());
        };
        write_line(kept, line).map_err(|error| Failure::of_file(path, &error))?;
        Ok(())
    }

    fn sync(&self) -> Result<(), Failure> {
        let Some((path, kept)) = &self.kept else {
            return Ok(());
        };
        kept.sync_data()
            .map_err(|error| Failure::of_file(path, &error))
    }

    /// Whether a file says how far the command is.
    pub(super) fn is_kept(&self) -> bool {
        self.kept.is_some()
    }

    /// Leaves no file behind if nothing was sent: there is nothing to continue.
    pub(super) fn forget_what_was_not_begun(&self) {
        if let (0, Some((path, _))) = (self.sent.events, &self.kept) {
            // One that stays is as good as none.
            let _ = fs::remove_file(path);
        }
    }

    /// Everything is done: nothing is left to continue.
    pub(super) fn end(self) -> Result<Report, Failure> {
        if let Some((path, _)) = &self.kept {
            fs::remove_file(path).map_err(|error| {
                Failure::Interrupted(format!("all is done, but {}: {error}", path.display()))
            })?;
        }
        Ok(self.report.sorted())
    }
}

/// A journal that cannot be continued.
fn unusable(path: &Path, file: &Path, why: &str) -> Unopened {
    let (shown, file) = (path.display(), file.display());
    let what = format!("{shown} {why}; --restart sends {file} from the beginning");
    Unopened::Failure(Failure::Input(what))
}

/// What a journal says. Where nothing was sent, there is nothing to continue.
fn read(file: &File, is_ignored: bool) -> io::Result<Read> {
    let mut reader = BufReader::new(file);
    let mut line = Vec::new();
    if is_ignored || !next_line(&mut reader, &mut line)? {
        return Ok(Read::Nothing);
    }
    let Ok(begun) = serde_json::from_slice(&line) else {
        return Ok(Read::Unreadable);
    };
    let mut found = JournalState {
        begun,
        answered: None,
        sent: Extent::default(),
        length: line.len() as u64,
    };
    while next_line(&mut reader, &mut line)? {
        match serde_json::from_slice(&line) {
            Ok(Line::Answered(step)) => found.answered = Some(step),
            Ok(Line::Sent(sent)) => found.sent = sent,
            Err(_) => return Ok(Read::Unreadable),
        }
        found.length += line.len() as u64;
    }
    Ok(match found.sent.events {
        0 => Read::Nothing,
        _ => Read::Found(Box::new(found)),
    })
}
