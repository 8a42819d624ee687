//! One row of the table: a [`Setting`], and the [`Kind`] of value it takes.

use std::fmt;
use std::time::Duration;

use url::Url;

use super::parse;

/// The longest text that any setting takes, in bytes.
const TEXT_MAX: usize = 16_384;

/// One thing an operator can set.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Its name in the file: `section.name`.
    pub key: &'static str,
    /// Its name in the environment.
    pub env: &'static str,
    /// The values that it takes.
    pub kind: Kind,
    /// Its value if nothing else is set.
    pub default: Option<&'static str>,
    /// Whether it must be set. Only for settings without a default.
    pub required: bool,
    /// Whether its value must never be shown.
    pub secret: bool,
    /// Its purpose, in sentences.
    pub doc: &'static str,
}

impl Setting {
    /// Where a table has the setting of this name in the environment, for a constant table that
    /// differs from another in one setting.
    ///
    /// # Panics
    /// Where the table has none: in a constant that is an error of the compiler.
    pub const fn position(table: &[Self], env: &str) -> usize {
        let mut at = 0;
        while !is_same(table[at].env.as_bytes(), env.as_bytes()) {
            at += 1;
        }
        at
    }

    /// A setting that may be left out and has no default.
    pub const fn new(key: &'static str, env: &'static str, kind: Kind, doc: &'static str) -> Self {
        Self {
            key,
            env,
            kind,
            default: None,
            required: false,
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

    /// The same, but it must be set.
    #[must_use]
    pub const fn required(mut self) -> Self {
        self.required = true;
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
            return super::HIDDEN.to_owned();
        }
        match self.kind {
            Kind::Url => parse::without_credentials(text),
            _ => text.to_owned(),
        }
    }
}

/// Whether two texts are the same; constants cannot compare them with `==`.
const fn is_same(one: &[u8], other: &[u8]) -> bool {
    let mut at = 0;
    while at < one.len() && at < other.len() && one[at] == other[at] {
        at += 1;
    }
    at == one.len() && at == other.len()
}

/// The values that a setting takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A whole number, both limits included.
    Integer {
        /// The smallest.
        min: u64,
        /// The largest.
        max: u64,
    },
    /// `true` or `false`.
    Boolean,
    /// A length of time: milliseconds, or a number with one of the units ms, s, m, h, d.
    Duration {
        /// The shortest.
        min: Duration,
        /// The longest.
        max: Duration,
    },
    /// A number of bytes, also with one of the units b, kb, mb, gb, each 1024 of the one before.
    Size {
        /// The smallest, in bytes.
        min: u64,
        /// The largest, in bytes.
        max: u64,
    },
    /// One of these words.
    Choice(&'static [&'static str]),
    /// The address of an HTTP server.
    Url,
    Text,
}

impl Kind {
    /// Whole numbers from `min` to `max`.
    pub const fn integer(min: u64, max: u64) -> Self {
        Self::Integer { min, max }
    }

    /// Lengths of time from `min` to `max`.
    pub const fn time(min: Duration, max: Duration) -> Self {
        Self::Duration { min, max }
    }

    /// Numbers of bytes from `min` to `max`.
    pub const fn size(min: u64, max: u64) -> Self {
        Self::Size { min, max }
    }

    /// The length of time that `text` says; none where it is not of this kind.
    pub fn duration(self, text: &str) -> Option<Duration> {
        match self.parse(text) {
            Some(Value::Duration(duration)) => Some(duration),
            _ => None,
        }
    }

    /// A value in the place of one that must be set and is not, so that reading can continue.
    pub(super) fn placeholder(self) -> Value {
        match self {
            Self::Integer { min, .. } | Self::Size { min, .. } => Value::Number(min),
            Self::Boolean => Value::Boolean(false),
            Self::Duration { min, .. } => Value::Duration(min),
            Self::Url => Value::Url(parse::no_url()),
            Self::Choice(_) | Self::Text => Value::Text(String::new()),
        }
    }

