//! Texts that others chose, and errors, where people read them.

use std::error::Error;
use std::fmt::Write as _;

/// An error with everything that led to it.
pub fn error_chain(error: &dyn Error) -> String {
    let causes = std::iter::successors(error.source(), |&cause| cause.source());
    causes.fold(error.to_string(), |chain, cause| {
        format!("{chain}: {cause}")
    })
}

/// Whether a character shows nothing, or changes how others show: control characters (C0, C1), marks of
/// direction, and spaces without width.
pub fn is_invisible(character: char) -> bool {
    character.is_control()
        || matches!(character,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{e0000}'..='\u{e007f}')
}

/// The same JSON, with invisible characters in its texts written as numbers: a terminal takes none of
/// them for a command.
pub fn escape_json(json: &str) -> String {
    let mut escaped = String::with_capacity(json.len());
    for character in json.chars() {
        // A text of JSON has neither unescaped: they occur only between its parts.
        if matches!(character, '\t' | '\r') {
            escaped.push(' ');
            continue;
        }
        if character == '\n' || !is_invisible(character) {
            escaped.push(character);
            continue;
        }
        for unit in character.encode_utf16(&mut [0; 2]) {
            let _ = write!(escaped, "\\u{unit:04x}");
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escaped_json_is_the_same_document_and_commands_no_terminal() {
        let text = "a\u{1b}[2J\u{9b}2J\u{9d}0;x\u{202e}\u{200b}\u{e0041}é\u{1f600}";
        let json = serde_json::to_string_pretty(&[text]).unwrap();
        let json = format!("\t\r\n{json}");
        let escaped = escape_json(&json);
        assert!(
            escaped.chars().all(|it| it == '\n' || !is_invisible(it)),
            "{escaped}"
        );
        assert!(escaped.contains("é\u{1f600}"), "{escaped}");
        assert_eq!(
            serde_json::from_str::<[String; 1]>(&escaped).unwrap(),
            [text]
        );
    }
}
