//! One row of the table: a [`Setting`], and the [`Kind`] of value it takes.

use std::fmt;
use std::time::Duration;

use super::{HIDDEN, parse};

/// The longest text that any setting takes, in bytes.
const TEXT_MAX: usize = 16_384;

/// How many characters of a value a mistake shows. A value can be a whole file by accident; its
/// beginning is enough to recognise it.
const SHOWN_MAX: usize = 100;

/// One thing an operator can set.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Its name in the file: `section.name`.
    pub key: &'static str,
    /// Its name in the environment.
    pub env: &'static str,
    pub kind: Kind,
    pub default: Option<&'static str>,
    /// Whether its value must never be shown.
    pub secret: bool,
    pub doc: &'static str,
}

impl Setting {
    /// A setting that may be left out and has no default.
    pub const fn new(key: &'static str, env: &'static str, kind: Kind, doc: &'static str) -> Self {
        Self {
            key,
            env,
            kind,
            default: None,
            secret: false,
            doc,
        }
    }

    /// The same with a default.
    #[must_use]
    pub const fn or(mut self, default: &'static str) -> Self {
        self.default = Some(default);
        self
    }

    /// The same, but its value is never shown.
    #[must_use]
    pub const fn secret(mut self) -> Self {
        self.secret = true;
        self
    }

    /// The part of the key before the dot.
    pub(super) fn section(&self) -> &'static str {
        self.key.split_once('.').map_or("", |(section, _)| section)
    }

    /// The part of the key after the dot.
    pub(super) fn name(&self) -> &'static str {
        self.key.split_once('.').map_or(self.key, |(_, name)| name)
    }

    /// `text` as it may be shown in logs and on terminals.
    pub(super) fn shown(&self, text: &str) -> String {
        if self.secret {
            return HIDDEN.to_owned();
        }
        match self.kind {
            Kind::Url => parse::without_credentials(text),
            _ => text.to_owned(),
        }
    }

    /// Its wrong value and where it came from, for a mistake.
    pub(super) fn shown_as_given(&self, text: &str, origin: &str) -> String {
        let shown = self.shown(text);
        if self.secret {
            return format!("{shown}, from {origin}");
        }
        let rest = shown.char_indices().nth(SHOWN_MAX);
        let (end, mark) = rest.map_or((shown.len(), ""), |(end, _)| (end, "…"));
        format!("{:?}, from {origin}", shown[..end].to_owned() + mark)
    }
}

/// The values that a setting takes. Both limits are included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Integer(u64, u64),
    Boolean,
    /// A length of time: milliseconds, or a number with one of the units ms, s, m, h, d.
    Duration(Duration, Duration),
    /// A number of bytes, also with one of the units b, kb, mb, gb, each 1024 of the one before.
    Size(u64, u64),
    Choice(&'static [&'static str]),
    /// The address of an HTTP server.
    Url,
    Text,
}

impl Kind {
    pub(super) fn accepts(self, text: &str) -> bool {
        match self {
            Self::Integer(..) | Self::Size(..) => self.number(text).is_some(),
            Self::Boolean => text.parse::<bool>().is_ok(),
            Self::Duration(..) => self.duration(text).is_some(),
            Self::Choice(words) => words.contains(&text),
            Self::Url => parse::url(text).is_some(),
            Self::Text => text.len() <= TEXT_MAX,
        }
    }

    /// The number that `text` says; none where it is not of this kind.
    pub(super) fn number(self, text: &str) -> Option<u64> {
        let (number, limits) = match self {
            Self::Integer(min, max) => (parse::integer(text)?, min..=max),
            Self::Size(min, max) => (parse::size(text)?, min..=max),
            _ => return None,
        };
        limits.contains(&number).then_some(number)
    }

    /// The length of time that `text` says; none where it is not of this kind.
    pub fn duration(self, text: &str) -> Option<Duration> {
        let Self::Duration(min, max) = self else {
            return None;
        };
        parse::duration(text).filter(|duration| (min..=max).contains(duration))
    }

