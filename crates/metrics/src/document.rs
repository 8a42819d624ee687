//! The document for operators.

use std::fmt::Write;

use crate::catalogue::ALL;
use crate::metric::{Label, Metric, MetricKind, Program, Values};

const HEAD: &str = "\
# Metrics

Both programs serve `GET /metrics` as OpenMetrics: see [operations.md](operations.md#metrics) for who \
may read them. Each instance reports its own numbers; add them up where they are collected. Prometheus \
stores a histogram as `…_bucket`, `…_sum` and `…_count`.

No label has a value that a client chose: there are as many series as the tables say, whatever is sent.

| Metric | Program | Type | Labels | What it is |
| --- | --- | --- | --- | --- |
";

const BUCKETS: &str = "
## Buckets

| Histogram | Upper bounds |
| --- | --- |
";

const COST: &str = "
## Cost

What is counted and timed for a start takes 0.44 µs of a processor: 1 % of the 45 µs that a \
start costs the receiver under load ([performance.md](performance.md#receiver)). `cargo run \
--release -p sampler-receiver --example cost_of_metrics` measures it. The same router answers \
requests that do nothing, with and without all that is measured for a start; the difference of the \
medians of 101 rounds counts.
";

/// All metrics in Markdown.
pub fn document() -> String {
    let mut text = HEAD.to_owned();
    for metric in ALL {
        row(&mut text, metric);
    }
    text.push_str(BUCKETS);
    for metric in ALL {
        if let MetricKind::Histogram(bounds) = metric.kind {
            let numbers: Vec<_> = bounds.iter().map(ToString::to_string).collect();
            writeln!(text, "| `{}` | {} |", metric.name, numbers.join(", ")).expect("a text grows");
        }
    }
    text.push_str(COST);
    text
}

fn row(text: &mut String, metric: &Metric) {
    let program = match metric.program {
        Program::Receiver => "receiver",
        Program::Worker => "worker",
        Program::Both => "both",
    };
    let kind = match metric.kind {
        MetricKind::Counter => "counter",
        MetricKind::Gauge => "gauge",
        MetricKind::Histogram(_) => "histogram",
        MetricKind::Info => "info",
    };
    let labels: Vec<_> = metric.labels.iter().map(label).collect();
    let (name, labels, help) = (metric.name, labels.join("; "), metric.help);
    writeln!(
        text,
        "| `{name}` | {program} | {kind} | {labels} | {help} |"
    )
    .expect("a text grows");
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

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn each_name_is_there_once_and_says_its_kind() {
        let mut seen = HashSet::new();
        for metric in ALL {
            let name = metric.name;
            assert!(seen.insert(name), "{name} is there twice");
            assert!(
                name.starts_with("sampler_") || name.starts_with("process_"),
                "{name}"
            );
            let is_word = |byte: u8| byte.is_ascii_lowercase() || byte == b'_';
            assert!(name.bytes().all(is_word), "{name}");
            assert_eq!(
                metric.kind == MetricKind::Counter,
                name.ends_with("_total"),
                "{name}"
            );
            assert_eq!(
                metric.kind == MetricKind::Info,
                name.ends_with("_info"),
                "{name}"
            );
            assert!(!metric.help.ends_with('.'), "{name}");
        }
    }

    #[test]
    fn bounds_rise() {
        for metric in ALL {
            if let MetricKind::Histogram(bounds) = metric.kind {
                let name = metric.name;
                assert!(bounds.is_sorted_by(|a, b| a < b), "{name}");
            }
        }
    }
}
