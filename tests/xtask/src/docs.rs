//! Documents that are made from the programs, so that they cannot say anything else.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use sampler_testkit::program::{RECEIVER, WORKER, build};
use sampler_testkit::workspace_dir;
use similar::TextDiff;

/// Documents: the path of each, and the program and argument whose output it is.
const GENERATED: [(&str, &str, &str); 7] = [
    ("docs/settings-receiver.md", RECEIVER, "--help-settings"),
    ("docs/settings-worker.md", WORKER, "--help-settings"),
    ("docs/errors.md", RECEIVER, "--help-errors"),
    ("docs/help/sampler-receiver.txt", RECEIVER, "--help"),
    ("docs/help/sampler-worker.txt", WORKER, "--help"),
    ("docs/config/receiver.toml", RECEIVER, "--print-defaults"),
    ("docs/config/worker.toml", WORKER, "--print-defaults"),
];

/// Writes all documents, or only compares them.
pub(crate) fn run(check: bool) -> Result<()> {
    eprintln!("==> generated documents");
    let programs = build()?;
    let mut stale = Vec::new();
    for (document, program, argument) in GENERATED {
        let text = generate(&programs.join(program), argument);
        let text = text.with_context(|| format!("making {document}"))?;
        let path = workspace_dir().join(document);
        if !check {
            write(&path, &text)?;
            continue;
        }
        let present = fs::read_to_string(&path).unwrap_or_default();
        if present != text {
            let diff = TextDiff::from_lines(&present, &text);
            eprintln!("{}", diff.unified_diff().header(document, "as it is to be"));
            stale.push(document);
        }
    }
    if !stale.is_empty() {
        bail!(
            "not up to date: {}; run `cargo xtask docs`",
            stale.join(", ")
        );
    }
    Ok(())
}

fn generate(program: &Path, argument: &str) -> Result<String> {
    // Nothing of this machine's environment is to show in a document.
    let output = Command::new(program).arg(argument).env_clear().output();
    let output = output.with_context(|| format!("starting {}", program.display()))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "{} {argument}: {errors}",
        program.display()
    );
    String::from_utf8(output.stdout).context("not UTF-8")
}

fn write(path: &Path, text: &str) -> Result<()> {
    let folder = path.parent().context("a document lies in a folder")?;
    fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
    fs::write(path, text).with_context(|| format!("writing {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whoever is woken by a line of the log finds it in the document for operators.
    #[test]
    fn every_warning_and_error_is_told_to_operators() {
        let document = fs::read_to_string(workspace_dir().join("docs/operations.md")).unwrap();
        let folders =
            ["abacus", "oauth", "service", "store-mongo"].map(|name| format!("crates/{name}/src"));
        let folders = folders
            .into_iter()
            .chain(["receiver/src".into(), "worker/src".into()]);
        let messages: Vec<String> = folders
            .flat_map(|folder| sources(&workspace_dir().join(folder)))
            .flat_map(|source| messages(&source))
            .collect();
        assert!(messages.len() > 20, "{messages:?}");
        let untold: Vec<_> = messages
            .iter()
            .filter(|message| !document.contains(&format!("`{message}`")))
            .collect();
        assert!(untold.is_empty(), "not in docs/operations.md: {untold:?}");
    }

    #[test]
    fn the_message_of_a_line_is_its_last_text() {
        let source = r#"warn!(error = format!("{x}"), "one"); error!("two (or) \"three\"");
            error_span!("no"); info!("no"); tracing::warn!(
                a, "four"
            );"#;
        assert_eq!(messages(source), ["one", r#"two (or) \"three\""#, "four"]);
    }

    /// The texts of all files of a folder, without their tests.
    fn sources(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().path());
        let text = |path: &Path| {
            let text = fs::read_to_string(path).unwrap();
            text.split("#[cfg(test)]").next().unwrap().to_owned()
        };
        entries
            .flat_map(|path| {
                if path.is_dir() {
                    sources(&path)
                } else {
                    vec![text(&path)]
                }
            })
            .collect()
    }

    /// The messages that a source logs as warnings or errors.
    fn messages(source: &str) -> Vec<String> {
        let starts = ["warn!(", "error!("]
            .iter()
            .flat_map(|name| source.match_indices(name).map(|(at, name)| at + name.len()));
        let mut starts: Vec<usize> = starts.collect();
        starts.sort_unstable();
        starts
            .into_iter()
            .filter_map(|start| last_text(&source[start..]))
            .collect()
    }

    /// The last text before the parenthesis that ends the arguments.
    fn last_text(arguments: &str) -> Option<String> {
        let (mut depth, mut rest, mut last) = (1, arguments, None);
        while depth > 0 {
            let at = rest.find(['(', ')', '"'])?;
            let (found, after) = rest[at..].split_at(1);
            rest = after;
            match found {
                "(" => depth += 1,
                ")" => depth -= 1,
                _ => {
                    let escaped = |end: &usize| rest[..*end].ends_with('\\');
                    let mut quotes = rest.match_indices('"').map(|(end, _)| end);
                    let end = quotes.find(|end| !escaped(end))?;
                    last = Some(rest[..end].to_owned());
                    rest = &rest[end + 1..];
                }
            }
        }
        last
    }
}
