//! The report for people: what does not fit first, in lines that a terminal holds.

use sampler_verify::Report;
use sampler_verify::finding::{Finding, FindingKind};
use sampler_verify::moment::{InWords, Millis};
use sampler_verify::report::{Contradiction, Row};
use sampler_verify::words::{counted, form};
use textwrap::{Options, WordSplitter};

use crate::output::printable;
use crate::show::length_in_words;
use crate::table::table_of_width;

/// How many rows that do not fit, and events that contradict others, are shown.
const WRONG_SHOWN: usize = 50;
/// How many rows are shown that fit, with something that is worth knowing.
const NOTED_SHOWN: usize = 20;
/// How many findings of a row are shown: later ones often follow from the first.
const FINDINGS_SHOWN: usize = 3;

/// The whole report, in lines of `width` columns; with `all`, also the spans that fit.
pub(super) fn of(report: &Report, all: bool, width: usize) -> String {
    let (wrong, fitting): (Vec<&Row>, _) = report.spans.iter().partition(|row| !row.fits());
    let (noted, plain): (Vec<&Row>, _) = fitting
        .into_iter()
        .partition(|row| !row.findings.is_empty());
    let mut text = Text {
        width,
        lines: Vec::new(),
    };
    let title = format!(
        "{} of {} {} not fit:",
        wrong.len(),
        counted(report.spans.len(), "span"),
        form(wrong.len(), "does", "do"),
    );
    text.rows(&title, &wrong, WRONG_SHOWN);
    text.events(&report.events);
    let title = format!(
        "{} {}, with something worth knowing:",
        counted(noted.len(), "span"),
        form(noted.len(), "fits", "fit"),
    );
    text.rows(&title, &noted, if all { usize::MAX } else { NOTED_SHOWN });
    if all && !plain.is_empty() {
        text.lines.push(fitting_table(&plain, width));
        text.lines.push(String::new());
    }
    text.lines.push(totals(report, width));
    text.lines.push(String::new());
    text.paragraph("", &judgement(report));
    if !all && !plain.is_empty() {
        text.paragraph("", "--all shows the spans that fit, too.");
    }
    let unknown = wrong.iter().filter(|row| is_unknown(row)).count();
    if unknown > 0 {
        let has = form(unknown, "has", "have");
        let what = format!(
            "{unknown} of the spans {has} no event in the file. If it has only some of the instances, add \
             --known-only, or narrow the scope, as with --organization-id."
        );
        text.paragraph("", &what);
    }
    text.lines.join("\n") + "\n"
}

struct Text {
    width: usize,
    lines: Vec<String>,
}

impl Text {
    /// A sentence over as many lines as it takes, each behind `indent`.
    fn paragraph(&mut self, indent: &str, words: &str) {
        // A time has hyphens, and stays whole.
        let options = Options::new(self.width)
            .word_splitter(WordSplitter::NoHyphenation)
            .initial_indent(indent)
            .subsequent_indent(indent);
        let lines = textwrap::wrap(words, options);
        self.lines.extend(lines.into_iter().map(String::from));
    }

    fn rows(&mut self, title: &str, rows: &[&Row], most: usize) {
        if rows.is_empty() {
            return;
        }
        self.paragraph("", title);
        self.lines.push(String::new());
        for row in rows.iter().take(most) {
            self.row(row);
        }
        self.rest(rows.len(), most);
    }

    fn rest(&mut self, count: usize, most: usize) {
        if count > most {
            let rest = count - most;
            self.paragraph("", &format!("... and {rest} more; --json has all"));
            self.lines.push(String::new());
        }
    }

    fn row(&mut self, row: &Row) {
        self.paragraph("", &printable(&row.target.to_string()));
        for line in facts(row) {
            self.paragraph("  ", &line);
        }
        for finding in row.findings.iter().take(FINDINGS_SHOWN) {
            self.paragraph("  ", &words(finding));
        }
        let more = row.findings.len().saturating_sub(FINDINGS_SHOWN) + row.more_findings;
        if more > 0 {
            self.paragraph(
                "  ",
                &format!(
                    "... and {}; --json has {}",
                    counted(more, "more finding"),
                    form(more, "it", "them"),
                ),
            );
        }
        self.lines.push(String::new());
    }

