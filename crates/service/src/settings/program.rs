//! A program with settings: its table, its command line, and [`load`], which reads the settings.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Arg, ArgAction, ArgGroup, ArgMatches, Command, value_parser};

use super::layers::{FILE_VARIABLE, Variables, merge};
use super::print;
use super::reader::Reader;
use super::setting::Setting;

/// The exit code after a wrong command line or wrong settings (`EX_USAGE`).
pub const EXIT_SETTINGS: u8 = 64;

/// The flags that every program has.
const PRINT_CONFIG: &str = "print-config";
const CHECK_CONFIG: &str = "check-config";
const PRINT_DEFAULTS: &str = "print-defaults";
const HELP_SETTINGS: &str = "help-settings";

/// The settings of a program, by group.
pub type Table = &'static [&'static [Setting]];

#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// Its name on the command line.
    pub name: &'static str,
    /// Its purpose, in one sentence.
    pub about: &'static str,
    pub version: &'static str,
    pub settings: Table,
    /// The settings of the other program. They are ignored, not refused, so that one manifest or one
    /// file can serve both.
    pub other: Table,
    /// Further documents that it can print.
    pub printouts: &'static [Printout],
}

/// A document that a program prints if it is called with a flag.
#[derive(Clone, Copy, Debug)]
pub struct Printout {
    /// The flag, without its dashes.
    pub flag: &'static str,
    /// The document that it prints, for the help.
    pub about: &'static str,
    /// Makes the document.
    pub text: fn() -> String,
}

impl Program {
    pub fn settings(&self) -> impl Iterator<Item = &'static Setting> + use<> {
        self.settings.iter().copied().flatten()
    }

    pub fn setting(&self, key: &str) -> Option<&'static Setting> {
        self.settings().find(|setting| setting.key == key)
    }

    /// Those of the program and of the other one.
    pub(super) fn known(&self) -> impl Iterator<Item = &'static Setting> + use<> {
        self.settings().chain(self.other.iter().copied().flatten())
    }

    fn command(&self) -> Command {
        let file = Arg::new("config")
            .long("config")
            .value_name("FILE")
            .help(format!(
                "Reads settings from a TOML file (default: the one that {FILE_VARIABLE} names)"
            ))
            .value_parser(value_parser!(PathBuf));
        let usual = [
            (
                PRINT_CONFIG,
                "Prints each setting with its value and where it comes from",
            ),
            (
                CHECK_CONFIG,
                "Checks the settings, prints every mistake or what will be used, and ends",
            ),
            (
                PRINT_DEFAULTS,
                "Prints a file of settings with all defaults",
            ),
            (HELP_SETTINGS, "Prints all settings as a table in Markdown"),
        ];
        let own = self.printouts.iter().map(|own| (own.flag, own.about));
        let flags = usual.into_iter().chain(own).map(|(name, about)| {
            let flag = Arg::new(name).long(name).help(about);
            flag.action(ArgAction::SetTrue).group("print")
        });
        Command::new(self.name)
            .about(self.about)
            .version(self.version)
            .arg(file)
            .args(flags)
            .group(ArgGroup::new("print"))
    }

    /// A document that can be printed without reading the settings.
    fn printout(&self, asked: &ArgMatches) -> Option<String> {
        if asked.get_flag(PRINT_DEFAULTS) {
            return Some(print::defaults(self));
        }
        if asked.get_flag(HELP_SETTINGS) {
            return Some(print::help(self));
        }
        let own = self
            .printouts
            .iter()
            .find(|printout| asked.get_flag(printout.flag))?;
        Some((own.text)())
    }
}

/// The end of a program that does not start: an exit code and a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EarlyExit {
    pub code: u8,
    pub stdout: String,
    pub stderr: String,
}

impl EarlyExit {
    /// Prints the text, and returns the code for `main`.
    pub fn report(&self) -> ExitCode {
        // If the output is closed, nobody can be informed.
        let _ = std::io::stdout().write_all(self.stdout.as_bytes());
        let _ = std::io::stderr().write_all(self.stderr.as_bytes());
        ExitCode::from(self.code)
    }

    fn success(stdout: String) -> Self {
        Self {
            code: 0,
            stdout,
            stderr: String::new(),
        }
    }

    fn failure(stdout: String, stderr: String) -> Self {
        Self {
            code: EXIT_SETTINGS,
            stdout,
            stderr,
        }
    }
}

/// Also the help and the version, which clap returns as errors.
impl From<clap::Error> for EarlyExit {
    fn from(error: clap::Error) -> Self {
        let text = error.render().to_string();
        if error.use_stderr() {
            Self::failure(String::new(), text)
        } else {
            Self::success(text)
        }
    }
}

/// Reads the settings of `program` from its arguments (the first is its own name) and its
/// environment. `read` makes the program's own settings of them; it may return `None` only after it
/// has added a mistake.
///
/// # Errors
/// If the program must not start: a flag asks for a printout, or there are mistakes.
///
/// # Panics
/// If `read` returns `None` without a mistake, which is an error of the program.
pub fn load<S>(
    program: &Program,
    arguments: impl IntoIterator<Item = impl Into<OsString> + Clone>,
    variables: &Variables,
    read: impl FnOnce(&mut Reader) -> Option<S>,
) -> Result<S, EarlyExit> {
    let asked = program.command().try_get_matches_from(arguments)?;
    if let Some(text) = program.printout(&asked) {
        return Err(EarlyExit::success(text));
    }
    let file = asked.get_one::<PathBuf>("config").map(PathBuf::as_path);
    let mut reader = merge(program, file, variables);
    let settings = read(&mut reader);
    let print_config = asked.get_flag(PRINT_CONFIG);
    let values = print_config.then(|| print::values(program, &reader));
    if !reader.mistakes.is_empty() {
        let stderr = list(program, &reader.mistakes);
        return Err(EarlyExit::failure(values.unwrap_or_default(), stderr));
    }
    if let Some(values) = values {
        return Err(EarlyExit::success(values));
    }
    if asked.get_flag(CHECK_CONFIG) {
        let summary = print::summary(program, &reader.notes);
        return Err(EarlyExit::success(summary));
    }
    Ok(settings.expect("settings without a mistake can be read"))
}

fn list(program: &Program, mistakes: &[String]) -> String {
    let name = program.name;
    let mut text = format!("{name} does not start. Mistakes in the settings:\n");
    for mistake in mistakes {
        let _ = writeln!(text, "  {mistake}");
    }
    text
}
