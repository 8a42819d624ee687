//! A program's table, its command line, and what becomes of both.

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

/// The exit code of a program that was called or set up wrongly (`EX_USAGE`).
pub const EXIT_SETTINGS: u8 = 64;

/// The flags that every program has.
const PRINT_CONFIG: &str = "print-config";
const CHECK_CONFIG: &str = "check-config";
const PRINT_DEFAULTS: &str = "print-defaults";
const HELP_SETTINGS: &str = "help-settings";

/// Groups of settings.
pub type Groups = &'static [&'static [Setting]];

/// What makes a program one of ours: its name and its settings.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// What it is called on the command line.
    pub name: &'static str,
    /// What it does, in one sentence.
    pub about: &'static str,
    /// Its version.
    pub version: &'static str,
    /// Its table, in groups: shared ones and its own.
    pub settings: Groups,
    /// The table of the other program, whose settings may stand beside ours: one manifest, or one
    /// file, can serve both.
    pub other: Groups,
    /// Documents of its own that it can print.
    pub printouts: &'static [Printout],
}

/// A document that a program prints where it is called with a flag.
#[derive(Clone, Copy, Debug)]
pub struct Printout {
    /// The flag, without its dashes.
    pub flag: &'static str,
    /// What it prints, for the help.
    pub about: &'static str,
    /// Makes the document.
    pub text: fn() -> String,
}

impl Program {
    /// All settings in the order of the table.
    pub fn settings(&self) -> impl Iterator<Item = &'static Setting> + use<> {
        self.settings.iter().flat_map(|group| group.iter())
    }

    /// The setting of this key.
    pub fn setting(&self, key: &str) -> Option<&'static Setting> {
        self.settings().find(|setting| setting.key == key)
    }

    /// Whether the other program has a setting of this key or environment variable.
    pub(super) fn is_of_the_other(&self, name: &str) -> bool {
        let mut settings = self.other.iter().flat_map(|group| group.iter());
        settings.any(|setting| setting.key == name || setting.env == name)
    }

    /// What is wrong with the table itself; for the tests of a program.
    pub fn slips(&self) -> Vec<String> {
        let mut slips = Vec::new();
        for (place, setting) in self.settings().enumerate() {
            let name = setting.key;
            let before = || self.settings().take(place);
            let mut slip = |wrong: bool, what: &str| {
                if wrong {
                    slips.push(format!("{name}: {what}"));
                }
            };
            slip(
                before().any(|other| other.key == name),
                "the key is there twice",
            );
            slip(
                before().any(|other| other.env == setting.env),
                "the variable is there twice",
            );
            slip(name.split('.').count() != 2, "the key is not section.name");
            let apart = before().any(|other| other.section() == setting.section())
                && before()
                    .last()
                    .is_some_and(|other| other.section() != setting.section());
            slip(apart, "its section stands in two places");
            let invalid = setting
                .default
                .is_some_and(|text| setting.kind.parse(text).is_none());
            slip(invalid, "the default is not valid");
            slip(
                setting.required && setting.default.is_some(),
                "required, but has a default",
            );
            slip(
                !setting.doc.ends_with('.'),
                "the description is no sentence",
            );
        }
        slips
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
                "Reads settings from a TOML file (or the one {FILE_VARIABLE} names)"
            ))
            .value_parser(value_parser!(PathBuf));
        let shared = [
            flag(
                PRINT_CONFIG,
                "Prints the settings in force, and where each comes from",
            ),
            flag(
                CHECK_CONFIG,
                "Checks the settings, names every mistake, and ends",
            ),
            flag(
                PRINT_DEFAULTS,
                "Prints a file of settings that holds all defaults",
            ),
            flag(
                HELP_SETTINGS,
                "Prints what can be set, as a table in Markdown",
            ),
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

    /// A document that needs no settings to be read.
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

/// What is left to do for a program that does not start: say something and end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExitPlan {
    /// The exit code.
    pub code: u8,
    /// For standard output.
    pub stdout: String,
    /// For standard error.
    pub stderr: String,
}

impl ExitPlan {
    /// Says it, and hands back the code for `main` to end with.
    pub fn carry_out(&self) -> ExitCode {
        // Whoever has closed our output does not want to hear that it is closed.
        let _ = std::io::stdout().write_all(self.stdout.as_bytes());
        let _ = std::io::stderr().write_all(self.stderr.as_bytes());
        ExitCode::from(self.code)
    }

    fn print(text: String) -> Self {
        Self {
            code: 0,
            stdout: text,
            stderr: String::new(),
        }
    }
}

/// Reads the settings of `program` from its arguments (the first is its own name) and its
/// environment. `read` makes the program's own settings of them; it may yield none only where it
/// has found a mistake.
///
/// # Errors
/// Where the program shall not start: something was asked for that is now printed, or there are
/// mistakes, all of them named.
///
/// # Panics
/// Where `read` yields none without a mistake, which is a slip of the program.
pub fn load<S>(
    program: &Program,
    arguments: impl IntoIterator<Item = impl Into<OsString> + Clone>,
    variables: &Variables,
    read: impl FnOnce(&mut Reader<'_>) -> Option<S>,
) -> Result<S, ExitPlan> {
    let asked = program
        .command()
        .try_get_matches_from(arguments)
        .map_err(|error| plan_of(&error))?;
    if let Some(text) = program.printout(&asked) {
        return Err(ExitPlan::print(text));
    }
    let layers = lay(
        program,
        asked.get_one::<PathBuf>("config").map(PathBuf::as_path),
        variables,
    );
    let print_config = asked.get_flag(PRINT_CONFIG);
    let in_force = if print_config {
        print::in_force(program, &layers)
    } else {
        String::new()
    };
    let mut reader = Reader::new(program, layers);
    let settings = read(&mut reader);
    let mistakes = reader.into_mistakes();
    if !mistakes.is_empty() {
        let stderr = list(program, &mistakes);
        return Err(ExitPlan {
            code: EXIT_SETTINGS,
            stdout: in_force,
            stderr,
        });
    }
    if print_config {
        return Err(ExitPlan::print(in_force));
    }
    if asked.get_flag(CHECK_CONFIG) {
        return Err(ExitPlan::print(format!(
            "{}: the settings are fine\n",
            program.name
        )));
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
) -> Result<S, ExitPlan> {
    load(
        program,
        std::env::args_os(),
        &Variables::of_this_process(),
        read,
    )
}

/// What clap has to say: the help and the version count as errors there.
fn plan_of(error: &clap::Error) -> ExitPlan {
    let text = error.render().to_string();
    if error.use_stderr() {
        ExitPlan {
            code: EXIT_SETTINGS,
            stdout: String::new(),
            stderr: text,
        }
    } else {
        ExitPlan::print(text)
    }
}

fn list(program: &Program, mistakes: &[Mistake]) -> String {
    let what = if mistakes.len() == 1 {
        "a mistake"
    } else {
        "mistakes"
    };
    let mut text = format!("{}: {what} in the settings, not starting:\n", program.name);
    for mistake in mistakes {
        let _ = writeln!(text, "  {mistake}");
    }
    text
}
