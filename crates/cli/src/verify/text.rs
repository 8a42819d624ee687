//! The report as tables, for people.

use sampler_verify::Report;
use sampler_verify::finding::Finding;
use sampler_verify::moment::InWords;
use sampler_verify::report::{Row, Total};

use crate::output::printable;
use crate::table::table;

/// How many rows that fit are shown.
const ROWS_SHOWN: usize = 30;
/// How many rows that do not fit, and events that contradict others, are shown.
const WRONG_SHOWN: usize = 50;

pub(super) fn of(report: &Report) -> String {
    let shown = shown_rows(&report.spans);
    let header = [
        "target",
        "start",
        "end",
        "used ms",
        "billed ms",
        "skipped",
        "difference",
        "usages",
        "",
    ];
    let cells = shown.iter().map(|row| cells(row));
    let mut parts = vec![table(header, cells, &[0, 1, 2, 8])];
    let rest = report.spans.len() - shown.len();
    if rest > 0 {
        parts.push(format!("... and {rest} more"));
    }
    parts.push(String::new());
    parts.push(totals(report));
    parts.push(String::new());
    parts.extend(report.events.iter().take(WRONG_SHOWN).map(|event| {
        let finding = printable(&event.finding.detail);
        format!(
            "events of {}: {finding}",
            printable(&event.target.to_string())
        )
    }));
    parts.push(judgement(report));
    parts.join("\n") + "\n"
}

/// The first rows, and those that do not fit.
fn shown_rows(rows: &[Row]) -> Vec<&Row> {
    let mut wrong = 0;
    let is_shown = |(number, row): &(usize, &Row)| {
        wrong += usize::from(!row.fits());
        *number < ROWS_SHOWN || (!row.fits() && wrong <= WRONG_SHOWN)
    };
    let rows = rows.iter().enumerate().filter(is_shown);
    rows.map(|(_, row)| row).collect()
}

fn cells(row: &Row) -> [String; 9] {
    let end = row
        .end
        .map_or_else(|| "open".to_owned(), |end| InWords(end).to_string());
    let usages = match row.expired {
        0 => row.usages.to_string(),
        expired => format!("{}+{expired}", row.usages),
    };
    [
        printable(&row.target.to_string()),
        InWords(row.start).to_string(),
        end,
        row.used.to_string(),
        row.billed.to_string(),
        row.skipped.to_string(),
        row.difference.to_string(),
        usages,
        remark(row),
    ]
}

/// The first thing that does not fit, or else all that is worth knowing.
fn remark(row: &Row) -> String {
    let text = |finding: &Finding| {
        let detail = printable(&finding.detail);
        match &finding.usage {
            Some(usage) => format!(
                "{}: usage {}: {detail}",
                finding.kind.name(),
                printable(usage)
            ),
            None => format!("{}: {detail}", finding.kind.name()),
        }
    };
    let wrong = row.findings.iter().find(|finding| finding.kind.is_wrong());
    if let Some(wrong) = wrong {
        return text(wrong);
    }
    let notes: Vec<String> = row.findings.iter().map(text).collect();
    notes.join("; ")
}

fn totals(report: &Report) -> String {
    let header = ["over all spans", "used", "billed", "skipped", "difference"];
    let row = |(name, total): (&str, &Total)| {
        let numbers = [total.used, total.billed, total.skipped, total.difference];
        let [used, billed, skipped, difference] = numbers.map(|number| number.to_string());
        [printable(name), used, billed, skipped, difference]
    };
    let measures = report.totals.measures.iter();
    let measures = measures.map(|(name, total)| (name.as_str(), total));
    let all = [("duration", &report.totals.duration)]
        .into_iter()
        .chain(measures);
    table(header, all.map(row), &[0])
}

fn judgement(report: &Report) -> String {
    let totals = &report.totals;
    let (spans, usages) = (totals.spans, totals.usages);
    let mut text = if report.fits {
        format!("Everything fits: {spans} spans, {usages} usages.")
    } else {
        let (wrong, events) = (totals.wrong, report.events.len());
        let events = match events {
            0 => String::new(),
            _ => format!(", and {events} events contradict others"),
        };
        format!("Something does not fit: {wrong} of {spans} spans{events}.")
    };
    if totals.noted > 0 {
        text = format!(
            "{text} {} spans have something worth knowing.",
            totals.noted
        );
    }
    text
}
