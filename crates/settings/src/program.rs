//! A program on the command line: it starts with its settings, or prints something and ends.

use std::fmt::Write as _;
use std::process::ExitCode;

use sampler_service::lifecycle::EXIT_SETTINGS;
use sampler_service::program::{Startup, run};

use crate::Settings;
use crate::load::{Variables, gather, of_this_process};
use crate::reader::Reader;

/// What any program prints if it is asked to.
const USUAL: &str =
    "  --check-config   Checks the settings, and prints every mistake or what will be used
  --help-settings  Prints all settings as a table in Markdown
  --help           Prints this
  --version        Prints the version
";

#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// Its name on the command line.
    pub name: &'static str,
    /// Its purpose, in one sentence.
    pub about: &'static str,
    pub version: &'static str,
    pub printouts: &'static [Printout],
}

/// A flag, and the document in Markdown that a program prints if it is called with it.
pub(crate) type Printout = (&'static str, fn() -> String);

/// The end of a program that does not start: an exit code, and a text, for the standard output where the code is 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EarlyExit {
    pub code: u8,
    pub text: String,
}

/// Reads the settings of a program and starts it with them.
pub fn start<S, B, F>(program: &'static Program, body: B) -> ExitCode
where
    S: Settings,
    B: FnOnce(S, Startup) -> F + Send + 'static,
    F: Future<Output = anyhow::Result<()>> + Send,
{
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let variables = of_this_process();
    let settings = match load::<S>(program, &arguments, &variables) {
        Ok(settings) => settings,
        Err(EarlyExit { code: 0, text }) => {
            print!("{text}");
            return ExitCode::SUCCESS;
        }
        Err(EarlyExit { code, text }) => {
            eprint!("{text}");
            return ExitCode::from(code);
        }
    };
    run(settings.common().options(program), move |startup| {
        settings.common().announce(&variables);
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
    let ends = |code, text| Err(EarlyExit { code, text });
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let is_check = match arguments.as_slice() {
        [] => false,
        ["--check-config"] => true,
        ["--help" | "-h"] => return ends(0, usage(program)),
        ["--version" | "-V"] => return ends(0, format!("{} {}\n", program.name, program.version)),
        ["--help-settings"] => return ends(0, help::<S>()),
        other => match program.printouts.iter().find(|own| *other == [own.0]) {
            Some((_, document)) => return ends(0, document()),
            None => return ends(EXIT_SETTINGS, usage(program)),
        },
    };
    let mut reader = gather::<S>(variables);
    let settings = S::read(&mut reader);
    let name = program.name;
    if !reader.mistakes.is_empty() {
        let mistakes = reader.mistakes.join("\n  ");
        let text = format!("{name} does not start. Mistakes in the settings:\n  {mistakes}\n");
        return ends(EXIT_SETTINGS, text);
    }
    if is_check {
        let mut text = format!("{name}: the settings are fine\n");
        for (name, shown) in reader.values() {
            let _ = writeln!(text, "  {name} = {shown}");
        }
        return ends(0, text);
    }
    Ok(settings)
}

fn usage(program: &Program) -> String {
    let Program { name, about, .. } = program;
    let own = program
        .printouts
        .iter()
        .map(|(flag, _)| format!("  {flag}\n"));
    format!(
        "{about}\n\nUsage: {name} [OPTION]\n\n{}{USUAL}",
        own.collect::<String>()
    )
}

/// All settings as a table in Markdown, in the order of their groups.
pub fn help<S: Settings>() -> String {
    let reader = Reader::of_defaults(S::GROUPS, S::DEFAULTS);
    let mut text = "| Setting | Default | What it is |\n| --- | --- | --- |\n".to_owned();
    for setting in S::GROUPS.iter().copied().flatten() {
        let setting = reader.setting(setting.name);
        let default = setting
            .default
            .map_or_else(|| "none".to_owned(), |it| format!("`{it}`"));
        let secret = if setting.is_secret {
            " Secret: never shown."
        } else {
            ""
        };
        let what = format!("{}{secret} Takes {}.", setting.doc, setting.expected());
        let what = what.replace('|', r"\|");
        let _ = writeln!(text, "| `{}` | {default} | {what} |", setting.name);
    }
    text
}
