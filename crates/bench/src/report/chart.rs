//! Charts: bars, drawn as SVG by hand. They follow the reader's choice of light or dark.

use std::fmt::Write as _;

use crate::data::{Receiver, System, Worker};
use crate::event::Mix;

use super::{grouped, workers};

const WIDTH: f64 = 860.0;
const PANEL_HEIGHT: f64 = 230.0;
const TOP: f64 = 46.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 16.0;
/// Room of a panel above and below its bars.
const PANEL_TOP: f64 = 34.0;
const PANEL_BOTTOM: f64 = 34.0;
/// Lines across a panel.
const LINES: u32 = 4;

const STYLE: &str = "<style>\
    svg{background:#fff}text{font:12px system-ui,sans-serif;fill:#333}\
    .t{font-size:14px;font-weight:600}.n{font-size:10px;text-anchor:middle}.y{text-anchor:end}\
    .x{text-anchor:middle}.g{stroke:#ddd}.c{stroke:#999;stroke-dasharray:5 4}\
    .s0{fill:#1f6feb}.s1{fill:#d97706}.s2{fill:#9ca3af}\
    @media(prefers-color-scheme:dark){svg{background:#0d1117}text{fill:#c9d1d9}\
    .g{stroke:#30363d}.s0{fill:#58a6ff}.s1{fill:#f0a94b}.s2{fill:#6e7681}}\
    </style>";

/// Groups of bars on one scale.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Panel {
    title: String,
    /// What stands below each group, and its bars, one for each series.
    groups: Vec<(String, Vec<Option<f64>>)>,
    /// A line across, and what it is.
    line: Option<(String, f64)>,
}

/// How many events a second.
pub(crate) fn receiver(figures: &Receiver) -> String {
    let systems = [System::Sampler, System::OneWriteHttp, System::OneWrite];
    let panel = |mix: Mix| {
        let runs: Vec<_> = figures.closed.iter().filter(|run| run.mix == mix).collect();
        let rate = |system, connections| {
            let mut runs = runs.iter();
            let run = runs.find(|run| run.system == system && run.connections == connections)?;
            Some(run.per_second)
        };
        let ours = runs.iter().filter(|run| run.system == System::Sampler);
        let groups = ours.map(|run| {
            let bars = systems.map(|system| rate(system, run.connections)).to_vec();
            (connections_text(run.connections), bars)
        });
        let ceiling = runs.iter().find(|run| run.system == System::Ceiling);
        let what = match mix {
            Mix::Starts => "Starts a second",
            Mix::Stops => "Stops a second",
            Mix::Both => "Events a second, as many starts as stops",
        };
        Panel {
            title: what.to_owned(),
            groups: groups.collect(),
            line: ceiling.map(|run| ("batches without HTTP".to_owned(), run.per_second)),
        }
    };
    let panels = Mix::ALL.map(panel);
    let series = [
        "Sampler",
        "one write per event, HTTP",
        "one write per event, driver alone",
    ];
    draw("Durable events a second, by connections", &series, &panels)
}

fn connections_text(connections: usize) -> String {
    match connections {
        1 => "1 connection".to_owned(),
        _ => grouped(connections as f64),
    }
}

/// How many intervals a second.
pub(crate) fn worker(figures: &Worker) -> String {
    let mut counts: Vec<usize> = figures.rates.iter().map(|run| run.workers).collect();
    counts.sort_unstable();
    counts.dedup();
    let mut answers: Vec<u64> = figures.rates.iter().map(|run| run.answer_ms).collect();
    answers.sort_unstable();
    answers.dedup();
    let rate = |workers, answer| {
        let mut runs = figures.rates.iter();
        let run = runs.find(|run| run.workers == workers && run.answer_ms == answer)?;
        Some(run.per_second)
    };
    let group = |answer: &u64| {
        let bars = counts
            .iter()
            .map(|workers| rate(*workers, *answer))
            .collect();
        (format!("answers after {answer} ms"), bars)
    };
    let panel = Panel {
        title: "Intervals a second".to_owned(),
        groups: answers.iter().map(group).collect(),
        line: None,
    };
    let series: Vec<String> = counts.iter().map(|count| workers(*count)).collect();
    let series: Vec<&str> = series.iter().map(String::as_str).collect();
    draw(
        "Intervals a second, by how fast Abacus is",
        &series,
        &[panel],
    )
}

fn draw(title: &str, series: &[&str], panels: &[Panel]) -> String {
    let height = TOP + PANEL_HEIGHT * panels.len() as f64;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" \
         aria-label=\"{title}\">\n{STYLE}\n"
    );
    legend(&mut svg, series);
    for (index, panel) in panels.iter().enumerate() {
        panel.draw(&mut svg, TOP + PANEL_HEIGHT * index as f64);
    }
    svg.push_str("</svg>\n");
    svg
}

fn legend(svg: &mut String, series: &[&str]) {
    let mut x = LEFT;
    for (index, name) in series.iter().enumerate() {
        element(
            svg,
            &format!("<rect class=\"s{index}\" x=\"{x}\" y=\"16\" width=\"12\" height=\"12\"/>"),
        );
        let text = x + 17.0;
        element(svg, &format!("<text x=\"{text}\" y=\"26\">{name}</text>"));
        x += 40.0 + 6.6 * name.len() as f64;
    }
}

fn element(svg: &mut String, text: &str) {
    svg.push_str(text);
    svg.push('\n');
}

