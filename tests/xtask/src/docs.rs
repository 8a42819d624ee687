//! Documents that are made from the programs, so that they cannot say anything else.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use clap::Command;
use sampler_testkit::program::{CLI, RECEIVER, WORKER, build};
use sampler_testkit::workspace_dir;
use similar::TextDiff;

use crate::kubernetes;

/// Documents: the path of each, and the program and arguments whose output it is.
const GENERATED: [(&str, &str, &str); 9] = [
    ("docs/settings-receiver.md", RECEIVER, "--help-settings"),
    ("docs/settings-worker.md", WORKER, "--help-settings"),
    ("docs/errors.md", RECEIVER, "--help-errors"),
    ("docs/metrics-receiver.md", RECEIVER, "--help-metrics"),
    ("docs/metrics-worker.md", WORKER, "--help-metrics"),
    ("docs/help/sampler-receiver.txt", RECEIVER, "--help"),
    ("docs/help/sampler-worker.txt", WORKER, "--help"),
    ("docs/config/receiver.toml", RECEIVER, "--print-defaults"),
    ("docs/config/worker.toml", WORKER, "--print-defaults"),
];

/// Writes all documents, or only compares them.
pub(crate) fn run(check: bool) -> Result<()> {
    eprintln!("==> generated documents");
    let programs = build()?;
    let cli = programs.join(CLI);
    let mut stale = Vec::new();
    let mut commands = Vec::new();
    add_commands(&mut commands, &sampler_cli::command(), "sampler", "");
    let of_cli = commands.into_iter().map(|(document, arguments)| {
        let text = generate(&cli, &arguments);
        (document, text)
    });
    let of_programs = GENERATED.iter().map(|(document, program, arguments)| {
        let text = generate(&programs.join(program), arguments);
        ((*document).to_owned(), text)
    });
    let rules = (kubernetes::RULES.to_owned(), kubernetes::rules());
    for (document, text) in of_programs.chain(of_cli).chain([rules]) {
        let text = text.with_context(|| format!("making {document}"))?;
        let path = workspace_dir().join(&document);
        if !check {
            write(&path, &text)?;
            continue;
        }
        let present = fs::read_to_string(&path).unwrap_or_default();
        if present != text {
            let diff = TextDiff::from_lines(&present, &text);
            eprintln!(
                "{}",
                diff.unified_diff().header(&document, "as it is to be")
            );
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

/// The help of a command of the command line, and of all below it: documents and arguments.
fn add_commands(all: &mut Vec<(String, String)>, command: &Command, name: &str, words: &str) {
    all.push((format!("docs/help/{name}.txt"), format!("{words}--help")));
    for command in command.get_subcommands() {
        let last = command.get_name();
        add_commands(
            all,
            command,
            &format!("{name}-{last}"),
            &format!("{words}{last} "),
        );
    }
}

fn generate(program: &Path, arguments: &str) -> Result<String> {
    // Nothing of this machine's environment is to show in a document.
    let mut command = std::process::Command::new(program);
    command.args(arguments.split(' ')).env_clear();
    let output = command.output();
    let output = output.with_context(|| format!("starting {}", program.display()))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "{} {arguments}: {errors}",
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
    use std::collections::BTreeSet;

    use super::*;

    /// All folders with lines that operators may see.
    const FOLDERS: [&str; 10] = [
        "crates/upstream/src",
        "crates/console/src",
        "crates/oauth/src",
        "crates/program/src",
        "crates/service/src",
        "crates/settings/src",
        "crates/steering/src",
        "crates/store-mongo/src",
        "receiver/src",
        "worker/src",
    ];

    /// A warning or error, as a source logs it.
    #[derive(Debug, PartialEq, Eq)]
    struct Event {
        code: Option<String>,
        message: String,
    }

    /// Threats that no test can show to be met.
    const BY_CONSTRUCTION_MAX: usize = 2;

    /// Each threat has tests that are in the sources, so that no promise outlives what shows it.
    #[test]
    fn each_threat_names_tests_that_are_there() {
        let document = fs::read_to_string(workspace_dir().join("docs/security.md")).unwrap();
        let (_, table) = document
            .split_once("| Threat | Countermeasure | Shown by |\n| --- | --- | --- |\n")
            .unwrap();
        let rows: Vec<&str> = table.lines().take_while(|line| !line.is_empty()).collect();
        assert!(rows.len() > 40, "{}", rows.len());
        let (mut by_construction, mut wrong) = (0, Vec::new());
        for row in rows {
            let cells: Vec<&str> = row.trim_matches('|').split(" | ").collect();
            let shown = cells.last().unwrap().trim();
            if shown.starts_with("By construction: ") {
                by_construction += 1;
                continue;
            }
            let tests: Vec<&str> = shown.split(", ").collect();
            let is_right = cells.len() == 3 && tests.iter().all(|test| is_test(test));
            wrong.extend((!is_right).then(|| format!("{}: {shown}", cells[0])));
        }
        assert_eq!(wrong, Vec::<String>::new());
        assert!(by_construction <= BY_CONSTRUCTION_MAX, "{by_construction}");
    }

    /// Whether `file::test` in backticks is a test of that file; one of the stores' contract is a test of
    /// both stores.
    fn is_test(named: &str) -> bool {
        let named = named.strip_prefix('`').and_then(|it| it.strip_suffix('`'));
        let Some((file, name)) = named.and_then(|it| it.split_once("::")) else {
            return false;
        };
        let source = fs::read_to_string(workspace_dir().join(file)).unwrap_or_default();
        let Some((before, _)) = source.split_once(&format!("fn {name}(")) else {
            return false;
        };
        let attributes = before.rsplit("\n\n").next().unwrap_or_default();
        attributes.contains("#[test]")
            || attributes.contains("#[tokio::test")
            || file.starts_with("tests/store-testing/src/contract/")
    }

    #[test]
    fn a_test_is_known_by_its_attribute() {
        let own = "tests/xtask/src/docs.rs";
        assert!(is_test(&format!(
            "`{own}::a_test_is_known_by_its_attribute`"
        )));
        for other in [
            format!("`{own}::is_test`"),
            format!("`{own}::nothing_of_the_kind`"),
            format!("{own}::a_test_is_known_by_its_attribute"),
            "`nowhere.rs::a_test`".to_owned(),
        ] {
            assert!(!is_test(&other), "{other}");
        }
    }

    /// Each line that may wake an operator has a code, and the document for operators explains these
    /// codes and no others, each at the anchor that `help` of the line names.
    #[test]
    fn every_warning_and_error_is_told_to_operators() {
        let document = fs::read_to_string(workspace_dir().join("docs/operations.md")).unwrap();
        let anchors = document.split("<a id=\"").skip(1);
        let anchors = anchors.map(|rest| rest.split('"').next().unwrap().to_owned());
        let mut codes = BTreeSet::new();
        for folder in FOLDERS {
            let sources = sources(&workspace_dir().join(folder));
            for event in sources.iter().flat_map(|source| events(source)) {
                let code = event.code.as_deref().unwrap_or_default();
                assert!(is_code(code), "{event:?} in {folder}");
                codes.insert(code.to_owned());
            }
        }
        assert!(codes.len() > 20, "{codes:?}");
        assert_eq!(anchors.collect::<BTreeSet<_>>(), codes);
    }

    /// Lower case words with dots between areas and events.
    fn is_code(code: &str) -> bool {
        let is_word = |word: &str| {
            !word.is_empty() && word.bytes().all(|b| b.is_ascii_lowercase() || b == b'_')
        };
        code.contains('.') && code.split('.').all(is_word)
    }

    #[test]
    fn the_message_of_a_line_is_its_last_text() {
        let source = r#"warn!(error = format!("{x}"), "one"); error!("two (or) \"three\"");
            error_span!("no"); info!("no"); tracing::warn!(
                code = "area.event", a, "four"
            );"#;
        let event = |code: Option<&str>, message: &str| Event {
            code: code.map(str::to_owned),
            message: message.to_owned(),
        };
        assert_eq!(
            events(source),
            [
                event(None, "one"),
                event(None, r#"two (or) \"three\""#),
                event(Some("area.event"), "four")
            ]
        );
        assert!(is_code("a.b_c") && !is_code("a") && !is_code("a.B") && !is_code("a..b"));
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

    /// The warnings and errors of a source, in its order.
    fn events(source: &str) -> Vec<Event> {
        let starts = ["warn!(", "error!("]
            .iter()
            .flat_map(|name| source.match_indices(name).map(|(at, name)| at + name.len()));
        let mut starts: Vec<usize> = starts.collect();
        starts.sort_unstable();
        starts
            .into_iter()
            .filter_map(|start| event(&source[start..]))
            .collect()
    }

    /// The message is the last text before the parenthesis that ends the arguments; the code is the
    /// text after `code = `.
    fn event(arguments: &str) -> Option<Event> {
        let (mut depth, mut rest, mut message, mut code) = (1, arguments, None, None);
        while depth > 0 {
            let at = rest.find(['(', ')', '"'])?;
            let (before, after) = rest.split_at(at);
            let (found, after) = after.split_at(1);
            rest = after;
            match found {
                "(" => depth += 1,
                ")" => depth -= 1,
                _ => {
                    let escaped = |end: &usize| rest[..*end].ends_with('\\');
                    let mut quotes = rest.match_indices('"').map(|(end, _)| end);
                    let end = quotes.find(|end| !escaped(end))?;
                    let text = rest[..end].to_owned();
                    if before.ends_with("code = ") {
                        code = Some(text);
                    } else {
                        message = Some(text);
                    }
                    rest = &rest[end + 1..];
                }
            }
        }
        message.map(|message| Event { code, message })
    }

    #[test]
    fn each_setting_has_advice() {
        let advice = include_str!("../../../docs/settings.md");
        let tables = [
            include_str!("../../../docs/settings-receiver.md"),
            include_str!("../../../docs/settings-worker.md"),
        ];
        let rows = tables.iter().flat_map(|table| table.lines().skip(2));
        for row in rows {
            let name = row.split('`').nth(1).unwrap();
            let is_mentioned = advice.contains(&format!("`{name}`"));
            assert!(is_mentioned, "docs/settings.md does not mention {name}");
        }
    }
}
