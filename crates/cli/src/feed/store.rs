//! The state on the disk, in one file: what is known, and the step that is being sent. A step is written before its
//! events are sent, and counts once they are answered. Killed in between, the feed sends the step again exactly as it
//! was written, whatever the mapping says by then.

use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::json;
use url::Url;

use super::state::{FeedState, Refused, Step, Unknown};
use super::usage_event::Record;
use crate::failure::Failure;

/// The name of the file with refusals, beside the state.
const REFUSED: &str = "refused.ndjson";

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Document {
    /// The platform that the state is of: cursors of one mean nothing to another.
    platform: String,
    services: FeedState,
    apps: FeedState,
    /// What is sent, and not known to be answered.
    pending: Option<Step>,
    /// What nobody recorded, and no report has told yet.
    unknown: Vec<Unknown>,
}

#[derive(Debug)]
pub(super) struct Store {
    document: Document,
    path: PathBuf,
    /// Held while the state is in use. None: the state is only looked at.
    lock: Option<File>,
    /// Whether answers came since the last write.
    is_behind: bool,
}

impl Store {
    /// Reads the state. Unless the state is only looked at, no other command can use it meanwhile.
    pub(super) fn open(path: &Path, platform: &Url, is_looked_at: bool) -> Result<Self, Failure> {
        let wrong = |what: &dyn std::fmt::Display| Failure::of_file(path, what);
        let lock = (!is_looked_at).then(|| lock(path)).transpose()?;
        let document = match fs::read(path) {
            Ok(bytes) => serde_json::from_slice(&bytes)
                .map_err(|error| wrong(&format!("this is not the state of a feed: {error}")))?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Document {
                platform: platform.to_string(),
                ..Document::default()
            },
            Err(error) => return Err(wrong(&error)),
        };
        if document.platform != platform.as_str() {
            let what = format!("this is the state of a feed of {}", document.platform);
            return Err(wrong(&what));
        }
        Ok(Self {
            document,
            path: path.to_owned(),
            lock,
            is_behind: false,
        })
    }

    pub(super) fn state(&self, record: Record) -> &FeedState {
        match record {
            Record::Services => &self.document.services,
            Record::Apps => &self.document.apps,
        }
    }

    fn state_mut(&mut self, record: Record) -> &mut FeedState {
        match record {
            Record::Services => &mut self.document.services,
            Record::Apps => &mut self.document.apps,
        }
    }

    /// What is sent, and not known to be answered.
    pub(super) fn pending(&self) -> Option<&Step> {
        self.document.pending.as_ref()
    }

    /// What nobody recorded, and no report has told yet.
    pub(super) fn unknown(&self) -> &[Unknown] {
        &self.document.unknown
    }

    /// A report has told what nobody recorded.
    pub(super) fn told(&mut self) -> Result<(), Failure> {
        self.document.unknown.clear();
        self.save()
    }

    /// Forgets how far a list was read: the platform no longer has it.
    pub(super) fn lose_cursor(&mut self, record: Record) {
        self.state_mut(record).cursor = None;
    }

    /// Writes what is about to be sent, and with it what was answered before.
    pub(super) fn begin(&mut self, step: Step) -> Result<(), Failure> {
        self.document.pending = Some(step);
        self.save()
    }

    /// Takes in what was sent and is answered. The next write has it; killed before, the feed sends the step again.
    pub(super) fn finish(&mut self, refused: &Refused) -> Result<(), Failure> {
        let Some(step) = self.document.pending.clone() else {
            return Ok(());
        };
        self.keep_refused(&step, refused)?;
        self.document.pending = None;
        self.document.unknown.extend(step.unknown(refused).cloned());
        self.state_mut(step.record).apply(&step, refused);
        self.is_behind = true;
        Ok(())
    }

    /// Writes the answers that came since the last write.
    pub(super) fn save_answers(&mut self) -> Result<(), Failure> {
        if self.is_behind { self.save() } else { Ok(()) }
    }

    /// Writes the file anew: it has all of this, or is as it was.
    fn save(&mut self) -> Result<(), Failure> {
        if self.lock.is_some() {
            self.write().map_err(|error| failed(&self.path, &error))?;
        }
        self.is_behind = false;
        Ok(())
    }

    fn write(&self) -> io::Result<()> {
        let beside = self.path.with_added_extension("new");
        let mut file = File::create(&beside)?;
        file.write_all(&serde_json::to_vec(&self.document)?)?;
        file.sync_all()?;
        fs::rename(&beside, &self.path)?;
        sync_folder(&self.path)
    }

    /// Appends events that the receiver refuses for good to a list of their own. After a kill one can be there twice;
    /// sent again, it counts once.
    fn keep_refused(&self, step: &Step, refused: &Refused) -> Result<(), Failure> {
        if self.lock.is_none() || refused.is_empty() {
            return Ok(());
        }
        let lines = step.changes.iter().filter_map(|change| {
            let refusal = change.refusal(refused)?;
            let (status, problem) = (refusal.status, &refusal.problem);
            let line = json!({ "event": change.body, "status": status, "problem": problem });
            Some(format!("{line}\n"))
        });
        let lines: String = lines.collect();
        let path = self.path.with_file_name(REFUSED);
        append(&path, &lines).map_err(|error| failed(&path, &error))
    }
}

/// The state is replaced with each write, so a file beside it is locked.
fn lock(path: &Path) -> Result<File, Failure> {
    let beside = path.with_added_extension("lock");
    let file = File::options().append(true).create(true).open(&beside);
    let file = file.map_err(|error| Failure::of_file(&beside, &error))?;
    file.try_lock().map_err(|error| match error {
        TryLockError::WouldBlock => Failure::of_file(path, &"another feed uses this state"),
        TryLockError::Error(error) => Failure::of_file(&beside, &error),
    })?;
    Ok(file)
}

/// Appends whole lines behind the last whole line: a kill may have cut one short.
fn append(path: &Path, lines: &str) -> io::Result<()> {
    let mut file = File::options().append(true).create(true).open(path)?;
    // Feeds whose states are in one folder have one list.
    file.lock()?;
    let bytes = fs::read(path)?;
    let whole = bytes.iter().rposition(|byte| *byte == b'\n');
    file.set_len(whole.map_or(0, |end| end as u64 + 1))?;
    file.write_all(lines.as_bytes())?;
    file.sync_all()?;
    sync_folder(path)
}

/// A file with a new name is found after a crash.
fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| *folder != Path::new(""));
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

fn failed(path: &Path, error: &io::Error) -> Failure {
    let shown = path.display();
    Failure::Interrupted(format!("{shown}: {error}; the same command continues"))
}

#[cfg(test)]
#[path = "../../tests/feed/store_tests.rs"]
mod tests;