impl Panel {
    fn draw(&self, svg: &mut String, top: f64) {
        let title = &self.title;
        let y = top + 20.0;
        element(
            svg,
            &format!("<text class=\"t\" x=\"{LEFT}\" y=\"{y}\">{title}</text>"),
        );
        let plot = Plot {
            top: top + PANEL_TOP,
            height: PANEL_HEIGHT - PANEL_TOP - PANEL_BOTTOM,
            most: nice(self.greatest()),
        };
        plot.lines(svg);
        let width = (WIDTH - LEFT - RIGHT) / self.groups.len().max(1) as f64;
        for (index, (name, bars)) in self.groups.iter().enumerate() {
            plot.group(svg, (LEFT + width * index as f64, width), name, bars);
        }
        if let Some((name, value)) = &self.line {
            let (y, right) = (plot.y(*value), WIDTH - RIGHT);
            element(
                svg,
                &format!(
                    "<line class=\"c\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>"
                ),
            );
            let text = y - 4.0;
            let value = grouped(*value);
            element(
                svg,
                &format!(
                    "<text x=\"{}\" y=\"{text:.1}\">{name}: {value}</text>",
                    LEFT + 6.0
                ),
            );
        }
    }

    fn greatest(&self) -> f64 {
        let bars = self.groups.iter().flat_map(|(_, bars)| bars).flatten();
        let line = self.line.iter().map(|(_, value)| value);
        bars.chain(line).fold(0.0, |most, value| most.max(*value))
    }
}

/// Where what is drawn.
struct Plot {
    top: f64,
    height: f64,
    most: f64,
}

impl Plot {
    fn y(&self, value: f64) -> f64 {
        self.top + self.height * (1.0 - value / self.most)
    }

    fn lines(&self, svg: &mut String) {
        for index in 0..=LINES {
            let value = self.most * f64::from(index) / f64::from(LINES);
            let (y, right) = (self.y(value), WIDTH - RIGHT);
            element(
                svg,
                &format!(
                    "<line class=\"g\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>"
                ),
            );
            let (x, y, value) = (LEFT - 6.0, y + 4.0, grouped(value));
            element(
                svg,
                &format!("<text class=\"y\" x=\"{x}\" y=\"{y:.1}\">{value}</text>"),
            );
        }
    }

    fn group(&self, svg: &mut String, (left, width): (f64, f64), name: &str, bars: &[Option<f64>]) {
        let bar = (width * 0.8 / bars.len().max(1) as f64).min(56.0);
        let middle = left + width / 2.0;
        let mut x = middle - bar * bars.len() as f64 / 2.0;
        let mut drawn = String::new();
        for (index, value) in bars.iter().enumerate() {
            if let Some(value) = value {
                let y = self.y(*value);
                let (height, inner) = (self.top + self.height - y, bar - 3.0);
                let _ = writeln!(
                    drawn,
                    "<rect class=\"s{index}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{inner:.1}\" \
                     height=\"{height:.1}\"/>\n<text class=\"n\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                    x + inner / 2.0,
                    y - 3.0,
                    grouped(*value)
                );
            }
            x += bar;
        }
        svg.push_str(&drawn);
        let y = self.top + self.height + 16.0;
        element(
            svg,
            &format!("<text class=\"x\" x=\"{middle:.1}\" y=\"{y:.1}\">{name}</text>"),
        );
    }
}

/// The next round number above, so that the lines across are round, too.
fn nice(most: f64) -> f64 {
    let power = 10_f64.powf(most.max(1.0).log10().floor());
    let steps = [1.0, 1.2, 1.6, 2.0, 2.4, 3.2, 4.0, 6.0, 8.0, 10.0];
    let fits = steps.into_iter().find(|step| step * power >= most);
    fits.unwrap_or(10.0) * power
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::targets::tests::{run, sampled};

    #[test]
    fn scales_end_at_round_numbers() {
        let ends = [0.0, 1.0, 1_900.0, 4_100.0, 37_000.0, 99_999.0].map(nice);
        let ends = ends.map(grouped);
        assert_eq!(ends, ["1", "1", "2,000", "6,000", "40,000", "100,000"]);
    }

    #[test]
    fn bars_are_as_high_as_they_say() {
        let plot = Plot {
            top: 10.0,
            height: 100.0,
            most: 50.0,
        };
        let heights = [0.0, 25.0, 50.0].map(|value| grouped(plot.y(value)));
        assert_eq!(heights, ["110", "60", "10"]);
    }

    #[test]
    fn every_figure_is_in_the_chart() {
        let closed = vec![
            run(System::Sampler, Mix::Starts, 64, 12_345.0),
            run(System::OneWrite, Mix::Starts, 64, 6_789.0),
            run(System::Ceiling, Mix::Starts, 4, 30_303.0),
        ];
        let svg = receiver(&Receiver {
            closed,
            ..Receiver::default()
        });
        for number in ["12,345", "6,789", "30,303"] {
            assert!(svg.contains(number), "{number}");
        }
        assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n"));
        assert_eq!(svg.matches("<text").count(), svg.matches("</text>").count());
    }

    #[test]
    fn workers_stand_beside_each_other() {
        let svg = worker(&Worker {
            rates: vec![sampled(1, 0, 3_333.0), sampled(2, 20, 4_444.0)],
            catch_up_days: 1,
            catch_up: sampled(2, 0, 1.0),
        });
        assert!(svg.contains("3,333") && svg.contains("4,444") && svg.contains("2 workers"));
        // One bar of each group was not measured.
        let bars = svg.matches("<rect").count();
        assert_eq!(bars, 2 + 2);
    }
}
