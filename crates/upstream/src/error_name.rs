//! The short name of an error in an answer of the upstream.
//!
//! An answer may come from a gateway that repeats what it was sent: our token, the ids of the usage.
//! The kept part ends up in logs, and in the document of the span. So only the name of the error is
//! kept, and only its parts that look like plain words.

use std::fmt;

use serde_json::Value;

/// The most that is shown of a name, in bytes.
const LEN_MAX: usize = 80;

/// Longer words are not kept.
const WORD_LEN_MAX: usize = 24;

/// Replaces a part that is not shown.
const HIDDEN: &str = "…";

/// The name of an error, fit for a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorName(String);

impl ErrorName {
    /// The `name` of a JSON object, or else its `error`; none of any other body.
    pub fn of_body(body: &[u8]) -> Option<Self> {
        let body: Value = serde_json::from_slice(body).ok()?;
        Self::of_member(&body)
    }

    /// The name that an `error` of a document gives: a text, or within an object a name, a flag such as
    /// `"isFutureUsageError": true`, or a message.
    pub fn of_value(error: &Value) -> Option<Self> {
        if let Some(text) = error.as_str() {
            return Self::new(text);
        }
        Self::of_member(error)
            .or_else(|| Self::of_flag(error))
            .or_else(|| Self::new(error.get("message")?.as_str()?))
    }

    fn of_member(body: &Value) -> Option<Self> {
        ["name", "error"]
            .into_iter()
            .find_map(|name| Self::new(body.get(name)?.as_str()?))
    }

    fn of_flag(error: &Value) -> Option<Self> {
        let mut set = error
            .as_object()?
            .iter()
            .filter(|(_, value)| value.as_bool() == Some(true));
        set.find_map(|(flag, _)| Self::new(flag))
    }

    fn new(text: &str) -> Option<Self> {
        let mut name = String::new();
        for word in text.split_whitespace() {
            let word = if is_plain(word) { word } else { HIDDEN };
            if word == HIDDEN && name.ends_with(HIDDEN) {
                continue;
            }
            if name.len() + 1 + word.len() > LEN_MAX {
                break;
            }
            if !name.is_empty() {
                name.push(' ');
            }
            name.push_str(word);
        }
        (!name.is_empty() && name != HIDDEN).then_some(Self(name))
    }
}

impl fmt::Display for ErrorName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Letters, perhaps with an underscore or a hyphen in between and a mark behind. Tokens and most ids
/// have digits, or are longer.
fn is_plain(word: &str) -> bool {
    let stem = word.strip_suffix([':', ',', '.', ';']).unwrap_or(word);
    stem.len() <= WORD_LEN_MAX && stem.split(['_', '-']).all(is_letters)
}

fn is_letters(part: &str) -> bool {
    !part.is_empty() && part.bytes().all(|it| it.is_ascii_alphabetic())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(body: &str) -> Option<String> {
        ErrorName::of_body(body.as_bytes()).map(|name| name.to_string())
    }

    #[test]
    fn the_names_that_abacus_gives_are_kept() {
        for text in [
            "Invalid usage: invalid resource instance",
            "invalid schema",
            "not existing account",
            "insufficient_scope",
            "ENOTFOUND",
        ] {
            let body = serde_json::json!({ "error": "other", "name": text, "stack": [1] });
            assert_eq!(name(&body.to_string()).as_deref(), Some(text));
            let body = serde_json::json!({ "error": text, "name": { "a": 1 } });
            assert_eq!(name(&body.to_string()).as_deref(), Some(text));
        }
    }

    #[test]
    fn what_may_be_a_token_or_an_id_is_not_shown() {
        for (text, shown) in [
            (
                "Bearer eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJ4In0.c2ln is bad",
                "Bearer … is bad",
            ),
            ("no account 43a8d88a-9f1c", "no account …"),
            ("bad {\"dedup_id\":\"ad1f2853\"} {x}", "bad …"),
            ("a\u{1b}[31m\nb", "… b"),
            (
                "secret: aVeryLongWordOfLettersThatMayBeASecret",
                "secret: …",
            ),
            ("first.token.of-the-sampler", "…"),
        ] {
            let body = serde_json::json!({ "name": text }).to_string();
            let shown = (shown != "…").then(|| shown.to_owned());
            assert_eq!(name(&body), shown, "{text:?}");
        }
        let long = serde_json::json!({ "name": "word ".repeat(100) }).to_string();
        assert!(name(&long).unwrap().len() <= LEN_MAX);
    }

    #[test]
    fn any_other_body_has_no_name() {
        for body in [
            "",
            "<html>Bearer abc</html>",
            "licence",
            "[\"name\"]",
            "\"name\"",
            "{",
            "{}",
        ] {
            assert_eq!(name(body), None, "{body}");
        }
        assert_eq!(name(r#"{"name":1,"error":["a"]}"#), None);
    }
}
