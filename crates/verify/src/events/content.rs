//! What a file contains instead of events.

use std::io::BufRead;

use serde_json::error::Category;

use super::Wrong;

/// The first bytes of files that are not text, and what they are.
const KNOWN: [(&[u8], &str); 6] = [
    (b"\x1f\x8b", "it is compressed (gzip): unpack it first"),
    (
        b"\x28\xb5\x2f\xfd",
        "it is compressed (zstd): unpack it first",
    ),
    (
        b"PK\x03\x04",
        "it is a ZIP or a spreadsheet, not text: save the sheet as CSV",
    ),
    (
        b"\xd0\xcf\x11\xe0",
        "it is a spreadsheet, not text: save the sheet as CSV",
    ),
    (b"\xff\xfe", "its text is UTF-16: save it as UTF-8"),
    (b"\xfe\xff", "its text is UTF-16: save it as UTF-8"),
];

/// Looks at the first line, or as much of it as is there, and takes nothing.
pub fn check_text(input: &mut impl BufRead) -> Result<(), Wrong> {
    let first = input.fill_buf()?;
    let known = KNOWN.iter().find(|(bytes, _)| first.starts_with(bytes));
    if let Some((_, what)) = known {
        return Err(Wrong::other(*what));
    }
    // What is wrong further on has a line to be named with.
    let line = first.split(|byte| *byte == b'\n').next().unwrap_or(first);
    if line.contains(&0) || is_broken(line) {
        return Err(Wrong::other("it is not text: events are UTF-8"));
    }
    Ok(())
}

/// Whether bytes are not UTF-8. The last character may be cut off.
fn is_broken(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_err_and(|error| error.error_len().is_some())
}

/// A mistake of JSON without its position in the line, where that is already reported: the parser
/// sees one line, and says that it is the first.
pub fn json_in_words(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    let what = text.strip_suffix(&place).unwrap_or(&text);
    match error.classify() {
        Category::Data | Category::Io => what.to_owned(),
        Category::Eof => format!("not JSON: it ends too early ({what})"),
        Category::Syntax => {
            // "expected ident" and "expected value" say the same to people.
            let what = what
                .replace("expected ident", "expected a value")
                .replace("expected value", "expected a value");
            format!("not JSON: {what} at column {}", error.column())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_text_is_known() {
        for (bytes, part) in [
            (&b"\x1f\x8b\x08"[..], "gzip"),
            (b"PK\x03\x04...", "spreadsheet"),
            (b"\xff\xfes\0", "UTF-16"),
            (b"{\"a\": \0", "not text"),
            (b"caf\xe9,1", "not text"),
        ] {
            let error = check_text(&mut &bytes[..]).unwrap_err().to_string();
            assert!(error.contains(part), "{part}: {error}");
        }
        for text in [
            &b""[..],
            b"{}",
            b"caf\xc3\xa9",
            b"\xef\xbb\xbf{}",
            b"cut off \xc3",
        ] {
            assert!(check_text(&mut &text[..]).is_ok(), "{text:?}");
        }
    }

    #[test]
    fn mistakes_of_json_are_told_with_one_place() {
        let words = |text: &str| {
            let error = serde_json::from_str::<serde_json::Value>(text).unwrap_err();
            json_in_words(&error)
        };
        assert_eq!(words("{a}"), "not JSON: key must be a string at column 2");
        assert_eq!(words("nope"), "not JSON: expected a value at column 2");
        assert!(words("{\"a\":").starts_with("not JSON: it ends too early"));
        let error = serde_json::from_str::<u8>("\"x\"").unwrap_err();
        assert!(json_in_words(&error).ends_with("expected u8"));
    }
}
