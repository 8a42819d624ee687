//! The program as its users see it, against a stand-in for the API.

#![expect(clippy::unwrap_used, reason = "a test may end with a panic")]

mod api;
mod cases;
mod commands;
mod events;
mod habits;
mod help;
mod journal;
mod login;
mod single_events;
mod snapshot;
mod stub;
mod verify;
mod verify_files;

use std::io::Write;
use std::process::{Command, Output, Stdio};

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

fn run(arguments: &[&str]) -> Ended {
    sampler(arguments).output().unwrap().into()
}

/// A file of events.
fn file(name: &str, text: &str) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    let mut file = std::fs::File::create(&path).unwrap();
    file.write_all(text.as_bytes()).unwrap();
    (folder, path.to_str().unwrap().to_owned())
}
