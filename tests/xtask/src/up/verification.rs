//! What ends a replay: `sampler verify`, which shares no code with what it verifies.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use sampler_testkit::program::build_cli;
use tokio::process::Command;

use super::Granularity;

/// The verifier, and what it is to compare.
#[derive(Debug)]
pub(super) struct Verification {
    program: PathBuf,
    arguments: Vec<String>,
}

impl Verification {
    /// Builds the command line, and compares a file of events with what a receiver says was billed.
    ///
    /// `now` is what relative moments of the file counted from, `offset` by how much all moments were
    /// moved: both in ms.
    pub(super) async fn new(
        events: &Path,
        receiver: &str,
        now: i64,
        offset: i64,
        granularity: Granularity,
    ) -> Result<Self> {
        eprintln!("building the command line (the first time takes a minute or two)");
        let program = tokio::task::spawn_blocking(build_cli).await;
        let program = program.context("building the command line")??;
        let events = events.to_str().context("the name of the file is no text")?;
        let arguments = [
            "verify",
            events,
            "--url",
            receiver,
            "--now",
            &now.to_string(),
            "--offset",
            &format!("{offset}ms"),
            "--granularity",
            granularity.name(),
            "--strict",
        ];
        Ok(Self {
            program,
            arguments: arguments.map(str::to_owned).to_vec(),
        })
    }

    /// Runs it, and prints what it prints.
    pub(super) async fn run(&self) -> Result<()> {
        println!("{}", self.command_line());
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).stdin(Stdio::null());
        // No token and no address of this terminal is meant for it.
        let variables = std::env::vars_os().map(|(name, _)| name);
        for name in variables.filter(|name| name.to_string_lossy().starts_with("SAMPLER_")) {
            command.env_remove(name);
        }
        let status = command.kill_on_drop(true).status().await;
        let status = status.with_context(|| format!("starting {}", self.program.display()))?;
        ensure!(status.success(), "the verifier does not agree: {status}");
        Ok(())
    }

    /// What to type to run it again.
    pub(super) fn command_line(&self) -> String {
        let here = std::env::current_dir().unwrap_or_default();
        let shown = |path: &Path| {
            let path = path.strip_prefix(&here).unwrap_or(path);
            path.display().to_string()
        };
        let mut words = vec![shown(&self.program)];
        let arguments = self.arguments.iter();
        words.extend(arguments.map(|argument| shown(Path::new(argument))));
        let words: Vec<String> = words.iter().map(|word| quoted(word)).collect();
        words.join(" ")
    }
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
