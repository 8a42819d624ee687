//! What is made of the figures: tables, and whether the targets are reached.

pub(crate) mod batches;
pub(crate) mod fairness;
pub(crate) mod markdown;
pub(crate) mod output;
pub(crate) mod reading;
pub(crate) mod targets;

/// A number as people read it: three digits that count, thousands apart.
fn rounded(number: f64) -> String {
    if number.abs() >= 100.0 {
        return grouped(number);
    }
    let places = if number.abs() >= 10.0 { 1 } else { 2 };
    format!("{number:.places$}")
}

/// The number of workers, in words.
pub(crate) fn workers(count: usize) -> String {
    match count {
        1 => "1 worker".to_owned(),
        _ => format!("{count} workers"),
    }
}

/// A whole number with a comma between thousands.
fn grouped(number: f64) -> String {
    let digits = format!("{:.0}", number.abs());
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if number < 0.0 {
        text.insert(0, '-');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_shown_as_far_as_they_count() {
        let shown = [0.0312, 1.5, 12.34, 123.4, 1234.5, 1_234_567.0].map(rounded);
        let expected = ["0.03", "1.50", "12.3", "123", "1,234", "1,234,567"];
        assert_eq!(shown, expected);
        assert_eq!(grouped(-1000.0), "-1,000");
    }
}
