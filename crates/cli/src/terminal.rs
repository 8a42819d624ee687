//! The terminal that the output goes to.

use console::Term;

const WIDTH_DEFAULT: usize = 100;
/// Narrower, nothing can be seen.
const WIDTH_MIN: usize = 40;
const WIDTH_MAX: usize = 400;

/// How many columns a line may have: those of `COLUMNS`, or of the terminal.
pub(crate) fn width() -> usize {
    let told = std::env::var("COLUMNS")
        .ok()
        .and_then(|columns| columns.parse().ok());
    let seen = Term::stdout().size_checked();
    let columns = told.or_else(|| seen.map(|(_, columns)| usize::from(columns)));
    columns.unwrap_or(WIDTH_DEFAULT).clamp(WIDTH_MIN, WIDTH_MAX)
}
