//! The look of values on a page: times, lengths of time, numbers and ids.
//!
//! Each is safe to write into a page as it is: texts of clients are escaped here.

#![allow(
    clippy::trivially_copy_pass_by_ref,
    reason = "templates pass all values by reference"
)]

use std::fmt;

use askama::Template;
use askama::filters::HtmlSafe;
use sampler_domain::Timestamp;
use sampler_domain::text::is_invisible;

const SECOND: i64 = 1_000;
const MINUTE: i64 = 60 * SECOND;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;

/// A time, in UTC, to the second; the exact value is at hand.
#[derive(Clone, Copy, Template)]
#[template(
    source = r#"<time datetime="{{ exact() }}" title="{{ exact() }} ({{ at.as_millis() }})">{{ date() }} <span class="clock">{{ clock() }}</span></time>"#,
    ext = "html"
)]
pub(crate) struct Moment {
    at: Timestamp,
}

impl From<Timestamp> for Moment {
    fn from(at: Timestamp) -> Self {
        Self { at }
    }
}

impl Moment {
    fn exact(&self) -> String {
        self.at.to_string()
    }

    fn date(&self) -> String {
        date(self.at)
    }

    fn clock(&self) -> String {
        clock(self.at)
    }
}

/// `2026-11-20`.
pub(crate) fn date(at: Timestamp) -> String {
    let text = at.to_string();
    text.split('T').next().unwrap_or_default().to_owned()
}

/// `14:10:00`.
pub(crate) fn clock(at: Timestamp) -> String {
    let text = at.to_string();
    let clock = text.split('T').nth(1).unwrap_or_default();
    clock.chars().take(8).collect()
}

/// A time, as templates write it.
pub(crate) fn at(at: &Timestamp) -> Moment {
    Moment { at: *at }
}

/// A length of time in ms, as templates write it.
pub(crate) fn length(millis: &i64) -> Length {
    Length {
        millis: *millis,
        words: in_words(*millis),
    }
}

/// A whole number, as templates write it.
pub(crate) fn number(value: &i64) -> Number {
    Number { value: *value }
}

/// A count, as templates write it.
pub(crate) fn count(value: &u64) -> Number {
    let value = i64::try_from(*value).unwrap_or(i64::MAX);
    Number { value }
}

/// The ending of a noun after a count, as templates write it.
pub(crate) fn plural(count: &u64) -> &'static str {
    if *count == 1 { "" } else { "s" }
}

/// How many partitions a worker has.
pub(crate) fn share(partitions: &u32) -> String {
    crate::estimate::counted(i64::from(*partitions), "partition")
}

/// A number of seconds, roughly; the exact number is at hand.
pub(crate) fn seconds(seconds: &f64) -> Length {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a cast of a double to an integer is held at the limits of the integer"
    )]
    let millis = (seconds * 1_000.0).round() as i64;
    Length {
        millis,
        words: crate::estimate::roughly(millis),
    }
}

/// A number as the API writes it, with its thousands apart where it is whole.
pub(crate) fn exact(number: &str) -> String {
    number.parse().map_or_else(|_| number.to_owned(), grouped)
}

/// A decimal number as it is written, with the thousands of its whole part apart.
pub(crate) fn decimals(number: &str) -> String {
    let (sign, digits) = match number.strip_prefix('-') {
        Some(digits) => ("\u{2212}", digits),
        None => ("", number),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    format!("{sign}{}.{fraction}", exact(whole))
}

/// A number with two decimals at the most.
pub(crate) fn decimal(value: &f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// An id, as templates write it.
pub(crate) fn name(text: &str) -> Name<'_> {
    Name { text }
}

/// A text for a title, as templates write it.
pub(crate) fn plain(text: &str) -> Plain<'_> {
    Plain(text)
}

/// A length of time with its sign, in words; the milliseconds are at hand.
#[derive(Clone, Template)]
#[template(
    source = r#"<data class="length" value="{{ millis }}" title="{{ millis }} ms">{{ words }}</data>"#,
    ext = "html"
)]
pub(crate) struct Length {
    millis: i64,
    words: String,
}

/// `1 h 9 min 0.5 s`: the exact length, without the units that it has none of.
pub(crate) fn in_words(millis: i64) -> String {
    let sign = if millis < 0 { "\u{2212}" } else { "" };
    let rest = millis.unsigned_abs();
    let [second, minute, hour, day] = [SECOND, MINUTE, HOUR, DAY].map(i64::unsigned_abs);
    let whole = [
        (rest / day, "d"),
        (rest % day / hour, "h"),
        (rest % hour / minute, "min"),
    ];
    let mut parts: Vec<String> = whole
        .into_iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, unit)| format!("{count}\u{a0}{unit}"))
        .collect();
    let (seconds, fraction) = (rest % minute / second, rest % second);
    if fraction > 0 {
        let digits = format!("{fraction:03}");
        parts.push(format!("{seconds}.{}\u{a0}s", digits.trim_end_matches('0')));
    } else if seconds > 0 || parts.is_empty() {
        parts.push(format!("{seconds}\u{a0}s"));
    }
    format!("{sign}{}", parts.join(" "))
}

