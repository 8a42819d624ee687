//! What is made of the figures: a table.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};
use sampler_testkit::target_dir;

/// The figures of one round of a build, each with its name.
pub(crate) type Figures = Vec<(&'static str, f64)>;

/// The medians of all rounds, of another commit and of this one, and the ratios within the rounds: the
/// median, the least and the greatest.
pub(crate) fn markdown(origin: &str, rounds: &[[Figures; 2]]) -> String {
    let own = rounds.first().map_or(&[][..], |[_, own]| own);
    let is_compared = rounds.iter().any(|[other, _]| !other.is_empty());
    let (head, rule) = if is_compared {
        (
            "Other commit | This commit | Ratio (least to greatest)",
            "---: | ---: | ---:",
        )
    } else {
        ("Found", "---:")
    };
    let mut text = format!("{origin}\n\n| Figure | {head} |\n| --- | {rule} |\n");
    for (place, (name, _)) in own.iter().enumerate() {
        let of = |build: usize| sorted(rounds.iter().map(|round| round[build][place].1));
        let found = rounded(median(&of(1)));
        let cells = if is_compared {
            let ratios = rounds
                .iter()
                .map(|[other, own]| own[place].1 / other[place].1);
            let ratios = sorted(ratios);
            let (least, most) = (ratios[0], ratios[ratios.len() - 1]);
            let other = rounded(median(&of(0)));
            let ratio = median(&ratios);
            format!("{other} | {found} | {ratio:.2} ({least:.2}–{most:.2})")
        } else {
            found
        };
        let _ = writeln!(text, "| {name} | {cells} |");
    }
    text
}

/// Writes the report under the target folder.
pub(crate) fn keep(report: &str) -> Result<PathBuf> {
    let path = target_dir().join("bench").join("report.md");
    fs::write(&path, report).with_context(|| format!("writing {}", path.display()))?;
    Ok(path)
}

/// A number as people read it: three digits that count.
fn rounded(number: f64) -> String {
    let places = match number.abs() {
        100.0.. => 0,
        10.0.. => 1,
        _ => 2,
    };
    format!("{number:.places$}")
}

fn sorted(numbers: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut numbers: Vec<f64> = numbers.collect();
    numbers.sort_by(f64::total_cmp);
    numbers
}

/// The median; of an even number, the mean of both in the middle.
fn median(sorted: &[f64]) -> f64 {
    let last = sorted.len() - 1;
    f64::midpoint(sorted[last / 2], sorted[last.div_ceil(2)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_those_of_rounds() {
        let round = |other: f64, own: f64| [vec![("Starts", other)], vec![("Starts", own)]];
        let rounds = [round(100.0, 200.0), round(10.0, 10.0), round(1.0, 3.0)];
        let text = markdown("Taken now.", &rounds);
        let row = "| Starts | 10.0 | 10.0 | 2.00 (1.00–3.00) |\n";
        assert!(text.ends_with(row), "{text}");
        let text = markdown("Taken now.", &[[vec![], vec![("Starts", 1234.5)]]]);
        assert!(text.ends_with("| Starts | 1234 |\n"), "{text}");
    }
}
