//! The figures of the fair queue, as a table and as a drawing.

use std::fmt::Write as _;

use super::markdown::table;
use super::{grouped, rounded};
use crate::data::{Fairness, FairnessRun};

/// What the drawing is called, from the page on.
pub(crate) const DRAWING: &str = "images/fairness.svg";

const WIDTH: f64 = 420.0;
const HEIGHT: f64 = 220.0;
const MARGIN: f64 = 50.0;

/// One figure of a run.
type Figure = fn(&FairnessRun) -> f64;

pub(crate) fn of_fairness(figures: &Fairness) -> String {
    let header = [
        "Limit",
        "Connections of the flood",
        "Kept /s in all",
        "Of the quiet client kept, %",
        "p50 ms",
        "p99 ms",
        "Of the flood kept, %",
        "Peak MB",
    ];
    let row = |run: &FairnessRun| {
        vec![
            run.limit.map_or("fair queue".to_owned(), |limit| {
                format!("{limit} in flight")
            }),
            run.connections.to_string(),
            grouped(run.kept_per_second),
            rounded(run.quiet_kept_share),
            rounded(run.quiet_p50_ms),
            rounded(run.quiet_p99_ms),
            rounded(run.flood_kept_share),
            rounded(run.memory_mb),
        ]
    };
    let rows: Vec<Vec<String>> = figures.runs.iter().map(row).collect();
    format!(
        "One client sends starts over so many connections, each the next one when the last one is \
         answered, also where it is turned away; a quiet one sends a hundred a second. Latencies are \
         of the quiet one's events that were kept. *200 in flight* is `MAX_INFLIGHT=200`, which was \
         the default before there was a queue.\n\n![Goodput and what the quiet client meets, over the \
         load]({DRAWING})\n\n{}",
        table(&header, 1, &rows)
    )
}

/// Three panels side by side, each with a line before and one after.
pub(crate) fn drawing(figures: &Fairness) -> String {
    let panels: [(&str, Figure); 3] = [
        ("Kept in all, events a second", |run| run.kept_per_second),
        ("Of the quiet client kept, %", |run| run.quiet_kept_share),
        ("Quiet client, p99 in ms", |run| run.quiet_p99_ms),
    ];
    let (width, height) = (WIDTH * 3.0, HEIGHT + 70.0);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"white\"/>\n"
    );
    for (index, (title, value)) in panels.into_iter().enumerate() {
        let _ = writeln!(
            svg,
            "<g transform=\"translate({} 0)\">",
            WIDTH * index as f64
        );
        svg.push_str(&panel(title, &figures.runs, value));
        svg.push_str("</g>\n");
    }
    let legend = [
        ("#c0392b", "200 in flight (before)"),
        ("#2471a3", "fair queue"),
    ];
    for (index, (colour, text)) in legend.into_iter().enumerate() {
        let x = MARGIN + 200.0 * index as f64;
        let y = HEIGHT + 58.0;
        let _ = writeln!(
            svg,
            "<rect x=\"{x}\" y=\"{}\" width=\"12\" height=\"3\" fill=\"{colour}\"/>\
             <text x=\"{}\" y=\"{y}\">{text}</text>",
            y - 5.0,
            x + 18.0
        );
    }
    svg.push_str("</svg>\n");
    svg
}

fn panel(title: &str, runs: &[FairnessRun], value: Figure) -> String {
    let most = runs.iter().map(value).fold(1.0, f64::max);
    let widest = runs.iter().map(|run| run.connections).max().unwrap_or(1) as f64;
    let x = |run: &FairnessRun| {
        let part = (run.connections.max(1) as f64).ln() / widest.ln().max(1.0);
        MARGIN + part * (WIDTH - 1.5 * MARGIN)
    };
    let y = |number: f64| HEIGHT + 10.0 - number / most * (HEIGHT - MARGIN);
    let mut text = format!(
        "<text x=\"{MARGIN}\" y=\"24\" font-weight=\"bold\">{title}</text>\n\
         <path d=\"M{MARGIN} {top}V{base}H{right}\" fill=\"none\" stroke=\"#888\"/>\n\
         <text x=\"{label}\" y=\"{top}\" text-anchor=\"end\">{most}</text>\n\
         <text x=\"{label}\" y=\"{base}\" text-anchor=\"end\">0</text>\n",
        top = y(most),
        base = y(0.0),
        right = WIDTH - MARGIN / 2.0,
        label = MARGIN - 4.0,
        most = grouped(most),
    );
    for (colour, is_before) in [("#c0392b", true), ("#2471a3", false)] {
        let line = runs.iter().filter(|run| run.limit.is_some() == is_before);
        let points: Vec<_> = line
            .map(|run| format!("{:.1},{:.1}", x(run), y(value(run))))
            .collect();
        let points = points.join(" ");
        let _ = writeln!(
            text,
            "<polyline points=\"{points}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>"
        );
    }
    for run in runs.iter().filter(|run| run.limit.is_none()) {
        let _ = writeln!(
            text,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            x(run),
            HEIGHT + 26.0,
            run.connections
        );
    }
    text
}