/// A whole number with its thousands apart.
#[derive(Clone, Copy, Template)]
#[template(
    source = r#"<data value="{{ value }}">{{ grouped() }}</data>"#,
    ext = "html"
)]
pub(crate) struct Number {
    pub(crate) value: i64,
}

impl Number {
    fn grouped(&self) -> String {
        grouped(self.value)
    }
}

/// `−1,689,000`.
pub(crate) fn grouped(value: i64) -> String {
    let digits = value.unsigned_abs().to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if value < 0 {
        text.insert(0, '\u{2212}');
    }
    text
}

/// An id that a client chose. It is set apart from the text around it, so that marks of direction in
/// it turn nothing else around. Characters that nobody sees are named behind it.
#[derive(Clone, Copy, Template)]
#[template(
    source = r#"<bdi class="id">{{ text }}</bdi>{% if !hidden().is_empty() %}<span class="hidden-marks" title="This id holds characters that are not visible.">{{ hidden() }}</span>{% endif %}"#,
    ext = "html"
)]
pub(crate) struct Name<'a> {
    pub(crate) text: &'a str,
}

impl Name<'_> {
    fn hidden(&self) -> String {
        let hidden = self.text.chars().filter(|letter| is_invisible(*letter));
        let mut names: Vec<String> = hidden
            .map(|letter| format!("U+{:04X}", u32::from(letter)))
            .collect();
        names.sort();
        names.dedup();
        names.join(" ")
    }
}

/// A text of a client where no element can set it apart, as in a title. Invisible characters are
/// written as their numbers.
pub(crate) struct Plain<'a>(pub(crate) &'a str);

impl fmt::Display for Plain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|letter| {
            if is_invisible(letter) {
                write!(f, "[U+{:04X}]", u32::from(letter))
            } else {
                write!(f, "{letter}")
            }
        })
    }
}

impl HtmlSafe for Moment {}
impl HtmlSafe for Length {}
impl HtmlSafe for Number {}
impl HtmlSafe for Name<'_> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_exact_in_words() {
        for (millis, words) in [
            (0, "0 s"),
            (1, "0.001 s"),
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
    fn thousands_are_apart() {
        for (value, text) in [
            (0, "0"),
            (999, "999"),
            (1_000, "1,000"),
            (-1_689_000, "\u{2212}1,689,000"),
        ] {
            assert_eq!(grouped(value), text);
        }
    }

    #[test]
    fn a_number_of_the_api_keeps_all_of_its_digits() {
        for (number, text) in [
            ("1166400000", "1,166,400,000"),
            ("-3", "\u{2212}3"),
            ("1.5e300", "1.5e300"),
            ("0.5", "0.5"),
            ("99999999999999999999", "99999999999999999999"),
            ("", ""),
        ] {
            assert_eq!(exact(number), text);
        }
    }

    #[test]
    fn thousands_of_a_decimal_number_are_apart() {
        for (number, text) in [
            ("-0.500", "\u{2212}0.500"),
            ("12345.678", "12,345.678"),
            ("7.000", "7.000"),
        ] {
            assert_eq!(decimals(number), text);
        }
    }

    #[test]
    fn an_id_is_escaped_set_apart_and_says_what_is_hidden_in_it() {
        let shown = Name {
            text: "<b>\"'&\u{202e}\u{202e}x",
        };
        let shown = shown.render().unwrap();
        assert!(
            shown.starts_with("<bdi class=\"id\">&#60;b&#62;&#34;&#39;&#38;"),
            "{shown}"
        );
        assert!(shown.ends_with(">U+202E</span>"), "{shown}");
        let plain = Name { text: "plain" }.render().unwrap();
        assert_eq!(plain, "<bdi class=\"id\">plain</bdi>");
        assert_eq!(Plain("a\u{202e}b\n").to_string(), "a[U+202E]b[U+000A]");
    }

    #[test]
    fn a_moment_has_its_exact_value_at_hand() {
        let at = Timestamp::clamped(1_795_186_800_123);
        let shown = Moment::from(at).render().unwrap();
        assert!(
            shown.contains("title=\"2026-11-20T15:00:00.123Z (1795186800123)\""),
            "{shown}"
        );
        assert!(
            shown.contains("2026-11-20 <span class=\"clock\">15:00:00</span>"),
            "{shown}"
        );
    }
}
