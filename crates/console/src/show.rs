//! The look of values on a page: times, lengths of time, numbers, ids and links.
//!
//! Nothing else makes [`Html`], and all texts are escaped here.

use std::fmt;

use askama::filters::{Html as AsHtml, HtmlSafe, escape};
use sampler_domain::Timestamp;
use sampler_domain::text::is_invisible;
use serde_json::Value;

/// A piece of a page.
pub(crate) struct Html(String);

impl HtmlSafe for Html {}

impl fmt::Display for Html {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// An element with a text in it. `tag` is its name and its attributes.
fn element(tag: &str, text: &str) -> Html {
    let name = tag.split(' ').next().unwrap_or(tag);
    let Ok(text) = escape(text, AsHtml);
    Html(format!("<{tag}>{text}</{name}>"))
}

/// A text of ours that matters less.
pub(crate) fn faint(text: &str) -> Html {
    element("span class=\"faint\"", text)
}

/// A text of somebody else. It is set apart from the text around it, so that marks of direction in
/// it turn nothing else around.
pub(crate) fn quoted(text: &str) -> Html {
    element("bdi", text)
}

/// What somebody else says has failed, perhaps with a status.
pub(crate) fn error(status: Option<u16>, text: &str) -> Html {
    let status = status.map(|it| element("strong class=\"bad-text\"", &format!("{it} ")).0);
    let text = element("bdi class=\"error-text\"", text);
    Html(format!("{}{text}", status.unwrap_or_default()))
}

/// An id that a client chose. Characters that nobody sees are named behind it.
pub(crate) fn id(text: &str) -> Html {
    let mut hidden: Vec<char> = text.chars().filter(|it| is_invisible(*it)).collect();
    hidden.sort_unstable();
    hidden.dedup();
    let id = element("bdi class=\"id\"", text);
    if hidden.is_empty() {
        return id;
    }
    let hidden: Vec<String> = hidden.into_iter().map(code_point).collect();
    let title = "title=\"This id has characters that are not visible.\"";
    let tag = format!("span class=\"hidden-marks\" {title}");
    Html(format!("{id} {}", element(&tag, &hidden.join(" "))))
}

/// An id, where there is one.
pub(crate) fn id_or(text: Option<&str>, none: &str) -> Html {
    text.map_or_else(|| faint(none), id)
}

fn code_point(letter: char) -> String {
    format!("U+{:04X}", u32::from(letter))
}

/// A text of a client where no element can set it apart, as in a title. Invisible characters are
/// written as their numbers.
pub(crate) fn plain(text: &str) -> String {
    let letters = text.chars().map(|letter| {
        let name = is_invisible(letter).then(|| format!("[{}]", code_point(letter)));
        name.unwrap_or_else(|| letter.to_string())
    });
    letters.collect()
}

/// A time in UTC to the second. Its title is exact.
pub(crate) fn at(at: Timestamp) -> Html {
    let ((day, clock), millis) = (day_and_clock(at), at.as_millis());
    Html(format!(
        "<time datetime=\"{at}\" title=\"{at} ({millis})\">{day} <span class=\"clock\">{clock}</span></time>"
    ))
}

/// A time, where there is one.
pub(crate) fn at_or(time: Option<Timestamp>, none: &str) -> Html {
    time.map_or_else(|| faint(none), at)
}

/// A time, unless it is as good as none.
pub(crate) fn bound(at: Timestamp, none: &str) -> Html {
    let is_none = at == Timestamp::MIN || at == Timestamp::MAX;
    at_or((!is_none).then_some(at), none)
}

/// The day and the time of day, to the second: `2026-11-20` and `14:10:00`.
pub(crate) fn day_and_clock(at: Timestamp) -> (String, String) {
    let text = at.to_string();
    let (day, clock) = text.split_once('T').unwrap_or_default();
    (day.to_owned(), clock.chars().take(8).collect())
}

/// A length of time in ms, with its sign, in words.
pub(crate) fn length(millis: i64) -> Html {
    let class = if millis < 0 { "length back" } else { "length" };
    let tag = format!("data class=\"{class}\" value=\"{millis}\" title=\"{millis} ms\"");
    element(&tag, &in_words(millis))
}

/// `1 h 9 min 0.5 s`: the exact length, without the units that it has none of.
pub(crate) fn in_words(millis: i64) -> String {
    let mut rest = millis.unsigned_abs();
    let mut parts = Vec::new();
    for (unit, name) in [(86_400_000, "d"), (3_600_000, "h"), (60_000, "min")] {
        if rest >= unit {
            parts.push(format!("{}\u{a0}{name}", rest / unit));
        }
        rest %= unit;
    }
    if rest > 0 || parts.is_empty() {
        let seconds = format!("{}.{:03}", rest / 1_000, rest % 1_000);
        let seconds = seconds.trim_end_matches('0').trim_end_matches('.');
        parts.push(format!("{seconds}\u{a0}s"));
    }
    let sign = if millis < 0 { "\u{2212}" } else { "" };
    format!("{sign}{}", parts.join(" "))
}

/// A whole number.
pub(crate) fn number(value: impl Into<i128>) -> Html {
    let value = value.into().to_string();
    element(&format!("data value=\"{value}\""), &grouped(&value))
}

/// `812 spans`.
pub(crate) fn counted(count: u64, noun: &str) -> String {
    let ending = if count == 1 { "" } else { "s" };
    format!("{} {noun}{ending}", grouped(&count.to_string()))
}

/// A number as the API writes it, with the thousands of its whole part apart: `−1,689,000.5`.
pub(crate) fn grouped(number: &str) -> String {
    let digits = number.trim_start_matches('-');
    let point = digits.find('.').unwrap_or(digits.len());
    let (whole, fraction) = digits.split_at(point);
    if whole.contains(|it: char| !it.is_ascii_digit()) {
        return number.to_owned();
    }
    let mut text = if number.starts_with('-') {
        "\u{2212}"
    } else {
        ""
    }
    .to_owned();
    for (place, digit) in whole.chars().enumerate() {
        if place > 0 && (whole.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text + fraction
}

/// A value of the API as a text. Its name says whether it is a time.
pub(crate) fn value(name: &str, value: &Value) -> String {
    let last = name.rsplit(['/', '_', ' ']).next();
    let is_time = matches!(last, Some("at" | "start" | "end" | "since" | "to"));
    let time = value.as_i64().filter(|_| is_time);
    match (time.and_then(|millis| Timestamp::new(millis).ok()), value) {
        (Some(time), _) => time.to_string(),
        (None, Value::String(text)) => text.clone(),
        (None, Value::Null) => String::new(),
        (None, value) => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_exact_in_words() {
        for (millis, words) in [
            (0, "0 s"),
            (1, "0.001 s"),
            (10_000, "10 s"),
            (-1_689_000, "\u{2212}28 min 9 s"),
            (3_600_000, "1 h"),
            (86_399_999, "23 h 59 min 59.999 s"),
            (90_061_500, "1 d 1 h 1 min 1.5 s"),
            (i64::MIN, "\u{2212}106751991167 d 7 h 12 min 55.808 s"),
        ] {
            assert_eq!(in_words(millis).replace('\u{a0}', " "), words);
        }
    }

    #[test]
    fn a_number_of_the_api_keeps_all_of_its_digits() {
        for (number, text) in [
            ("1166400000", "1,166,400,000"),
            ("-1689000", "\u{2212}1,689,000"),
            ("999", "999"),
            ("1e300", "1e300"),
            ("-0.500", "\u{2212}0.500"),
            ("12345.678", "12,345.678"),
            ("99999999999999999999", "99,999,999,999,999,999,999"),
            ("", ""),
        ] {
            assert_eq!(grouped(number), text);
        }
    }

    #[test]
    fn an_id_is_escaped_set_apart_and_says_what_is_hidden_in_it() {
        let shown = id("<b>\"'&\u{202e}\u{202e}x").to_string();
        let text = "<bdi class=\"id\">&#60;b&#62;&#34;&#39;&#38;";
        assert!(shown.starts_with(text), "{shown}");
        assert!(shown.ends_with(">U+202E</span>"), "{shown}");
        assert_eq!(id("plain").to_string(), "<bdi class=\"id\">plain</bdi>");
        assert_eq!(plain("a\u{202e}b\n"), "a[U+202E]b[U+000A]");
    }

    #[test]
    fn whatever_shows_a_text_escapes_it() {
        let hostile = "\"><script>'";
        for shown in [
            faint(hostile),
            quoted(hostile),
            error(Some(400), hostile),
            id(hostile),
        ] {
            let shown = shown.to_string();
            let is_open = shown.contains("<script") || shown.contains("\"\">");
            assert!(!is_open, "{shown}");
        }
    }

    #[test]
    fn a_moment_has_its_exact_value_at_hand() {
        let shown = at(Timestamp::clamped(1_795_186_800_123)).to_string();
        let title = "title=\"2026-11-20T15:00:00.123Z (1795186800123)\"";
        assert!(shown.contains(title), "{shown}");
        let text = "2026-11-20 <span class=\"clock\">15:00:00</span>";
        assert!(shown.contains(text), "{shown}");
    }
}
