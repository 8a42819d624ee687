//! The document for operators.

use std::fmt::Write;

use super::of_program;
use super::table::{Label, Metric, MetricKind, Values};

const HEAD: &str = "
`GET /metrics` serves them in Prometheus's text format: see [operations.md](operations.md#metrics) for who may read \
them. Each instance reports its own numbers; add them up where they are collected. Prometheus stores a \
histogram as `…_bucket`, `…_sum` and `…_count`.

No label has a value that a client chose: there are as many series as the tables say, whatever is sent.

| Metric | Type | Labels | What it is |
| --- | --- | --- | --- |
";

const BUCKETS: &str = "
## Buckets

| Histogram | Upper bounds |
| --- | --- |
";

/// The metrics of a program in Markdown.
pub fn document(program: &str) -> String {
    let mut text = format!("# Metrics of `{program}`\n{HEAD}");
    for metric in of_program(program) {
        row(&mut text, metric);
    }
    text.push_str(BUCKETS);
    for metric in of_program(program) {
        if let MetricKind::Histogram(bounds) = metric.kind {
            let numbers: Vec<_> = bounds.iter().map(ToString::to_string).collect();
            writeln!(text, "| `{}` | {} |", metric.name, numbers.join(", ")).expect("a text grows");
        }
    }
    text
}

fn row(text: &mut String, metric: &Metric) {
    let kind = match metric.kind {
        MetricKind::Counter => "counter",
        MetricKind::Gauge => "gauge",
        MetricKind::Histogram(_) => "histogram",
    };
    let labels: Vec<_> = metric.labels.iter().map(label).collect();
    let (name, labels, help) = (metric.name, labels.join("; "), metric.help);
    writeln!(text, "| `{name}` | {kind} | {labels} | {help} |").expect("a text grows");
}

fn label(label: &Label) -> String {
    let values = match label.values {
        Values::Words(words) => {
            let quoted: Vec<_> = words.iter().map(|word| format!("`{word}`")).collect();
            quoted.join(", ")
        }
        Values::Bounded(what) => what.to_owned(),
    };
    format!("`{}`: {values}", label.name)
}
