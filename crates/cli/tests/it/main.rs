//! The program as its users see it, against a stand-in for the API.

#![expect(clippy::unwrap_used, reason = "a test may end with a panic")]

mod actions;
mod api;
mod cases;
mod events;
mod habits;
mod help;
mod lists;
mod snapshot;
mod stub;
mod verify;

use std::io::Write;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// 2026-11-22T13:00:00Z.
const NOW: i64 = 1_795_352_400_000;

/// The program, without this machine's environment.
fn sampler(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sampler"));
    command.args(arguments).env_clear();
    command.stdin(Stdio::null());
    command
}

/// What the program said, and how it ended.
#[derive(Debug)]
struct Ended {
    code: Option<i32>,
    output: String,
    errors: String,
}

impl From<Output> for Ended {
    fn from(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Self {
            code: output.status.code(),
            output: text(output.stdout),
            errors: text(output.stderr),
        }
    }
}

impl Ended {
    /// It ended with this code, and has written all of these parts.
    #[track_caller]
    fn writes(&self, code: i32, parts: &[&str]) {
        self.ends_with(code, &self.output, parts);
    }

    /// It ended with this code, and has told all of these parts as errors.
    #[track_caller]
    fn tells(&self, code: i32, parts: &[&str]) {
        self.ends_with(code, &self.errors, parts);
    }

    #[track_caller]
    fn ends_with(&self, code: i32, text: &str, parts: &[&str]) {
        assert_eq!(self.code, Some(code), "{self:?}");
        for part in parts {
            assert!(text.contains(part), "{part:?} is not in {self:?}");
        }
    }

    /// What it has written, without anything to tell.
    #[track_caller]
    fn done(self) -> String {
        let ended = (self.code, self.errors.as_str());
        assert_eq!(ended, (Some(0), ""), "{self:?}");
        self.output
    }

    /// The document that it has written.
    #[track_caller]
    fn json(&self) -> Value {
        json_of(&self.output)
    }
}

#[track_caller]
fn json_of(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// A text whose words are separated by one space.
fn spaced(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn run(arguments: &[&str]) -> Ended {
    run_in(arguments, &[])
}

/// Runs it with these variables.
fn run_in(arguments: &[&str], variables: &[(&str, &str)]) -> Ended {
    let mut command = sampler(arguments);
    command.envs(variables.iter().copied());
    command.output().unwrap().into()
}

/// A file of events.
fn file(name: &str, text: &str) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    let mut file = std::fs::File::create(&path).unwrap();
    file.write_all(text.as_bytes()).unwrap();
    (folder, path.to_str().unwrap().to_owned())
}
