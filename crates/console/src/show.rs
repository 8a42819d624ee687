//! The look of values on a page: times, lengths of time, numbers, ids and links.
//!
//! Nothing else makes [`Html`], and all texts are escaped here.

use std::fmt;

use askama::filters::HtmlSafe;
use sampler_domain::Timestamp;
use sampler_domain::text::is_invisible;

const SECOND: i64 = 1_000;
const MINUTE: i64 = 60 * SECOND;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;

/// A piece of a page.
#[derive(Clone, Default)]
pub(crate) struct Html(String);

impl HtmlSafe for Html {}

impl fmt::Display for Html {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Html {
    /// This and another behind it, where there is another.
    pub(crate) fn and(self, other: impl Into<Option<Self>>) -> Self {
        match other.into() {
            Some(other) => Self(format!("{self} {other}")),
            None => self,
        }
    }
}

fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        let escape = match letter {
            '&' => "&#38;",
            '<' => "&#60;",
            '>' => "&#62;",
            '"' => "&#34;",
            '\'' => "&#39;",
            _ => {
                escaped.push(letter);
                continue;
            }
        };
        escaped.push_str(escape);
    }
    escaped
}

/// A text of ours.
pub(crate) fn words(text: &str) -> Html {
    Html(escaped(text))
}

/// A text of ours that matters less.
pub(crate) fn faint(text: &str) -> Html {
    Html(format!("<span class=\"faint\">{}</span>", escaped(text)))
}

/// A text of ours that is bad news.
pub(crate) fn bad(text: &str) -> Html {
    Html(format!(
        "<strong class=\"bad-text\">{}</strong>",
        escaped(text)
    ))
}

/// A text of somebody else. It is set apart from the text around it, so that marks of direction in
/// it turn nothing else around.
pub(crate) fn quoted(text: &str) -> Html {
    Html(format!("<bdi>{}</bdi>", escaped(text)))
}

/// What somebody else says has failed.
pub(crate) fn error(text: &str) -> Html {
    Html(format!("<bdi class=\"error-text\">{}</bdi>", escaped(text)))
}

/// An id that a client chose. Characters that nobody sees are named behind it.
pub(crate) fn id(text: &str) -> Html {
    let mut hidden: Vec<String> = text
        .chars()
        .filter(|letter| is_invisible(*letter))
        .map(|letter| format!("U+{:04X}", u32::from(letter)))
        .collect();
    hidden.sort();
    hidden.dedup();
    let id = Html(format!("<bdi class=\"id\">{}</bdi>", escaped(text)));
    let hidden = (!hidden.is_empty()).then(|| {
        let title = "This id has characters that are not visible.";
        let hidden = hidden.join(" ");
        Html(format!(
            "<span class=\"hidden-marks\" title=\"{title}\">{hidden}</span>"
        ))
    });
    id.and(hidden)
}

/// Ids of a target, from the largest to the smallest.
pub(crate) fn trail(ids: &[&str]) -> Html {
    let ids: Vec<String> = ids.iter().map(|text| id(text).0).collect();
    Html(ids.join(" / "))
}

/// Something on a line of its own, which matters less.
pub(crate) fn below(content: &Html) -> Html {
    Html(format!("<div class=\"trail\">{content}</div>"))
}

/// A text of a client where no element can set it apart, as in a title. Invisible characters are
/// written as their numbers.
pub(crate) fn plain(text: &str) -> String {
    let letters = text.chars().map(|letter| {
        if is_invisible(letter) {
            format!("[U+{:04X}]", u32::from(letter))
        } else {
            letter.to_string()
        }
    });
    letters.collect()
}

pub(crate) fn link(address: &str, content: &Html) -> Html {
    Html(format!("<a href=\"{}\">{content}</a>", escaped(address)))
}

/// A link to something outside of the console.
pub(crate) fn outside(address: &str, content: &Html) -> Html {
    let address = escaped(address);
    Html(format!(
        "<a href=\"{address}\" rel=\"noreferrer\" target=\"_blank\" data-test=\"document\">{content}</a>"
    ))
}

/// A button that leads to another page, and by which tests find it.
pub(crate) fn button(address: &str, text: &str, hook: &str) -> Html {
    let address = escaped(address);
    Html(format!(
        "<a class=\"button quiet\" data-test=\"{hook}\" href=\"{address}\">{text}</a>"
    ))
}

/// A state, as the API names it.
pub(crate) fn state(name: &str) -> Html {
    let (class, words) = (escaped(name), escaped(&name.replace('_', " ")));
    Html(format!("<span class=\"state {class}\">{words}</span>"))
}

/// A time in UTC to the second. Its title is exact.
pub(crate) fn at(at: Timestamp) -> Html {
    let (date, clock, millis) = (date(at), clock(at), at.as_millis());
    Html(format!(
        "<time datetime=\"{at}\" title=\"{at} ({millis})\">{date} <span class=\"clock\">{clock}</span></time>"
    ))
}

/// A time, where there is one.
pub(crate) fn at_or(time: Option<Timestamp>, none: &str) -> Html {
    time.map_or_else(|| faint(none), at)
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

/// A length of time in ms, with its sign, in words.
pub(crate) fn length(millis: i64) -> Html {
    let words = in_words(millis);
    Html(format!(
        "<data class=\"length\" value=\"{millis}\" title=\"{millis} ms\">{words}</data>"
    ))
}

/// A whole number.
pub(crate) fn number(value: impl Into<i128>) -> Html {
    let value = value.into();
    Html(format!("<data value=\"{value}\">{}</data>", grouped(value)))
}

/// `812 spans`.
pub(crate) fn counted(count: u64, noun: &str) -> String {
    let ending = if count == 1 { "" } else { "s" };
    format!("{} {noun}{ending}", grouped(count.into()))
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

/// `−1,689,000`.
fn grouped(value: i128) -> String {
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

/// A number as the API writes it. The thousands of its whole part are apart.
pub(crate) fn exact(number: &str) -> Html {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let shown = whole.parse().ok().map(|whole: i128| {
        let sign = if whole == 0 && number.starts_with('-') {
            "\u{2212}"
        } else {
            ""
        };
        let point = if fraction.is_empty() { "" } else { "." };
        format!("{sign}{}{point}{fraction}", grouped(whole))
    });
    words(&shown.unwrap_or_else(|| number.to_owned()))
}

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
            assert_eq!(exact(number).to_string(), text);
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
        let all = [
            words(hostile),
            faint(hostile),
            bad(hostile),
            quoted(hostile),
            error(hostile),
            id(hostile),
            trail(&[hostile]),
            state(hostile),
            exact(hostile),
            link(hostile, &words("")),
            outside(hostile, &words("")),
            button(hostile, "", ""),
        ];
        for shown in all {
            let shown = shown.to_string();
            assert!(
                !shown.contains("<script") && !shown.contains("\"\">"),
                "{shown}"
            );
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
