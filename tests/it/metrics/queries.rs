//! The queries of `deploy/alerts.yml` and `deploy/grafana.json`.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use sampler_metrics::{MetricKind, Values};
use sampler_testkit::workspace_dir;
use serde::Deserialize;
use serde_json::Value;

use super::{Sample, is_of, receiver_metrics, worker_metrics};

/// Labels that Prometheus adds.
const OF_PROMETHEUS: [&str; 3] = ["instance", "job", "le"];

#[derive(Deserialize)]
struct RuleFile {
    groups: Vec<Group>,
}

#[derive(Deserialize)]
struct Group {
    rules: Vec<Rule>,
}

#[derive(Deserialize)]
struct Rule {
    alert: String,
    expr: String,
    labels: Severity,
    annotations: Annotations,
}

#[derive(Deserialize)]
struct Severity {
    severity: String,
}

#[derive(Deserialize)]
struct Annotations {
    summary: String,
    runbook: String,
}

/// A metric as a query names it.
#[derive(Debug)]
struct Series {
    name: String,
    /// Label, operator and value.
    matchers: Vec<(String, String, String)>,
}

fn alerts_file() -> PathBuf {
    workspace_dir().join("deploy/alerts.yml")
}

fn rules() -> Vec<Rule> {
    let text = fs::read_to_string(alerts_file()).unwrap();
    let file: RuleFile = serde_saphyr::from_str(&text).unwrap();
    file.groups.into_iter().flat_map(|it| it.rules).collect()
}

