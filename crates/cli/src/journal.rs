//! A file of JSON lines that survives a kill at any instruction: it is locked, appended, and synced, and
//! its last line may be cut short. `events send` and `feed` say in one how far they are.

use std::fs::{File, TryLockError};
use std::io::{self, BufRead, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::failure::Failure;

/// The suffix of a journal's name, after that of its file.
const EXTENSION: &str = "sampler-journal";

/// Why a journal cannot be used.
pub(crate) enum Unopened {
    Failure(Failure),
    Io(io::Error),
}

impl From<io::Error> for Unopened {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

pub(crate) fn journal_of(file: &Path) -> PathBuf {
    file.with_added_extension(EXTENSION)
}

/// Opens or makes a journal. `taken` says why another command has it.
pub(crate) fn open(path: &Path, taken: &str) -> Result<File, Unopened> {
    let mut options = File::options();
    let file = options.read(true).append(true).create(true).open(path)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(Unopened::Failure(Failure::Input(taken.to_owned()))),
        Err(TryLockError::Error(error)) => Err(error.into()),
    }
}

/// Reads the next line. Returns `false` at the end, and for a last line that was cut short.
pub(crate) fn next_line(reader: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<bool> {
    line.clear();
    reader.read_until(b'\n', line)?;
    Ok(line.ends_with(b"\n"))
}

/// Appends a line. Returns its length in bytes.
pub(crate) fn write_line(mut file: &File, line: &impl Serialize) -> io::Result<u64> {
    let mut line = serde_json::to_vec(line)?;
    line.push(b'\n');
    file.write_all(&line)?;
    Ok(line.len() as u64)
}

/// Makes sure that a new file is found after a crash.
pub(crate) fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = path
        .parent()
        .filter(|folder| *folder != Path::new(""))
        .unwrap_or(Path::new("."));
    if cfg!(unix) {
        File::open(folder)?.sync_all()?;
    }
    Ok(())
}
