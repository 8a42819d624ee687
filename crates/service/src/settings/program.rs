//! A program with settings: its table, its command line, and [`load`], which reads both.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Arg, ArgAction, ArgGroup, ArgMatches, Command, value_parser};

use super::layers::{FILE_VARIABLE, Variables, lay};
use super::mistake::Mistake;
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

/// A program, with its name and its settings.
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
    /// All settings in the order of the table.
    pub fn settings(&self) -> impl Iterator<Item = &'static Setting> + use<> {
        self.settings.iter().flat_map(|group| group.iter())
    }

    pub fn setting(&self, key: &str) -> Option<&'static Setting> {
        self.settings().find(|setting| setting.key == key)
    }

    /// Whether the other program has a setting of this key or environment variable.
    pub(super) fn is_of_the_other(&self, name: &str) -> bool {
        let mut settings = self.other.iter().flat_map(|group| group.iter());
        settings.any(|setting| setting.key == name || setting.env == name)
    }

    /// The errors of the table itself, for the tests of a program.
    pub fn table_errors(&self) -> Vec<String> {
        let mut errors = Vec::new();
        for (place, setting) in self.settings().enumerate() {
            let name = setting.key;
            let before = || self.settings().take(place);
            let mut check = |wrong: bool, what: &str| {
                if wrong {
                    errors.push(format!("{name}: {what}"));
                }
            };
            check(
                before().any(|other| other.key == name),
                "the key is declared twice",
            );
            check(
                before().any(|other| other.env == setting.env),
                "the variable is declared twice",
            );
            check(name.split('.').count() != 2, "the key is not section.name");
            let apart = before().any(|other| other.section() == setting.section())
                && before()
                    .last()
                    .is_some_and(|other| other.section() != setting.section());
            check(apart, "its section is in two places");
            let invalid = setting
                .default
                .is_some_and(|text| setting.kind.parse(text).is_none());
            check(invalid, "the default is not valid");
            check(
                setting.required && setting.default.is_some(),
                "required, but has a default",
            );
            check(
                !setting.doc.ends_with('.'),
                "the description is not a sentence",
            );
        }
        errors
    }

    fn command(&self) -> Command {
        let flag = |name: &'static str, about: &'static str| {
            Arg::new(name)
                .long(name)
                .help(about)
                .action(ArgAction::SetTrue)
        };
        let file = Arg::new("config")
            .long("config")
            .value_name("FILE")
            .help(format!(
                "Reads settings from a TOML file (default: the one that {FILE_VARIABLE} names)"
            ))
            .value_parser(value_parser!(PathBuf));
        let shared = [
            flag(
                PRINT_CONFIG,
                "Prints each setting with its value and where it comes from",
            ),
            flag(
                CHECK_CONFIG,
                "Checks the settings, prints every mistake or what will be used, and ends",
            ),
            flag(
                PRINT_DEFAULTS,
                "Prints a file of settings with all defaults",
            ),
            flag(HELP_SETTINGS, "Prints all settings as a table in Markdown"),
        ];
        let own = self
            .printouts
            .iter()
            .map(|printout| flag(printout.flag, printout.about));
        let flags: Vec<_> = shared.into_iter().chain(own).collect();
        let one_of = ArgGroup::new("print").args(flags.iter().map(|flag| flag.get_id().clone()));
        Command::new(self.name)
            .about(self.about)
            .version(self.version)
            .arg(file)
            .args(flags)
            .group(one_of)
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
            .find(|printout| asked.get_flag(printout.flag));
        own.map(|printout| (printout.text)())
    }
}

/// The end of a program that does not start: an exit code and a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EarlyExit {
    pub code: u8,
    /// For standard output.
    pub stdout: String,
    /// For standard error.
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

    fn success(text: String) -> Self {
        Self {
            code: 0,
            stdout: text,
            stderr: String::new(),
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
    read: impl FnOnce(&mut Reader<'_>) -> Option<S>,
) -> Result<S, EarlyExit> {
    let asked = program
        .command()
        .try_get_matches_from(arguments)
        .map_err(|error| exit_of(&error))?;
    if let Some(text) = program.printout(&asked) {
        return Err(EarlyExit::success(text));
    }
    let layers = lay(
        program,
        asked.get_one::<PathBuf>("config").map(PathBuf::as_path),
        variables,
    );
    let print_config = asked.get_flag(PRINT_CONFIG);
    let values = if print_config {
        print::values(program, &layers)
    } else {
        String::new()
    };
    let mut reader = Reader::new(program, layers);
    let settings = read(&mut reader);
    let (mistakes, notes) = reader.into_parts();
    if !mistakes.is_empty() {
        let stderr = list(program, &mistakes);
        return Err(EarlyExit {
            code: EXIT_SETTINGS,
            stdout: values,
            stderr,
        });
    }
    if print_config {
        return Err(EarlyExit::success(values));
    }
    if asked.get_flag(CHECK_CONFIG) {
        return Err(EarlyExit::success(print::outlook(program, &notes)));
    }
    Ok(settings.expect("settings without a mistake can be read"))
}

/// [`load`] for the arguments and the environment of this process.
///
/// # Errors
/// As [`load`].
///
/// # Panics
/// As [`load`].
pub fn load_from_process<S>(
    program: &Program,
    read: impl FnOnce(&mut Reader<'_>) -> Option<S>,
) -> Result<S, EarlyExit> {
    load(
        program,
        std::env::args_os(),
        &Variables::of_this_process(),
        read,
    )
}

/// The plan for an error of clap, which also returns the help and the version as errors.
fn exit_of(error: &clap::Error) -> EarlyExit {
    let text = error.render().to_string();
    if error.use_stderr() {
        EarlyExit {
            code: EXIT_SETTINGS,
            stdout: String::new(),
            stderr: text,
        }
    } else {
        EarlyExit::success(text)
    }
}

fn list(program: &Program, mistakes: &[Mistake]) -> String {
    let name = program.name;
    let mut text = format!("{name} does not start. Mistakes in the settings:\n");
    for mistake in mistakes {
        let _ = writeln!(text, "  {mistake}");
    }
    text
}