    /// The smallest and the largest value, where there are such.
    pub(super) fn limits(self) -> Option<(String, String)> {
        match self {
            Self::Integer(min, max) => Some((min.to_string(), max.to_string())),
            Self::Duration(min, max) => {
                Some((parse::spell_duration(min), parse::spell_duration(max)))
            }
            Self::Size(min, max) => Some((parse::spell_size(min), parse::spell_size(max))),
            Self::Boolean | Self::Choice(_) | Self::Url | Self::Text => None,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limits = self
            .limits()
            .map_or_else(String::new, |(min, max)| format!("from {min} to {max}"));
        match self {
            Self::Integer(..) => write!(f, "a whole number {limits}"),
            Self::Boolean => f.write_str("true or false"),
            Self::Duration(..) => write!(
                f,
                "a duration {limits} (milliseconds, or a number with ms, s, m, h or d)"
            ),
            Self::Size(..) => write!(
                f,
                "a size {limits} (bytes, or a number with b, kb, mb or gb)"
            ),
            Self::Choice(words) => match words {
                [] => f.write_str("nothing"),
                [word] => f.write_str(word),
                [words @ .., last] => write!(f, "{} or {last}", words.join(", ")),
            },
            Self::Url => f.write_str(
                "an http or https address with a host, without credentials, query or fragment",
            ),
            Self::Text => write!(f, "text of at most {TEXT_MAX} bytes"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_part_of_a_kind() {
        let second = Duration::from_secs(1);
        for (kind, taken, refused) in [
            (Kind::Integer(1, 1000), ["1", "1000"], ["0", "1001"]),
            (
                Kind::Duration(second, 5 * second),
                ["1s", "5000"],
                ["999", "5001ms"],
            ),
            (Kind::Size(1024, 2048), ["1kb", "2048"], ["1023", "2.1kb"]),
            (Kind::Boolean, ["true", "false"], ["True", "1"]),
            (Kind::Boolean, ["true", "false"], [" true", ""]),
            (Kind::Choice(&["day", "hour"]), ["day", "hour"], ["Day", ""]),
        ] {
            assert!(taken.into_iter().all(|text| kind.accepts(text)), "{kind}");
            assert!(
                !refused.into_iter().any(|text| kind.accepts(text)),
                "{kind}"
            );
        }
        assert!(Kind::Text.accepts(&"x".repeat(TEXT_MAX)));
        assert!(!Kind::Text.accepts(&"x".repeat(TEXT_MAX + 1)));
    }

    #[test]
    fn says_what_it_expects() {
        for (kind, expected) in [
            (Kind::Integer(1, 9), "a whole number from 1 to 9"),
            (
                Kind::Choice(&["auto", "json", "text"]),
                "auto, json or text",
            ),
            (Kind::Boolean, "true or false"),
            (
                Kind::Duration(Duration::ZERO, Duration::from_hours(24)),
                "a duration from 0ms to 1d (milliseconds, or a number with ms, s, m, h or d)",
            ),
            (
                Kind::Size(1, 16 << 20),
                "a size from 1b to 16mb (bytes, or a number with b, kb, mb or gb)",
            ),
        ] {
            assert_eq!(kind.to_string(), expected);
        }
    }

    #[test]
    fn a_wrong_value_is_shown_as_far_as_it_may_and_need_be() {
        let setting = |kind| Setting::new("a.b", "B", kind, "It.");
        for (setting, text, shown) in [
            (setting(Kind::Text), "a\nb", r#""a\nb", from F"#),
            (setting(Kind::Text).secret(), "hunter2", "<hidden>, from F"),
            (
                setting(Kind::Url),
                "http://me:hunter2@host/",
                r#""http://<hidden>@host/", from F"#,
            ),
        ] {
            assert_eq!(setting.shown_as_given(text, "F"), shown);
        }
        let shown = setting(Kind::Text).shown_as_given(&"x".repeat(500), "F");
        assert_eq!(shown, format!("\"{}…\", from F", "x".repeat(SHOWN_MAX)));
    }
}
