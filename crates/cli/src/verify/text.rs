//! The report for people: what does not fit first.

use std::fmt::Write;

use sampler_verify::finding::{Finding, FindingKind};
use sampler_verify::moment::{InWords, Millis};
use sampler_verify::report::Row;
use sampler_verify::words::{counted, form};
use sampler_verify::{Contradiction, Report};

use crate::output::printable;
use crate::show::length_in_words;
use crate::table::table;

/// How many rows that do not fit, and events that contradict others, are shown.
const WRONG_SHOWN: usize = 50;
/// How many rows are shown that fit, with something that is worth knowing.
const NOTED_SHOWN: usize = 20;
/// How many findings of a row are shown: later ones often follow from the first.
const FINDINGS_SHOWN: usize = 3;

/// The whole report; with `all`, also the spans that fit.
pub(super) fn of(report: &Report, all: bool) -> String {
    let (wrong, fitting): (Vec<&Row>, _) = report.spans.iter().partition(|row| !row.fits());
    let has_findings = |row: &&Row| !row.findings.is_empty();
    let (noted, plain): (Vec<&Row>, Vec<&Row>) = fitting.into_iter().partition(has_findings);
    let mut text = String::new();
    if !wrong.is_empty() {
        let (count, spans) = (wrong.len(), counted(report.spans.len(), "span"));
        let _ = writeln!(
            text,
            "{count} of {spans} {} not fit:\n",
            form(count, "does", "do")
        );
        text += &rows(&wrong, WRONG_SHOWN);
    }
    text += &contradictions(&report.events);
    if !noted.is_empty() {
        let (spans, fit) = (
            counted(noted.len(), "span"),
            form(noted.len(), "fits", "fit"),
        );
        let _ = writeln!(text, "{spans} {fit}, with something worth knowing:\n");
        text += &rows(&noted, if all { usize::MAX } else { NOTED_SHOWN });
    }
    if all && !plain.is_empty() {
        text += &fitting_table(&plain);
    }
    text += &totals(report);
    let _ = writeln!(text, "{}", judgement(report));
    if !all && !plain.is_empty() {
        text += "--all shows the spans that fit, too.\n";
    }
    let unknown = wrong.iter().filter(|row| is_unknown(row)).count();
    if unknown > 0 {
        let has = form(unknown, "has", "have");
        let _ = writeln!(
            text,
            "{unknown} of the spans {has} no event in the file. If it has only some of the instances, add \
             --known-only, or narrow the scope, as with --organization-id."
        );
    }
    text
}

fn rows(rows: &[&Row], most: usize) -> String {
    let mut text: String = rows
        .iter()
        .take(most)
        .map(|row| row_in_words(row))
        .collect();
    if rows.len() > most {
        let _ = writeln!(text, "... and {} more; --json has all\n", rows.len() - most);
    }
    text
}

fn row_in_words(row: &Row) -> String {
    let mut lines = vec![printable(&row.target.to_string())];
    lines.extend(facts(row).map(|line| format!("  {line}")));
    let shown = row.findings.iter().take(FINDINGS_SHOWN);
    lines.extend(shown.map(|finding| format!("  {}", words(finding))));
    let more = row.findings.len().saturating_sub(FINDINGS_SHOWN) + row.more_findings;
    if more > 0 {
        let (more, them) = (counted(more, "more finding"), form(more, "it", "them"));
        lines.push(format!("  ... and {more}; --json has {them}"));
    }
    lines.join("\n") + "\n\n"
}

fn contradictions(events: &[Contradiction]) -> String {
    if events.is_empty() {
        return String::new();
    }
    let mut text = format!("{}:\n\n", contradicting(events.len()));
    for event in events.iter().take(WRONG_SHOWN) {
        let target = printable(&event.target.to_string());
        let _ = writeln!(text, "  {target}: {}", printable(&event.detail));
    }
    if events.len() > WRONG_SHOWN {
        let _ = writeln!(
            text,
            "... and {} more; --json has all",
            events.len() - WRONG_SHOWN
        );
    }
    text + "\n"
}

fn contradicting(count: usize) -> String {
    let what = form(count, "contradicts others", "contradict others");
    format!("{} {what}", counted(count, "event"))
}

