//! This commit beside another one.

use super::{Section, rounded, table};
use crate::scenario::against::Figures;

/// Each figure of both, and the ratios of the rounds: the one in the middle, the least and the greatest.
pub(crate) fn of_against(rounds: &[[Figures; 2]]) -> Section {
    let names = rounds.iter().flatten().next();
    let names = names.map_or(0, Vec::len);
    let rows: Vec<Vec<String>> = (0..names).map(|place| row(rounds, place)).collect();
    let header = [
        "Figure",
        "Other commit",
        "This commit",
        "Ratio",
        "Least",
        "Greatest",
    ];
    Section {
        title: "Beside another commit",
        text: format!(
            "{} rounds by turns:\n\n{}",
            rounds.len(),
            table(&header, 1, &rows)
        ),
        targets: Vec::new(),
    }
}

fn row(rounds: &[[Figures; 2]], place: usize) -> Vec<String> {
    let of = |build: usize| rounds.iter().filter_map(move |round| round[build][place].1);
    let ratios = rounds
        .iter()
        .filter_map(|[other, own]| Some(own[place].1? / other[place].1?));
    let ratios = sorted(ratios);
    let name = rounds[0][0][place].0.to_owned();
    let shown = |number: Option<f64>| number.map_or("–".to_owned(), rounded);
    let times = |number: Option<&f64>| number.map_or("–".to_owned(), |it| format!("{it:.2} ×"));
    vec![
        name,
        shown(middle(&sorted(of(0)))),
        shown(middle(&sorted(of(1)))),
        times(middle(&ratios).as_ref()),
        times(ratios.first()),
        times(ratios.last()),
    ]
}

fn sorted(numbers: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut numbers: Vec<f64> = numbers.collect();
    numbers.sort_by(f64::total_cmp);
    numbers
}

/// The median; of an even number, the mean of both in the middle.
fn middle(sorted: &[f64]) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    Some(f64::midpoint(sorted[last / 2], sorted[last.div_ceil(2)]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_those_of_rounds_and_what_a_build_cannot_do_has_none() {
        let round = |other: f64, own: f64, batches| {
            [
                vec![("Starts", Some(other)), ("Batches", batches)],
                vec![("Starts", Some(own)), ("Batches", Some(5.0))],
            ]
        };
        let rounds = [
            round(100.0, 200.0, None),
            round(10.0, 10.0, None),
            round(1.0, 3.0, None),
        ];
        let text = of_against(&rounds).text;
        assert!(
            text.contains("| Starts | 10.0 | 10.0 | 2.00 × | 1.00 × | 3.00 × |"),
            "{text}"
        );
        assert!(
            text.contains("| Batches | – | 5.00 | – | – | – |"),
            "{text}"
        );
    }
}
