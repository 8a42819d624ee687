//! Prints settings: a file of defaults, the values with their origins, and a table in Markdown.

use std::fmt::Write as _;

use super::program::Program;
use super::reader::Reader;
use super::setting::{Kind, Setting};

/// The longest line of a comment, in characters.
const COMMENT_WIDTH: usize = 96;

/// A file of settings with every default and its explanation.
pub(super) fn defaults(program: &Program) -> String {
    let mut text = format!("# The settings of {} and their defaults.\n", program.name);
    let mut section = "";
    for setting in program.settings() {
        open_section(&mut text, &mut section, setting);
        let _ = writeln!(text);
        comment(&mut text, setting.doc);
        comment(&mut text, &format!("{}: {}.", setting.env, setting.kind));
        let _ = match setting.default {
            Some(default) => writeln!(text, "{} = {}", setting.name(), quoted(setting, default)),
            None => writeln!(text, "# {} =", setting.name()),
        };
    }
    text
}

/// The values of the settings as a file, each with its origin. A wrong value is printed as it was
/// written; a secret is not printed.
pub(super) fn values(program: &Program, reader: &Reader) -> String {
    let mut text = String::new();
    let mut section = "";
    for setting in program.settings() {
        open_section(&mut text, &mut section, setting);
        let _ = match reader.resolved.get(setting.key) {
            Some(resolved) => {
                let shown = quoted(setting, &setting.shown(&resolved.text));
                writeln!(text, "{} = {shown} # {}", setting.name(), resolved.origin)
            }
            None => writeln!(text, "# {} is not set", setting.name()),
        };
    }
    text
}

/// What a program will use: one line for each note.
pub(super) fn summary(program: &Program, notes: &[(&str, String)]) -> String {
    let mut text = format!("{}: the settings are fine\n", program.name);
    let topics = notes.iter().map(|(topic, _)| topic.len());
    let width = topics.max().unwrap_or_default();
    for (topic, about) in notes {
        let _ = writeln!(text, "  {topic:width$}  {about}");
    }
    text
}

/// All settings as a table in Markdown.
pub(super) fn help(program: &Program) -> String {
    let mut text =
        "| Environment | File | Default | What it is |\n| --- | --- | --- | --- |\n".to_owned();
    for setting in program.settings() {
        let default = match setting.default {
            Some(default) => format!("`{default}`"),
            None => "none".to_owned(),
        };
        let secret = if setting.secret {
            " Secret: never shown."
        } else {
            ""
        };
        let what = format!("{}{secret}{}", setting.doc, range(setting.kind)).replace('|', r"\|");
        let _ = writeln!(
            text,
            "| `{}` | `{}` | {default} | {what} |",
            setting.env, setting.key
        );
    }
    text
}

/// The values that a setting takes. `docs/settings.md` has the units of durations and sizes, and the
/// longest text.
fn range(kind: Kind) -> String {
    match kind.limits() {
        Some((min, max)) => format!(" From {min} to {max}."),
        None if kind == Kind::Text => String::new(),
        None => format!(" Takes {kind}."),
    }
}

/// Prints the heading of a section before its first setting. The table has each section in one place.
fn open_section(text: &mut String, section: &mut &'static str, setting: &Setting) {
    if *section != setting.section() {
        *section = setting.section();
        let _ = writeln!(text, "\n[{section}]");
    }
}

fn comment(text: &mut String, words: &str) {
    let mut line = "#".to_owned();
    for word in words.split_whitespace() {
        if line.chars().count() + 1 + word.chars().count() > COMMENT_WIDTH {
            let _ = writeln!(text, "{line}");
            "#".clone_into(&mut line);
        }
        let _ = write!(line, " {word}");
    }
    let _ = writeln!(text, "{line}");
}

/// A value in TOML: valid numbers and booleans as they are, anything else in quotes.
fn quoted(setting: &Setting, text: &str) -> String {
    let bare = matches!(setting.kind, Kind::Integer(..) | Kind::Boolean);
    if bare && setting.kind.accepts(text) {
        return text.to_owned();
    }
    toml::Value::String(text.to_owned()).to_string()
}
