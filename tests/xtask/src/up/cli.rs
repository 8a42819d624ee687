//! The command line, as somebody uses it who has nothing set.

use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};

use anyhow::{Context, Result};
use sampler_testkit::program::{CLI, binary};
use tokio::process::Command;

use super::GRANULARITY;

/// The command line, and the receiver.
#[derive(Debug)]
pub(super) struct Cli {
    program: PathBuf,
    receiver: String,
}

impl Cli {
    pub(super) async fn new(receiver: &str) -> Result<Self> {
        Ok(Self {
            program: binary(CLI).await?,
            receiver: receiver.to_owned(),
        })
    }

    /// Sends a file, and prints the outcome. Its status is 1 if an event was refused.
    pub(super) async fn send(&self, file: &Path) -> Result<ExitStatus> {
        let file = text(file)?;
        let words = ["events", "send", &file, "--url", &self.receiver];
        self.run(&words.map(str::to_owned)).await
    }

    /// The words of `sampler verify` for a file.
    pub(super) fn verify(&self, file: &Path) -> Result<Vec<String>> {
        let file = text(file)?;
        let words = ["verify", &file, "--url", &self.receiver];
        let how = ["--granularity", GRANULARITY, "--strict", "--all"];
        Ok(words.into_iter().chain(how).map(str::to_owned).collect())
    }

    /// Runs it, and prints what it prints.
    pub(super) async fn run(&self, words: &[String]) -> Result<ExitStatus> {
        let mut command = Command::new(&self.program);
        command.args(words).stdin(Stdio::null());
        // No token and no address of this terminal is meant for it.
        let variables = std::env::vars_os().map(|(name, _)| name);
        for name in variables.filter(|name| name.to_string_lossy().starts_with("SAMPLER_")) {
            command.env_remove(name);
        }
        let status = command.kill_on_drop(true).status().await;
        status.with_context(|| format!("starting {}", self.program.display()))
    }

    /// What to type to run it again.
    pub(super) fn line(&self, words: &[String]) -> String {
        let here = std::env::current_dir().unwrap_or_default();
        let shown = |path: &Path| {
            let path = path.strip_prefix(&here).unwrap_or(path);
            quoted(&path.display().to_string())
        };
        let words = words.iter().map(|word| shown(Path::new(word)));
        let all: Vec<String> = [shown(&self.program)].into_iter().chain(words).collect();
        all.join(" ")
    }
}

fn text(file: &Path) -> Result<String> {
    let name = file.to_str().context("the name of the file is no text")?;
    Ok(name.to_owned())
}

/// A word as a shell takes it.
fn quoted(word: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./:+=,".contains(&byte);
    if !word.is_empty() && word.bytes().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_takes_the_words_as_they_are() {
        assert_eq!(quoted("a/b.ndjson"), "a/b.ndjson");
        assert_eq!(quoted("http://localhost:7070"), "http://localhost:7070");
        assert_eq!(quoted("my events"), "'my events'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
        assert_eq!(quoted(""), "''");
    }
}
