//! The settings of both programs, as an operator meets them.

#![allow(clippy::unwrap_used, reason = "a test may end with a panic")]

mod security;
mod sources;
mod values;

use sampler_service::lifecycle::EXIT_SETTINGS;
use sampler_settings::{Of, Program, Settings, Variables, load};
use tempfile::NamedTempFile;

const fn program(of: Of) -> Program {
    Program {
        of,
        name: "example",
        about: "Does something.",
        version: "1.2.3",
        printouts: &[],
    }
}

type Variable<'a> = (&'a str, &'a str);

const COLLECTOR: Variable<'static> = ("COLLECTOR_URL", "http://collector");

fn environment(variables: &[Variable<'_>]) -> Variables {
    let variables = variables.iter();
    variables
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect()
}

/// The settings of a program with these variables, or all its mistakes.
fn read(of: Of, variables: &[Variable<'_>]) -> Result<Settings, String> {
    let loaded = load(&program(of), &[], &environment(variables));
    loaded.map_err(|exit| {
        assert_eq!(exit.code, EXIT_SETTINGS);
        assert!(!exit.text.contains("s3cr3t"), "{}", exit.text);
        exit.text
    })
}

fn receiver(variables: &[Variable<'_>]) -> Result<Settings, String> {
    read(Of::Receiver, variables)
}

fn worker(variables: &[Variable<'_>]) -> Result<Settings, String> {
    read(Of::Worker, &[&[COLLECTOR], variables].concat())
}

/// All of these parts are in the mistakes.
#[track_caller]
fn assert_told(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part}\nis not in\n{text}");
    }
}

/// Each of these settings is refused with this mistake alone; with an empty one, it is taken.
#[track_caller]
fn assert_each(of: Of, rows: &[(&[Variable<'_>], &str)]) {
    for (variables, told) in rows {
        let text = read(of, variables).err().unwrap_or_default();
        let count = if told.is_empty() { 0 } else { 2 };
        assert_eq!(text.lines().count(), count, "{variables:?}: {text}");
        assert_told(&text, &[told]);
    }
}

fn file(text: &str) -> (NamedTempFile, String) {
    let file = NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    let path = file.path().display().to_string();
    (file, path)
}
