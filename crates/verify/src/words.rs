//! Counts in sentences.

use std::fmt::Display;

/// `1 span`, `812 spans`.
pub fn counted(count: impl Display, noun: &str) -> String {
    let count = count.to_string();
    let ending = form(&count, "", "s");
    format!("{count} {noun}{ending}")
}

/// The form of a word that goes with a count: of one, or of none and many.
pub fn form<'a>(count: impl Display, one: &'a str, many: &'a str) -> &'a str {
    if count.to_string() == "1" { one } else { many }
}
