//! The report for people: what does not fit first.

use std::fmt::Write;

use sampler_verify::moment::{InWords, Millis};
use sampler_verify::words::{counted, form};
use sampler_verify::{FindingKind, Report, Row};
use serde_json::json;

use crate::output::printable;
use crate::show::{length_in_words, table};

/// How many spans, and events that contradict others, are shown.
const SHOWN: usize = 50;
/// How many findings of a span are shown: later ones often follow from the first.
const FINDINGS_SHOWN: usize = 3;

/// The whole report; with `all`, all spans.
pub(super) fn of(report: &Report, all: bool) -> String {
    let rows = report.spans.iter();
    let mut rows: Vec<&Row> = rows.filter(|row| all || !row.findings.is_empty()).collect();
    rows.sort_by_key(|row| (row.fits(), row.findings.is_empty()));
    let most = if all { usize::MAX } else { SHOWN };
    let mut text: String = rows.iter().take(most).map(|row| words_of(row)).collect();
    let events = report.events.iter().take(most);
    text.extend(events.map(|it| lines(&[it.target.to_string(), it.detail.clone()])));
    let more = rows.len().saturating_sub(most) + report.events.len().saturating_sub(most);
    if more > 0 {
        let _ = write!(text, "... and {more} more; --all shows them\n\n");
    }
    text += &totals(report);
    text += &judgement(report);
    if !all && rows.len() < report.spans.len() {
        text += "--all shows the spans that fit, too.\n";
    }
    let findings = report.spans.iter().flat_map(|row| &row.findings);
    let unknown = findings.filter(|it| it.kind == FindingKind::SpanWithoutEvents);
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

/// A heading and what is below it, each on one line, whatever somebody calls a thing.
fn lines(lines: &[String]) -> String {
    let lines = lines.iter().map(|line| printable(line));
    lines.collect::<Vec<_>>().join("\n  ") + "\n\n"
}

/// A span, its amounts and what was found about it.
fn words_of(row: &Row) -> String {
    let (amounts, organization) = (row.amounts, &row.target.organization_id);
    let span = row.span.as_ref().map(|id| format!("span {id}"));
    let span = span.unwrap_or_else(|| "no span".to_owned());
    let line = row.line.map(|line| format!(", line {line} of the file"));
    let line = line.unwrap_or_default();
    let start = InWords(row.start);
    let end = row.end.map(|end| InWords(end).to_string());
    let end = end.unwrap_or_else(|| "now: it is open".to_owned());
    let [used, billed] = [amounts.used, amounts.billed].map(length);
    let skipped = match amounts.skipped {
        0 => String::new(),
        skipped => format!(" + skipped {}", length(skipped)),
    };
    let difference = match amounts.difference {
        0 => "difference 0".to_owned(),
        ms => format!("DIFFERENCE {} ({ms} ms)", length(ms)),
    };
    let usages = counted(row.usages, "usage");
    let mut told = vec![
        row.target.to_string(),
        format!("{span} of the organization {organization}{line}"),
        format!("{start} to {end}"),
        format!("used {used}, billed {billed}{skipped}, {difference}; {usages}"),
    ];
    for finding in row.findings.iter().take(FINDINGS_SHOWN) {
        let kind = json!(finding.kind);
        let kind = kind.as_str().unwrap_or_default();
        told.push(format!("{kind}: {}", finding.detail));
    }
    let more = row.findings.len().saturating_sub(FINDINGS_SHOWN) + row.more_findings;
    if more > 0 {
        told.push(format!("... and {more} more; --json has them"));
    }
    lines(&told)
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
    let table = table(header, rows, &[0]);
    let left: Vec<_> = report
        .totals
        .not_added
        .iter()
        .map(|it| printable(it))
        .collect();
    if left.is_empty() {
        return format!("{table}\n\n");
    }
    let left = left.join(", ");
    format!("{table}\nNot added up, because a quantity is not whole: {left}\n\n")
}

fn judgement(report: &Report) -> String {
    let (totals, spans) = (&report.totals, counted(report.totals.spans, "span"));
    let usages = counted(totals.usages, "usage");
    let mut text = format!("Everything fits: {spans}, {usages}.");
    if !report.fits {
        text = format!("Something does not fit: {} of {spans}.", totals.wrong);
    }
    let events = report.events.len();
    if events > 0 {
        let what = form(events, "contradicts others", "contradict others");
        let _ = write!(text, " {} {what}.", counted(events, "event"));
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
