//! A program on the command line: it starts with its settings, or prints something and ends.

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::ExitCode;

use sampler_service::lifecycle::EXIT_SETTINGS;
use sampler_service::program::{Startup, run};

use crate::Settings;
use crate::load::{Variables, gather};
use crate::reader::{Reader, expected};

#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// Its name on the command line.
    pub name: &'static str,
    /// Its purpose, in one sentence.
    pub about: &'static str,
    pub version: &'static str,
    /// Further documents that it can print.
    pub printouts: &'static [Printout],
}

/// A document that a program prints if it is called with a flag.
#[derive(Clone, Copy, Debug)]
pub struct Printout {
    /// The flag, with its dashes.
    pub flag: &'static str,
    /// The document that it prints, for the help.
    pub about: &'static str,
    /// Makes the document.
    pub text: fn() -> String,
}

/// The end of a program that does not start: an exit code and a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EarlyExit {
    pub code: u8,
    /// For the standard output where the code is 0, for standard error otherwise.
    pub text: String,
}

impl EarlyExit {
    /// Prints the text, and returns the code for `main`.
    pub fn report(&self) -> ExitCode {
        let text = self.text.as_bytes();
        // If the output is closed, nobody can be informed.
        let _ = match self.code {
            0 => std::io::stdout().write_all(text),
            _ => std::io::stderr().write_all(text),
        };
        ExitCode::from(self.code)
    }
}

/// Reads the settings of a program and starts it with them.
pub fn start<S, B, F>(program: &'static Program, body: B) -> ExitCode
where
    S: Settings,
    B: FnOnce(S, Startup) -> F + Send + 'static,
    F: Future<Output = anyhow::Result<()>> + Send,
{
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let variables = Variables::of_this_process();
    let settings = match load::<S>(program, &arguments, &variables) {
        Ok(settings) => settings,
        Err(exit) => return exit.report(),
    };
    let common = settings.common();
    run(common.options(program), move |startup| {
        common.database.announce();
        let called = settings.token_destination();
        common.security.announce(called.as_ref(), &variables);
        body(settings, startup)
    })
}

/// Reads the settings of a program from its environment. `arguments` are those behind its name.
///
/// # Errors
/// If the program must not start: an argument asks for a document, or there are mistakes.
pub fn load<S: Settings>(
    program: &Program,
    arguments: &[String],
    variables: &Variables,
) -> Result<S, EarlyExit> {
    let printed = |text| Err(EarlyExit { code: 0, text });
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let is_check = match arguments.as_slice() {
        [] => false,
        ["--check-config"] => true,
        ["--help" | "-h"] => return printed(usage(program)),
        ["--version" | "-V"] => return printed(format!("{} {}\n", program.name, program.version)),
        ["--help-settings"] => return printed(help::<S>()),
        [flag] => match program.printouts.iter().find(|own| own.flag == *flag) {
            Some(own) => return printed((own.text)()),
            None => return Err(failed(usage(program))),
        },
        _ => return Err(failed(usage(program))),
    };
    let mut reader = gather::<S>(variables);
    let settings = S::read(&mut reader);
    if !reader.mistakes().is_empty() {
        return Err(failed(list(program, reader.mistakes())));
    }
    if is_check {
        return printed(values(program, &reader));
    }
    Ok(settings)
}

fn failed(text: String) -> EarlyExit {
    let code = EXIT_SETTINGS;
    EarlyExit { code, text }
}

fn usage(program: &Program) -> String {
    let usual = [
        (
            "--check-config",
            "Checks the settings, and prints every mistake or what will be used",
        ),
        (
            "--help-settings",
            "Prints all settings as a table in Markdown",
        ),
        ("--help", "Prints this"),
        ("--version", "Prints the version"),
    ];
    let own = program.printouts.iter().map(|own| (own.flag, own.about));
    let mut text = format!("{}\n\nUsage: {} [OPTION]\n\n", program.about, program.name);
    for (flag, about) in own.chain(usual) {
        let _ = writeln!(text, "  {flag:<17} {about}");
    }
    text
}

fn list(program: &Program, mistakes: &[String]) -> String {
    let name = program.name;
    let mut text = format!("{name} does not start. Mistakes in the settings:\n");
    for mistake in mistakes {
        let _ = writeln!(text, "  {mistake}");
    }
    text
}

/// The values of all settings. A secret is not printed.
fn values(program: &Program, reader: &Reader) -> String {
    let mut text = format!("{}: the settings are fine\n", program.name);
    for setting in reader.settings() {
        let shown = reader.shown(setting.name).unwrap_or("not set");
        let _ = writeln!(text, "  {} = {shown}", setting.name);
    }
    text
}

/// All settings as a table in Markdown, in the order of their groups.
pub fn help<S: Settings>() -> String {
    let settings = || S::GROUPS.iter().copied().flatten();
    let defaults = Reader::of_defaults(settings(), S::DEFAULTS);
    let mut text = "| Setting | Default | What it is |\n| --- | --- | --- |\n".to_owned();
    for setting in settings() {
        let default = match defaults.shown(setting.name) {
            _ if setting.is_secret => setting.default,
            other => other,
        };
        let default = default.map_or_else(|| "none".to_owned(), |default| format!("`{default}`"));
        let secret = if setting.is_secret {
            " Secret: never shown."
        } else {
            ""
        };
        let (doc, takes) = (setting.doc, expected(setting));
        let what = format!("{doc}{secret} Takes {takes}.").replace('|', r"\|");
        let _ = writeln!(text, "| `{}` | {default} | {what} |", setting.name);
    }
    text
}
