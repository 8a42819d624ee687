//! What a program writes.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufRead, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result};

/// Older lines are forgotten.
const LINES_MAX: usize = 100_000;
/// How many lines are shown when a program fails.
const TAIL_LINES: usize = 40;

/// Collected lines, which may be read while they come.
#[derive(Clone, Debug)]
pub(super) struct Output {
    collected: Arc<Mutex<Collected>>,
}

#[derive(Debug)]
struct Collected {
    lines: VecDeque<String>,
    file: Option<File>,
    /// Pipes that have not ended yet.
    pipes: usize,
}

impl Output {
    /// With a file that gets all lines too.
    pub(super) fn new(file: Option<&Path>) -> Result<Self> {
        let create = |path: &Path| {
            File::create(path).with_context(|| format!("creating {}", path.display()))
        };
        let file = file.map(create).transpose()?;
        let collected = Collected {
            lines: VecDeque::new(),
            file,
            pipes: 0,
        };
        Ok(Self {
            collected: Arc::new(Mutex::new(collected)),
        })
    }

    /// Collects from a pipe until it ends. A thread: pipes of child processes block.
    pub(super) fn follow(&self, pipe: Option<impl BufRead + Send + 'static>) {
        let Some(pipe) = pipe else { return };
        let output = self.clone();
        self.collected().pipes += 1;
        std::thread::spawn(move || {
            for line in pipe.split(b'\n').map_while(Result::ok) {
                output.push(String::from_utf8_lossy(&line).into_owned());
            }
            output.collected().pipes -= 1;
        });
    }

    /// Whether all that was ever written is here.
    pub(super) fn has_ended(&self) -> bool {
        self.collected().pipes == 0
    }

    fn push(&self, line: String) {
        let mut collected = self.collected();
        if let Some(file) = &mut collected.file {
            let _ = writeln!(file, "{line}");
        }
        if collected.lines.len() >= LINES_MAX {
            collected.lines.pop_front();
        }
        collected.lines.push_back(line);
    }

    fn collected(&self) -> MutexGuard<'_, Collected> {
        self.collected
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn lines(&self) -> Vec<String> {
        self.collected().lines.iter().cloned().collect()
    }

    /// The first thing that `pick` finds in a line.
    pub(super) fn find<T>(&self, pick: impl Fn(&str) -> Option<T>) -> Option<T> {
        self.collected().lines.iter().find_map(|line| pick(line))
    }

    pub(super) fn tail(&self) -> String {
        let lines = self.lines();
        lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
    }
}