/// The queries of the dashboard, and how their legends name labels.
fn panels() -> Vec<(String, String)> {
    let text = fs::read_to_string(workspace_dir().join("deploy/grafana.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let targets = panels.flat_map(|panel| panel["targets"].as_array().cloned().unwrap_or_default());
    let text = |target: &Value, name: &str| target[name].as_str().unwrap().to_owned();
    targets
        .map(|target| (text(&target, "expr"), text(&target, "legendFormat")))
        .collect()
}

/// Each metric in a query, with its matchers.
fn series(query: &str) -> Vec<Series> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut found = Vec::new();
    for (at, _) in query.match_indices("sampler_") {
        let rest = &query[at..];
        let end = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
        let (name, rest) = rest.split_at(end);
        let matchers = rest.strip_prefix('{').and_then(|rest| rest.split_once('}'));
        let matchers = matchers.map_or("", |(matchers, _)| matchers);
        let name = name.to_owned();
        let matchers = matchers.split(',').filter(|it| !it.trim().is_empty());
        let matchers = matchers.map(matcher).collect();
        found.push(Series { name, matchers });
    }
    found
}

fn matcher(text: &str) -> (String, String, String) {
    let (left, value) = text.trim().split_once('"').expect(text);
    let name = left.trim_end_matches(['=', '~', '!']);
    let operator = &left[name.len()..];
    let value = value.trim_end_matches('"');
    (name.to_owned(), operator.to_owned(), value.to_owned())
}

/// The labels by which a query groups.
fn grouping(query: &str) -> Vec<String> {
    let groups = query.split("by (").skip(1);
    let labels = groups.flat_map(|rest| rest.split(')').next().unwrap_or_default().split(','));
    labels.map(|label| label.trim().to_owned()).collect()
}

/// Whether running programs have what a query asks for: its metrics, with its labels and words.
fn assert_query(query: &str, legend: &str, real: &[&Sample]) {
    let mut labels: BTreeSet<&str> = OF_PROMETHEUS.into();
    let all = series(query);
    assert!(!all.is_empty(), "{query} asks for nothing of ours");
    let declared = [receiver_metrics(), worker_metrics()].concat();
    for series in &all {
        let metric = declared.iter().find(|it| is_of(it, &series.name));
        let metric = metric.unwrap_or_else(|| panic!("{} in {query}", series.name));
        let is_there = real.iter().any(|sample| sample.name == series.name);
        // A gauge has no sample while it has no value, and no warning may have been logged.
        let may_be_absent =
            metric.kind == MetricKind::Gauge || metric.name == "sampler_log_events_total";
        assert!(is_there || may_be_absent, "{} in {query}", series.name);
        labels.extend(metric.labels.iter().map(|label| label.name));
        for (name, operator, value) in &series.matchers {
            let label = metric.labels.iter().find(|label| label.name == name);
            let label = label.unwrap_or_else(|| panic!("{name} in {query}"));
            let alternatives: Vec<_> = match operator.as_str() {
                "=~" => value.split('|').collect(),
                _ => vec![value.as_str()],
            };
            let Values::Words(words) = label.values else {
                assert_codes(name, &alternatives);
                continue;
            };
            for word in alternatives {
                assert!(words.contains(&word), "{name}={word} in {query}");
                let has = |it: &&&Sample| it.labels.get(name).is_some_and(|it| it == word);
                let is_there = real.iter().filter(has).any(|it| it.name == series.name);
                assert!(is_there || may_be_absent, "{name}={word} in {query}");
            }
        }
    }
    for label in grouping(query) {
        assert!(labels.contains(label.as_str()), "{label} in {query}");
    }
    for part in legend.split("{{").skip(1) {
        let label = part.split("}}").next().unwrap();
        assert!(labels.contains(label), "{label} in the legend of {query}");
    }
}

/// The codes of warnings are those that operators are told of.
fn assert_codes(label: &str, values: &[&str]) {
    if label != "code" {
        return;
    }
    let document = fs::read_to_string(workspace_dir().join("docs/operations.md")).unwrap();
    for code in values {
        let anchor = format!("<a id=\"{code}\"></a>");
        assert!(document.contains(&anchor), "{code}");
    }
}

/// All queries can be answered from these samples.
pub(super) fn assert_answerable(real: &[&Sample]) {
    for (query, legend) in panels() {
        assert_query(&query, &legend, real);
    }
    for rule in rules() {
        assert_query(&rule.expr, "", real);
    }
}

/// The anchors of the headings of a document.
fn anchors(document: &str) -> BTreeSet<String> {
    let headings = document.lines().filter_map(|line| line.strip_prefix('#'));
    let anchor = |heading: &str| {
        let heading = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = heading
            .chars()
            .filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        kept.collect::<String>().replace(' ', "-")
    };
    headings.map(anchor).collect()
}

#[test]
fn each_alert_leads_to_what_is_to_be_done() {
    let mut names = BTreeSet::new();
    for rule in rules() {
        let name = rule.alert;
        assert!(
            ["page", "ticket"].contains(&rule.labels.severity.as_str()),
            "{name}"
        );
        assert!(!rule.annotations.summary.ends_with('.'), "{name}");
        let runbook = rule.annotations.runbook;
        let (path, anchor) = runbook.split_once('#').unwrap_or((&runbook, ""));
        let document = fs::read_to_string(workspace_dir().join(path)).expect(path);
        assert!(
            anchor.is_empty() || anchors(&document).contains(anchor),
            "{runbook}"
        );
        assert!(names.insert(name.clone()), "{name} is there twice");
    }
    assert!(names.len() > 10, "{names:?}");
}

/// The tool of Prometheus knows more of its language than we do, and whether each alert fires.
#[test]
fn promtool_takes_the_rules() {
    let fired = alerts_file().with_extension("test.yml");
    for (what, file) in [("check", alerts_file()), ("test", fired)] {
        let done = Command::new("promtool")
            .args([what, "rules"])
            .arg(file)
            .output();
        match done {
            Ok(output) => {
                let text = String::from_utf8_lossy(&output.stdout);
                let errors = String::from_utf8_lossy(&output.stderr);
                assert!(output.status.success(), "{text}{errors}");
            }
            Err(error) => eprintln!("skipped: promtool (Debian package prometheus): {error}"),
        }
    }
}

#[test]
fn a_query_is_understood() {
    let query = "sum by (code, le) (rate(sampler_a_total{b=\"c\", d=~\"e|f\"}[5m])) > sampler_g";
    let found = series(query);
    assert_eq!(found[0].name, "sampler_a_total");
    let matchers = [("b", "=", "c"), ("d", "=~", "e|f")];
    let matchers = matchers.map(|(a, b, c)| (a.to_owned(), b.to_owned(), c.to_owned()));
    assert_eq!(found[0].matchers, matchers);
    assert_eq!(
        (found[1].name.as_str(), found[1].matchers.len()),
        ("sampler_g", 0)
    );
    assert_eq!(grouping(query), ["code", "le"]);
}
