//! Documents that are made from the programs, so that they cannot say anything else.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use sampler_testkit::program::{RECEIVER, WORKER, build};
use sampler_testkit::workspace_dir;
use similar::TextDiff;

/// Documents: the path of each, and the program and argument whose output it is.
const GENERATED: [(&str, &str, &str); 4] = [
    ("docs/settings-receiver.md", RECEIVER, "--help-settings"),
    ("docs/settings-worker.md", WORKER, "--help-settings"),
    ("docs/metrics-receiver.md", RECEIVER, "--help-metrics"),
    ("docs/metrics-worker.md", WORKER, "--help-metrics"),
];

/// The rules that Prometheus reads.
const ALERTS: &str = "deploy/alerts.yml";
/// The document that is made of them.
const RULES: &str = "deploy/kubernetes/alerts.yaml";

/// Writes all documents, or only compares them.
pub(crate) fn run(check: bool) -> Result<()> {
    eprintln!("==> generated documents");
    let programs = build()?;
    let mut stale = Vec::new();
    let of_programs = GENERATED.iter().map(|(document, program, argument)| {
        let text = generate(&programs.join(program), argument);
        (*document, text)
    });
    let rules = (RULES, rules());
    for (document, text) in of_programs.chain([rules]) {
        let text = text.with_context(|| format!("making {document}"))?;
        let path = workspace_dir().join(document);
        if !check {
            fs::write(&path, text).with_context(|| format!("writing {document}"))?;
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
    let mut command = Command::new(program);
    command.arg(argument).env_clear();
    let output = command.output();
    let output = output.with_context(|| format!("starting {}", program.display()))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "{} {argument}: {errors}",
        program.display()
    );
    String::from_utf8(output.stdout).context("not UTF-8")
}

/// The rules as a resource of the Prometheus operator.
fn rules() -> Result<String> {
    let alerts = fs::read_to_string(workspace_dir().join(ALERTS)).context(ALERTS)?;
    Ok(rules_of(&alerts))
}

fn rules_of(alerts: &str) -> String {
    let head = "# Made of deploy/alerts.yml by `cargo xtask docs`.\n\
                apiVersion: monitoring.coreos.com/v1\nkind: PrometheusRule\nmetadata:\n  \
                name: sampler\n  labels: { app.kubernetes.io/part-of: sampler }\nspec:\n";
    let lines = alerts
        .lines()
        .skip_while(|line| !line.starts_with("groups:"));
    lines.fold(head.to_owned(), |text, line| match line {
        "" => text + "\n",
        line => text + "  " + line + "\n",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_the_alerts_moved_in() {
        let rules = rules_of("# About.\n\ngroups:\n  - name: a\n\n    rules: []\n");
        assert!(
            rules.ends_with("spec:\n  groups:\n    - name: a\n\n      rules: []\n"),
            "{rules}"
        );
    }
}