/// Spans without findings, a line for each.
fn fitting_table(rows: &[&Row]) -> String {
    let header = ["target", "start", "used", "billed", "usages"];
    let rows = rows.iter().map(|row| {
        [
            printable(&row.target.to_string()),
            InWords(row.start).to_string(),
            length(row.amounts.used),
            length(row.amounts.billed),
            row.amounts.usages.to_string(),
        ]
    });
    format!("{}\n\n", table(header, rows, &[0, 1]))
}

/// The state of a span, and its amounts.
fn facts(row: &Row) -> [String; 3] {
    let organization = printable(&row.target.organization_id);
    let span = row.span.as_deref().map(printable);
    let span = span.map_or_else(|| "no span".to_owned(), |id| format!("span {id}"));
    let line = row.line.map(|line| format!(", line {line} of the file"));
    let line = line.unwrap_or_default();
    let start = InWords(row.start);
    let end = row.end.map(|end| InWords(end).to_string());
    let end = end.unwrap_or_else(|| "now: it is open".to_owned());
    let amounts = &row.amounts;
    let mut sums = format!(
        "used {}, billed {}",
        length(amounts.used),
        length(amounts.billed)
    );
    if amounts.skipped != 0 {
        let _ = write!(sums, " + skipped {}", length(amounts.skipped));
    }
    if amounts.unanswered != 0 {
        let unanswered = length(amounts.unanswered);
        let _ = write!(
            sums,
            " (the upstream may count {unanswered} of it: a post had no answer)"
        );
    }
    let _ = match amounts.difference {
        0 => write!(sums, ", difference 0"),
        difference => write!(
            sums,
            ", DIFFERENCE {} ({difference} ms)",
            length(difference)
        ),
    };
    if amounts.expired != 0 {
        let expired = length(amounts.expired);
        let _ = write!(sums, " (of {expired} the usages have expired)");
    }
    [
        format!("{span} of the organization {organization}{line}"),
        format!("{start} to {end}"),
        format!("{sums}; {}", counted(amounts.usages, "usage")),
    ]
}

fn length(millis: i128) -> String {
    Millis::try_from(millis).map_or_else(|_| millis.to_string(), length_in_words)
}

fn words(finding: &Finding) -> String {
    let (kind, detail) = (finding.kind.name(), printable(&finding.detail));
    match &finding.usage {
        Some(usage) => format!("{kind}: usage {}: {detail}", printable(usage)),
        None => format!("{kind}: {detail}"),
    }
}

fn is_unknown(row: &Row) -> bool {
    let mut findings = row.findings.iter();
    findings.any(|finding| finding.kind == FindingKind::SpanWithoutEvents)
}

fn totals(report: &Report) -> String {
    let header = ["over all spans", "used", "billed", "skipped", "difference"];
    let totals = &report.totals;
    let measures = totals.measures.iter();
    let measures = measures.map(|(name, total)| (name.as_str(), total));
    let all = [("duration (ms)", &totals.duration)]
        .into_iter()
        .chain(measures);
    let rows = all.map(|(name, total)| {
        let numbers = [total.used, total.billed, total.skipped, total.difference];
        let [used, billed, skipped, difference] = numbers.map(|number| number.to_string());
        [printable(name), used, billed, skipped, difference]
    });
    format!("{}\n\n", table(header, rows, &[0]))
}

fn judgement(report: &Report) -> String {
    let totals = &report.totals;
    let (spans, usages) = (
        counted(totals.spans, "span"),
        counted(totals.usages, "usage"),
    );
    let mut text = format!("Everything fits: {spans}, {usages}.");
    if !report.fits {
        text = format!("Something does not fit: {} of {spans}", totals.wrong);
        if !report.events.is_empty() {
            let _ = write!(text, ", and {}", contradicting(report.events.len()));
        }
        text += ".";
    }
    if totals.noted > 0 {
        let (spans, have) = (
            counted(totals.noted, "span"),
            form(totals.noted, "has", "have"),
        );
        let _ = write!(text, " {spans} {have} something worth knowing.");
    }
    if totals.duration.unanswered != 0 {
        let unanswered = length(totals.duration.unanswered);
        let _ = write!(
            text,
            " The upstream may count {unanswered} of what was skipped, because posts had no answer: look there \
             before you bill it by hand."
        );
    }
    text
}
