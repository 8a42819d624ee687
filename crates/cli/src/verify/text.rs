//! The report for people: what does not fit first.

use std::fmt::Write;

use sampler_verify::moment::{InWords, Millis};
use sampler_verify::report::Finding;
use sampler_verify::words::{counted, form};
use sampler_verify::{Contradiction, FindingKind, Report, Row};
use serde_json::json;

use crate::output::printable;
use crate::show::length_in_words;
use crate::table::table;

/// How many rows, and events that contradict others, are shown.
const SHOWN: usize = 50;
/// How many findings of a row are shown: later ones often follow from the first.
const FINDINGS_SHOWN: usize = 3;

/// The whole report; with `all`, also the spans that fit.
pub(super) fn of(report: &Report, all: bool) -> String {
    let (wrong, fitting): (Vec<&Row>, Vec<&Row>) = report.spans.iter().partition(|row| !row.fits());
    let (noted, plain): (Vec<&Row>, Vec<&Row>) =
        fitting.iter().partition(|row| !row.findings.is_empty());
    let spans = counted(report.spans.len(), "span");
    let do_not = form(wrong.len(), "does not", "do not");
    let heading = format!("{} of {spans} {do_not} fit", wrong.len());
    let wrong_rows = section(&heading, SHOWN, wrong.iter().map(|row| words_of(row)));
    let events = report.events.iter().map(contradiction);
    let events = section(&contradicting(report), SHOWN, events);
    let (spans, fit) = (
        counted(noted.len(), "span"),
        form(noted.len(), "fits", "fit"),
    );
    let heading = format!("{spans} {fit}, with something worth knowing");
    let shown = if all { usize::MAX } else { SHOWN };
    let noted = section(&heading, shown, noted.iter().map(|row| words_of(row)));
    let mut text = [wrong_rows, events, noted].concat();
    if all && !plain.is_empty() {
        text += &fitting_table(&plain);
    }
    text += &totals(report);
    text += &judgement(report);
    if !all && !plain.is_empty() {
        text += "--all shows the spans that fit, too.\n";
    }
    let unknown = wrong
        .iter()
        .filter(|row| has(row, FindingKind::SpanWithoutEvents));
    let unknown = unknown.count();
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

/// Items under a heading, if there are any.
fn section(heading: &str, most: usize, items: impl ExactSizeIterator<Item = String>) -> String {
    let count = items.len();
    if count == 0 {
        return String::new();
    }
    let shown = items.take(most).collect::<String>();
    let more = match count.saturating_sub(most) {
        0 => String::new(),
        more => format!("... and {more} more; --json has all\n\n"),
    };
    format!("{heading}:\n\n{shown}{more}")
}

/// A span, its amounts and what was found about it.
fn words_of(row: &Row) -> String {
    let span = row.span.as_deref().map(printable);
    let span = span.map_or_else(|| "no span".to_owned(), |id| format!("span {id}"));
    let line = row.line.map(|line| format!(", line {line} of the file"));
    let organization = printable(&row.target.organization_id);
    let end = row.end.map(|end| InWords(end).to_string());
    let amounts = row.amounts;
    let (used, billed) = (length(amounts.used), length(amounts.billed));
    let skipped = Some(amounts.skipped).filter(|skipped| *skipped != 0);
    let skipped = skipped.map(|skipped| format!(" + skipped {}", length(skipped)));
    let skipped = skipped.unwrap_or_default();
    let difference = match amounts.difference {
        0 => "difference 0".to_owned(),
        ms => format!("DIFFERENCE {} ({ms} ms)", length(ms)),
    };
    let mut lines = vec![
        printable(&row.target.to_string()),
        format!(
            "{span} of the organization {organization}{}",
            line.unwrap_or_default()
        ),
        format!(
            "{} to {}",
            InWords(row.start),
            end.as_deref().unwrap_or("now: it is open")
        ),
        format!(
            "used {used}, billed {billed}{skipped}, {difference}; {}",
            counted(row.usages, "usage")
        ),
    ];
    lines.extend(row.findings.iter().take(FINDINGS_SHOWN).map(finding));
    let more = row.findings.len().saturating_sub(FINDINGS_SHOWN) + row.more_findings;
    if more > 0 {
        let (more, them) = (counted(more, "more finding"), form(more, "it", "them"));
        lines.push(format!("... and {more}; --json has {them}"));
    }
    lines.join("\n  ") + "\n\n"
}

fn finding(finding: &Finding) -> String {
    let kind = json!(finding.kind);
    format!(
        "{}: {}",
        kind.as_str().unwrap_or_default(),
        printable(&finding.detail)
    )
}

fn has(row: &Row, kind: FindingKind) -> bool {
    row.findings.iter().any(|finding| finding.kind == kind)
}

fn contradiction(event: &Contradiction) -> String {
    let (target, detail) = (
        printable(&event.target.to_string()),
        printable(&event.detail),
    );
    format!("  {target}: {detail}\n\n")
}

fn contradicting(report: &Report) -> String {
    let count = report.events.len();
    let what = form(count, "contradicts others", "contradict others");
    format!("{} {what}", counted(count, "event"))
}

/// Spans without findings, a line for each.
fn fitting_table(rows: &[&Row]) -> String {
    let header = ["target", "start", "used", "billed", "usages"];
    let rows = rows.iter().map(|row| {
        let target = printable(&row.target.to_string());
        let [used, billed] = [row.amounts.used, row.amounts.billed].map(length);
        [
            target,
            InWords(row.start).to_string(),
            used,
            billed,
            row.usages.to_string(),
        ]
    });
    format!("{}\n\n", table(header, rows, &[0, 1]))
}

fn length(millis: i128) -> String {
    Millis::try_from(millis).map_or_else(|_| millis.to_string(), length_in_words)
}

fn totals(report: &Report) -> String {
    let header = ["over all spans", "used", "billed", "skipped", "difference"];
    let duration = [("duration (ms)", &report.totals.duration)].into_iter();
    let measures = report.totals.measures.iter();
    let all = duration.chain(measures.map(|(name, total)| (name.as_str(), total)));
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
        let events = Some(format!(", and {}", contradicting(report)));
        let events = events
            .filter(|_| !report.events.is_empty())
            .unwrap_or_default();
        text = format!(
            "Something does not fit: {} of {spans}{events}.",
            totals.wrong
        );
    }
    if totals.noted > 0 {
        let (spans, have) = (
            counted(totals.noted, "span"),
            form(totals.noted, "has", "have"),
        );
        let _ = write!(text, " {spans} {have} something worth knowing.");
    }
    if totals.duration.unanswered != 0 {
        let _ = write!(
            text,
            " The upstream may count {} of what was skipped, because posts had no answer: look there before you \
             bill it by hand.",
            length(totals.duration.unanswered)
        );
    }
    text + "\n"
}
