//! What is made of the figures: tables, and whether the targets are reached.

mod against;
mod batches;
mod fairness;
pub(crate) mod receiver;
mod worker;

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};
use sampler_testkit::target_dir;

pub(crate) use against::of_against;
pub(crate) use batches::of_batches;
pub(crate) use fairness::of_fairness;
pub(crate) use receiver::of_receiver;
pub(crate) use worker::{of_ledger, of_midnight, of_upstreams, of_worker};

/// A part of the report.
#[derive(Clone, Debug)]
pub(crate) struct Section {
    pub(crate) title: &'static str,
    /// Tables, and what they show.
    pub(crate) text: String,
    pub(crate) targets: Vec<Target>,
}

/// A target and what came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) wanted: String,
    pub(crate) found: String,
    /// Whether that is enough.
    pub(crate) reached: bool,
}

impl Target {
    fn new(wanted: impl Into<String>, found: String, reached: bool) -> Self {
        Self {
            wanted: wanted.into(),
            found,
            reached,
        }
    }
}

/// All sections as Markdown; `origin` says when and on what the figures were taken.
pub(crate) fn markdown(origin: &str, sections: &[Section]) -> String {
    let row = |target: &Target| {
        let reached = if target.reached { "reached" } else { "**no**" };
        vec![
            target.wanted.clone(),
            target.found.clone(),
            reached.to_owned(),
        ]
    };
    let targets = sections.iter().flat_map(|section| &section.targets);
    let targets: Vec<_> = targets.map(row).collect();
    let targets = table(&["Wanted", "Found", ""], 3, &targets);
    let sections = sections
        .iter()
        .map(|section| format!("## {}\n\n{}", section.title, section.text));
    let sections: String = sections.collect();
    format!("{origin}\n\n## Targets\n\n{targets}{sections}")
}

/// Writes the report under the target folder.
pub(crate) fn keep(report: &str) -> Result<PathBuf> {
    let path = target_dir().join("bench").join("report.md");
    fs::write(&path, report).with_context(|| format!("writing {}", path.display()))?;
    Ok(path)
}

/// A table; all columns but the first `texts` are numbers.
fn table(header: &[&str], texts: usize, rows: &[Vec<String>]) -> String {
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let header: Vec<String> = header.iter().map(|cell| (*cell).to_owned()).collect();
    let rule: Vec<String> = (0..header.len())
        .map(|column| if column < texts { "---" } else { "---:" }.to_owned())
        .collect();
    let rows: String = rows.iter().map(|row| line(row)).collect();
    format!("{}{}{rows}\n", line(&header), line(&rule))
}

/// A number as people read it: three digits that count, thousands apart.
fn rounded(number: f64) -> String {
    if number.abs() >= 100.0 {
        return grouped(number);
    }
    let places = if number.abs() >= 10.0 { 1 } else { 2 };
    format!("{number:.places$}")
}

/// A whole number with a comma between thousands.
fn grouped(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_shown_as_far_as_they_count() {
        let shown = [0.0312, 1.5, 12.34, 123.4, 1234.5, 1_234_567.0].map(rounded);
        let expected = ["0.03", "1.50", "12.3", "123", "1,234", "1,234,567"];
        assert_eq!(shown, expected);
    }

    #[test]
    fn targets_come_first() {
        let section = Section {
            title: "Part",
            text: table(&["A", "B"], 1, &[vec!["a".into(), "1".into()]]),
            targets: vec![Target::new("much", "little".to_owned(), false)],
        };
        assert_eq!(
            markdown("Taken now.", &[section]),
            "Taken now.\n\n## Targets\n\n| Wanted | Found |  |\n| --- | --- | --- |\n\
             | much | little | **no** |\n\n## Part\n\n| A | B |\n| --- | ---: |\n| a | 1 |\n\n"
        );
    }
}
