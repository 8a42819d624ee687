//! The manifests for Kubernetes: checked against the schemas of its releases, and the alerts among them
//! made of those that Prometheus reads without Kubernetes.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result};
use sampler_testkit::workspace_dir;

use crate::shell::run_named;
use crate::tools::KUBERNETES;

/// The folder of the manifests.
const FOLDER: &str = "deploy/kubernetes";
/// Those of Kubernetes itself. Others are custom resources, which its schemas do not know.
const MANIFESTS: [&str; 3] = ["settings.yaml", "receiver.yaml", "worker.yaml"];
/// An older release, and the newest one that the schemas are of.
const RELEASES: [&str; 2] = ["1.34", "1.37"];

/// The rules that Prometheus reads.
const ALERTS: &str = "deploy/alerts.yml";
/// The document that is made of them.
pub(crate) const RULES: &str = "deploy/kubernetes/alerts.yaml";

/// Checks each manifest against the schemas.
pub(crate) fn check() -> Result<()> {
    let folder = KUBERNETES.folder()?;
    for release in RELEASES {
        let mut command = Command::new("python3");
        command
            .args(["-m", "kubernetes_validate", "--strict", "-k", release])
            .args(MANIFESTS)
            .env("PYTHONPATH", &folder)
            .current_dir(workspace_dir().join(FOLDER));
        run_named("python3", &mut command)?;
    }
    Ok(())
}

/// The rules as a resource of the Prometheus operator.
pub(crate) fn rules() -> Result<String> {
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
