//! Documents that are made from the programs, so that they cannot say anything else.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use sampler_testkit::program::{RECEIVER, WORKER, build};
use sampler_testkit::workspace_dir;

/// A document: its path, and the program and argument whose output it is.
struct Generated {
    path: &'static str,
    program: &'static str,
    argument: &'static str,
}

const GENERATED: [Generated; 7] = [
    Generated {
        path: "docs/settings-receiver.md",
        program: RECEIVER,
        argument: "--help-settings",
    },
    Generated {
        path: "docs/settings-worker.md",
        program: WORKER,
        argument: "--help-settings",
    },
    Generated {
        path: "docs/errors.md",
        program: RECEIVER,
        argument: "--help-errors",
    },
    Generated {
        path: "docs/help/sampler-receiver.txt",
        program: RECEIVER,
        argument: "--help",
    },
    Generated {
        path: "docs/help/sampler-worker.txt",
        program: WORKER,
        argument: "--help",
    },
    Generated {
        path: "docs/config/receiver.toml",
        program: RECEIVER,
        argument: "--print-defaults",
    },
    Generated {
        path: "docs/config/worker.toml",
        program: WORKER,
        argument: "--print-defaults",
    },
];

/// Writes all documents, or only compares them.
pub(crate) fn run(check: bool) -> Result<()> {
    eprintln!("==> generated documents");
    let programs = build()?;
    let mut stale = Vec::new();
    for document in &GENERATED {
        let text = document.generate(&programs)?;
        let path = workspace_dir().join(document.path);
        if !check {
            write(&path, &text)?;
            continue;
        }
        let present = fs::read_to_string(&path).unwrap_or_default();
        if present != text {
            eprintln!("{}", diff(document.path, &present, &text));
            stale.push(document.path);
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

impl Generated {
    fn generate(&self, programs: &Path) -> Result<String> {
        let program = programs.join(self.program);
        // Nothing of this machine's environment is to show in a document.
        let output = Command::new(&program)
            .arg(self.argument)
            .env_clear()
            .output();
        let output = output.with_context(|| format!("starting {}", program.display()))?;
        let errors = String::from_utf8_lossy(&output.stderr);
        let Self {
            path,
            program,
            argument,
        } = self;
        ensure!(
            output.status.success(),
            "{path}: {program} {argument}: {errors}"
        );
        String::from_utf8(output.stdout).with_context(|| format!("{path}: not UTF-8"))
    }
}

fn write(path: &Path, text: &str) -> Result<()> {
    let folder = path.parent().context("a document lies in a folder")?;
    fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
    fs::write(path, text).with_context(|| format!("writing {}", path.display()))
}

/// The lines between what both texts begin with and what both end with.
fn diff(path: &str, old: &str, new: &str) -> String {
    let (mut old, mut new): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    while old.last().is_some_and(|line| new.last() == Some(line)) {
        old.pop();
        new.pop();
    }
    let same = old
        .iter()
        .zip(&new)
        .take_while(|(old, new)| old == new)
        .count();
    let mut lines = vec![format!("--- {path}, from line {}", same + 1)];
    lines.extend(old[same..].iter().map(|line| format!("-{line}")));
    lines.extend(new[same..].iter().map(|line| format!("+{line}")));
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_the_lines_that_differ() {
        let diff = diff("a.md", "one\ntwo\nthree\nend\n", "one\n2\n2b\nthree\nend\n");
        assert_eq!(diff, "--- a.md, from line 2\n-two\n+2\n+2b");
    }

    #[test]
    fn shows_what_is_new_or_gone() {
        assert_eq!(diff("a.md", "", "one\n"), "--- a.md, from line 1\n+one");
        assert_eq!(
            diff("a.md", "one\none\n", "one\n"),
            "--- a.md, from line 1\n-one"
        );
    }
}