    fn events(&mut self, events: &[Contradiction]) {
        if events.is_empty() {
            return;
        }
        let title = contradictions(events.len());
        self.paragraph("", &format!("{title}:"));
        self.lines.push(String::new());
        for event in events.iter().take(WRONG_SHOWN) {
            let target = printable(&event.target.to_string());
            let detail = printable(&event.finding.detail);
            self.paragraph("  ", &format!("{target}: {detail}"));
        }
        self.lines.push(String::new());
        self.rest(events.len(), WRONG_SHOWN);
    }
}

/// Spans without findings, a line for each.
fn fitting_table(rows: &[&Row], width: usize) -> String {
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
    table_of_width(header, rows, &[0, 1], Some(width))
}

/// The state of a span, and its amounts.
fn facts(row: &Row) -> [String; 3] {
    let organization = printable(&row.target.organization_id);
    let span = row.span.as_deref().map(printable);
    let span = span.map_or_else(|| "no span".to_owned(), |id| format!("span {id}"));
    let line = row
        .line
        .map_or_else(String::new, |line| format!(", line {line} of the file"));
    let start = InWords(row.start);
    let end = row.end.map_or_else(
        || "now: it is open".to_owned(),
        |end| InWords(end).to_string(),
    );
    let amounts = [
        row.amounts.used,
        row.amounts.billed,
        row.amounts.skipped,
        row.amounts.unanswered,
    ];
    let [used, billed, skipped, unanswered] = amounts.map(length);
    let difference = match row.amounts.difference {
        0 => "difference 0".to_owned(),
        difference => format!("DIFFERENCE {} ({difference} ms)", length(difference)),
    };
    let skipped = match row.amounts.skipped {
        0 => String::new(),
        _ => format!(" + skipped {skipped}"),
    };
    let unanswered = match row.amounts.unanswered {
        0 => String::new(),
        _ => format!(" (the upstream may count {unanswered} of it: a post had no answer)"),
    };
    let usages = match row.amounts.expired {
        0 => row.amounts.usages.to_string(),
        expired => format!("{}+{expired}", row.amounts.usages),
    };
    [
        format!("{span} of the organization {organization}{line}"),
        format!("{start} to {end}"),
        format!(
            "used {used}, billed {billed}{skipped}{unanswered}, {difference}; {}",
            counted(usages, "usage")
        ),
    ]
}

fn length(millis: i128) -> String {
    let bounded = millis.clamp(Millis::MIN.into(), Millis::MAX.into());
    Millis::try_from(bounded).map_or_else(|_| millis.to_string(), length_in_words)
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

fn totals(report: &Report, width: usize) -> String {
    let header = ["over all spans", "used", "billed", "skipped", "difference"];
    let measures = report
        .totals
        .measures
        .iter()
        .map(|(name, total)| (name.as_str(), total));
    let all = [("duration (ms)", &report.totals.duration)]
        .into_iter()
        .chain(measures);
    let rows = all.map(|(name, total)| {
        let numbers = [total.used, total.billed, total.skipped, total.difference];
        let [used, billed, skipped, difference] = numbers.map(|number| number.to_string());
        [printable(name), used, billed, skipped, difference]
    });
    table_of_width(header, rows, &[0], Some(width))
}

fn contradictions(count: usize) -> String {
    let what = form(count, "contradicts others", "contradict others");
    format!("{} {what}", counted(count, "event"))
}

fn judgement(report: &Report) -> String {
    let totals = &report.totals;
    let (spans, usages) = (
        counted(totals.spans, "span"),
        counted(totals.usages, "usage"),
    );
    let mut text = if report.fits {
        format!("Everything fits: {spans}, {usages}.")
    } else {
        let (wrong, events) = (totals.wrong, report.events.len());
        let events = match events {
            0 => String::new(),
            _ => format!(", and {}", contradictions(events)),
        };
        format!("Something does not fit: {wrong} of {spans}{events}.")
    };
    if totals.noted > 0 {
        text = format!(
            "{text} {} {} something worth knowing.",
            counted(totals.noted, "span"),
            form(totals.noted, "has", "have"),
        );
    }
    let unanswered = totals.duration.unanswered;
    if unanswered != 0 {
        text = format!(
            "{text} The upstream may count {} of what was skipped, because posts had no answer: look there before \
             you bill it by hand.",
            length(unanswered)
        );
    }
    text
}
