//! Printing, and how far a long command is.

use std::env;
use std::ffi::OsStr;
use std::io::{self, Write};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use sampler_api::text::{escape_json, is_invisible};
use serde_json::{Value, json};

use crate::failure::Failure;

/// How often a second progress is drawn.
const DRAWN: u8 = 5;

/// Whether the command line asks for JSON. It is looked for in the arguments themselves, for it counts
/// for a command line that is wrong, too.
pub(crate) fn wants_json() -> bool {
    is_json_asked_for(env::args_os().skip(1))
}

fn is_json_asked_for(arguments: impl Iterator<Item = impl AsRef<OsStr>>) -> bool {
    let mut options = arguments.take_while(|argument| argument.as_ref() != "--");
    options.any(|argument| argument.as_ref() == "--json")
}

/// Whether a text of several lines has anything that a terminal could take for a command.
pub(crate) fn has_invisible(text: &str) -> bool {
    text.chars()
        .any(|character| character != '\n' && is_invisible(character))
}

/// Tells standard error what is to be known beside the output.
pub(crate) fn warn(text: &str) {
    tell("warning", text, &json!({ "message": text }));
}

/// Tells people what helps them on. Machines do not need it.
pub(crate) fn note(text: &str) {
    if !wants_json() {
        eprintln!("note: {}", printable_lines(text));
    }
}

/// A line for people, or an object on one line for machines.
pub(crate) fn tell(kind: &str, text: &str, document: &Value) {
    if wants_json() {
        eprintln!("{}", escape_json(&json!({ kind: document }).to_string()));
    } else {
        eprintln!("{kind}: {}", printable_lines(text));
    }
}

/// Prints a text for people. Whoever wrote parts of it, a terminal takes none of it for a command.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    print_as_is(&printable_lines(text))
}

/// Prints JSON, with a line end behind it. The same holds.
pub(crate) fn print_json_text(json: &str) -> Result<(), Failure> {
    print_as_is(&(escape_json(json) + "\n"))
}

/// Prints a text as it is, which must be our own. A reader that has seen enough, like `head`, is not a
/// failure. What is printed is often what was done.
pub(crate) fn print_as_is(text: &str) -> Result<(), Failure> {
    let mut output = io::stdout().lock();
    let written = output.write_all(text.as_bytes());
    match written.and_then(|()| output.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::Interrupted(format!("standard output: {error}")))
        }
        _ => Ok(()),
    }
}

/// A text of others, without what a terminal would take for a command, or for a mark of direction.
pub(crate) fn printable(text: &str) -> String {
    text.replace(is_invisible, "\u{fffd}")
}

/// The same for a text of several lines.
fn printable_lines(text: &str) -> String {
    text.replace(
        |letter: char| letter != '\n' && is_invisible(letter),
        "\u{fffd}",
    )
}

/// A line on standard error. It is not drawn where nobody looks.
#[derive(Debug)]
pub(crate) struct Progress(ProgressBar);

impl Progress {
    /// Counts to `total`. Without a total, neither a share nor what is left is known.
    pub(crate) fn to(total: Option<u64>) -> Self {
        let target = if wants_json() {
            ProgressDrawTarget::hidden()
        } else {
            ProgressDrawTarget::stderr_with_hz(DRAWN)
        };
        let template = match total {
            Some(_) => "{bar:20} {percent}%  {human_pos} {msg}, {per_sec}, {eta} left",
            None => "{spinner} {human_pos} {msg}, {per_sec}",
        };
        let style = ProgressStyle::with_template(template).expect("a template that is a constant");
        let bar = ProgressBar::with_draw_target(total, target);
        Self(bar.with_style(style.progress_chars("=> ")))
    }

    pub(crate) fn hidden() -> Self {
        Self(ProgressBar::hidden())
    }

    /// Shows how many `things` are done, as in `1,203 events`; `more` follows.
    pub(crate) fn show(&self, done: u64, things: &str, more: &str) {
        self.0.set_position(done);
        self.0.set_message(format!("{things}{more}"));
    }

    /// Takes the line away: what comes then says it all.
    pub(crate) fn finish(&self) {
        self.0.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_asked_for_by_an_option_and_by_no_other_argument() {
        for (arguments, is_asked) in [
            (&["spans", "--json"][..], true),
            (&["--json", "nonsense"], true),
            (&["events", "send", "--", "--json"], false),
            (&["span", "json"], false),
        ] {
            assert_eq!(
                is_json_asked_for(arguments.iter()),
                is_asked,
                "{arguments:?}"
            );
        }
    }

    #[test]
    fn texts_of_others_cannot_command_a_terminal() {
        let hostile = "a\u{1b}[2J\u{9b}\u{202e}é\n";
        let shown = "a\u{fffd}[2J\u{fffd}\u{fffd}é";
        assert_eq!(printable(hostile), format!("{shown}\u{fffd}"));
        assert_eq!(printable_lines(hostile), format!("{shown}\n"));
    }
}
