//! The simulation as drawings.

use std::fmt::Write as _;

use super::simulation::{DAY, HOUR, MINUTES, Moment};

/// The paths of the drawings.
pub(crate) const BACKLOG: &str = "docs/images/control-backlog.svg";
pub(crate) const RATE: &str = "docs/images/control-rate.svg";

const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 260.0;
const LEFT: f64 = 60.0;
const TOP: f64 = 40.0;
const BASE: f64 = 200.0;

/// Minutes between two points of a line.
const STEP: usize = 5;

const WITHOUT: &str = "#c0392b";
const WITH: &str = "#2471a3";

/// A line of a drawing.
struct Line<'a> {
    colour: &'a str,
    name: &'a str,
    points: Vec<f64>,
}

/// How long the backlog needs, without the controller and with it.
pub(super) fn backlog(without: &[Moment], with: &[Moment], target: f64) -> String {
    let minutes = |moments: &[Moment]| points(moments, |moment| moment.needed_seconds / 60.0);
    let lines = [
        Line {
            colour: WITHOUT,
            name: "without the controller",
            points: minutes(without),
        },
        Line {
            colour: WITH,
            name: "with the controller",
            points: minutes(with),
        },
        Line {
            colour: "#7f8c8d",
            name: "target",
            points: vec![target / 60.0; MINUTES / STEP],
        },
    ];
    drawing("Time that the backlog needs, minutes", 80.0, &lines)
}

/// How many starts are admitted.
pub(super) fn rate(with: &[Moment]) -> String {
    let line = Line {
        colour: WITH,
        name: "with the controller",
        points: points(with, |moment| moment.rate),
    };
    drawing("Starts that are admitted, %", 100.0, &[line])
}

/// The largest value of each few minutes.
fn points(moments: &[Moment], value: impl Fn(&Moment) -> f64) -> Vec<f64> {
    let of_chunk = |chunk: &[Moment]| chunk.iter().map(&value).fold(0.0, f64::max);
    moments.chunks(STEP).map(of_chunk).collect()
}

fn drawing(title: &str, most: f64, lines: &[Line<'_>]) -> String {
    let right = WIDTH - 20.0;
    let x = |minute: usize| LEFT + minute as f64 / MINUTES as f64 * (right - LEFT);
    let y = |value: f64| BASE - value / most * (BASE - TOP);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>\n\
         <text x=\"{LEFT}\" y=\"24\" font-weight=\"bold\">{title}</text>\n\
         <path d=\"M{LEFT} {TOP}V{BASE}H{right}\" fill=\"none\" stroke=\"#888\"/>\n\
         <text x=\"{label}\" y=\"{TOP}\" text-anchor=\"end\">{most}</text>\n\
         <text x=\"{label}\" y=\"{BASE}\" text-anchor=\"end\">0</text>\n",
        label = LEFT - 6.0,
    );
    for hour in (0..=MINUTES).step_by(6 * HOUR) {
        let text = format!("{}:00", hour % DAY / HOUR);
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{text}</text>",
            x(hour),
            BASE + 16.0
        );
    }
    for (index, line) in lines.iter().enumerate() {
        let points = line.points.iter().enumerate();
        let points = points.map(|(at, value)| format!("{:.1},{:.1}", x(at * STEP), y(*value)));
        let points = points.collect::<Vec<_>>().join(" ");
        let _ = writeln!(
            svg,
            "<polyline points=\"{points}\" fill=\"none\" stroke=\"{}\" stroke-width=\"1.5\"/>",
            line.colour
        );
        let at = LEFT + 200.0 * index as f64;
        let _ = writeln!(
            svg,
            "<rect x=\"{at}\" y=\"{}\" width=\"12\" height=\"3\" fill=\"{}\"/>\
             <text x=\"{}\" y=\"{}\">{}</text>",
            BASE + 39.0,
            line.colour,
            at + 18.0,
            BASE + 44.0,
            line.name
        );
    }
    svg.push_str("</svg>\n");
    svg
}