    /// Reads `text`; `None` if it is not of this kind.
    pub(super) fn parse(self, text: &str) -> Option<Value> {
        match self {
            Self::Integer { min, max } => {
                let number = parse::integer(text)?;
                (min..=max)
                    .contains(&number)
                    .then_some(Value::Number(number))
            }
            Self::Boolean => text.parse().ok().map(Value::Boolean),
            Self::Duration { min, max } => {
                let duration = parse::duration(text)?;
                (min..=max)
                    .contains(&duration)
                    .then_some(Value::Duration(duration))
            }
            Self::Size { min, max } => {
                let size = parse::size(text)?;
                (min..=max).contains(&size).then_some(Value::Number(size))
            }
            Self::Choice(words) => words.contains(&text).then(|| Value::Text(text.to_owned())),
            Self::Url => parse::url(text).map(Value::Url),
            Self::Text => (text.len() <= TEXT_MAX).then(|| Value::Text(text.to_owned())),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Integer { min, max } => write!(f, "a whole number from {min} to {max}"),
            Self::Boolean => f.write_str("true or false"),
            Self::Duration { min, max } => {
                let (min, max) = (parse::spell_duration(*min), parse::spell_duration(*max));
                write!(
                    f,
                    "a duration from {min} to {max} (milliseconds, or a number with ms, s, m, h or d)"
                )
            }
            Self::Size { min, max } => {
                let (min, max) = (parse::spell_size(*min), parse::spell_size(*max));
                write!(
                    f,
                    "a size from {min} to {max} (bytes, or a number with b, kb, mb or gb)"
                )
            }
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

/// A value of a [`Kind`], which has passed its checks.
#[derive(Clone)]
pub enum Value {
    /// A whole number, or a number of bytes.
    Number(u64),
    /// True or false.
    Boolean(bool),
    /// A length of time.
    Duration(Duration),
    /// The address of an HTTP server.
    Url(Url),
    /// Any text, or one of several words.
    Text(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_part_of_a_kind() {
        let kind = Kind::Integer { min: 1, max: 1000 };
        assert!(kind.parse("1").is_some() && kind.parse("1000").is_some());
        assert!(kind.parse("0").is_none() && kind.parse("1001").is_none());
        let kind = Kind::Duration {
            min: Duration::from_secs(1),
            max: Duration::from_secs(5),
        };
        assert!(kind.parse("1s").is_some() && kind.parse("5000").is_some());
        assert!(kind.parse("999").is_none() && kind.parse("5001ms").is_none());
        let kind = Kind::Size {
            min: 1024,
            max: 2048,
        };
        assert!(kind.parse("1kb").is_some() && kind.parse("2048").is_some());
        assert!(kind.parse("1023").is_none() && kind.parse("2.1kb").is_none());
        assert!(Kind::Text.parse(&"x".repeat(TEXT_MAX)).is_some());
        assert!(Kind::Text.parse(&"x".repeat(TEXT_MAX + 1)).is_none());
    }

    #[test]
    fn only_true_and_false_are_booleans() {
        assert!(matches!(
            Kind::Boolean.parse("true"),
            Some(Value::Boolean(true))
        ));
        assert!(matches!(
            Kind::Boolean.parse("false"),
            Some(Value::Boolean(false))
        ));
        for text in ["True", "1", "yes", " true", ""] {
            assert!(Kind::Boolean.parse(text).is_none(), "{text:?}");
        }
    }

    #[test]
    fn says_what_it_expects() {
        let expected = |kind: Kind| kind.to_string();
        assert_eq!(
            expected(Kind::Integer { min: 1, max: 9 }),
            "a whole number from 1 to 9"
        );
        assert_eq!(
            expected(Kind::Choice(&["auto", "json", "text"])),
            "auto, json or text"
        );
        assert_eq!(expected(Kind::Boolean), "true or false");
        let kind = Kind::Duration {
            min: Duration::ZERO,
            max: Duration::from_hours(24),
        };
        assert!(expected(kind).starts_with("a duration from 0ms to 1d ("));
        let kind = Kind::Size {
            min: 1,
            max: 16 * 1024 * 1024,
        };
        assert!(expected(kind).starts_with("a size from 1b to 16mb ("));
    }

    #[test]
    fn a_secret_is_never_shown_and_an_address_only_without_its_credentials() {
        let secret = Setting::new("a.b", "B", Kind::Text, "It.").secret();
        assert_eq!(secret.shown("hunter2"), "<hidden>");
        let address = Setting::new("a.b", "B", Kind::Url, "It.");
        assert_eq!(
            address.shown("http://me:hunter2@host/"),
            "http://<hidden>@host/"
        );
        assert_eq!(
            Setting::new("a.b", "B", Kind::Text, "It.").shown("plain"),
            "plain"
        );
    }
}
