//! The values that settings take, out of their texts.

use std::fmt::Display;
use std::path::Path;
use std::time::Duration;

use sampler_domain::granularity::GranularityOverride;
use sampler_domain::{Granularities, Granularity, Units};
use sampler_service::oauth::{Algorithm, Audiences, CaBundle};
use sampler_service::telemetry::LogFormat;
use sampler_upstream::FindUrl;
use secrecy::SecretString;
use url::Url;

/// The longest text that any setting takes, in bytes.
const TEXT_MAX: usize = 16_384;

/// Milliseconds per unit.
const DURATION_UNITS: [(&str, u64); 6] = [
    ("", 1),
    ("ms", 1),
    ("s", 1_000),
    ("m", 60_000),
    ("h", 3_600_000),
    ("d", 86_400_000),
];

/// Bytes per unit.
const SIZE_UNITS: [(&str, u64); 5] = [
    ("", 1),
    ("b", 1),
    ("kb", 1 << 10),
    ("mb", 1 << 20),
    ("gb", 1 << 30),
];

/// A type that the text of a setting converts to.
pub(crate) trait Value: Sized {
    /// What a text must be, in words.
    const EXPECTED: &'static str;

    /// Whether no text of this type may be shown.
    const IS_SECRET: bool = false;

    /// The value that the text says.
    ///
    /// # Errors
    /// What is wrong beyond that, or nothing. It repeats nothing of a secret.
    fn parse(text: &str) -> Result<Self, String>;

    /// The value of a setting that is not set and has no default; none if it must have one.
    fn if_unset() -> Option<Self> {
        None
    }
}

/// What a function that parses returns.
pub(crate) trait Parsed<T> {
    fn result(self) -> Result<T, String>;
}

impl<T> Parsed<T> for Option<T> {
    fn result(self) -> Result<T, String> {
        self.ok_or_else(String::new)
    }
}

impl<T, E: Display> Parsed<T> for Result<T, E> {
    fn result(self) -> Result<T, String> {
        self.map_err(|error| error.to_string())
    }
}

/// Implements [`Value`] by a function that returns an `Option` or a `Result`.
macro_rules! value {
    ($type:ty, $expected:expr, $parse:expr) => {
        $crate::value::value!($type, $expected, $parse, false);
    };
    (secret $type:ty, $expected:expr, $parse:expr) => {
        $crate::value::value!($type, $expected, $parse, true);
    };
    ($type:ty, $expected:expr, $parse:expr, $is_secret:literal) => {
        impl $crate::value::Value for $type {
            const EXPECTED: &'static str = $expected;
            const IS_SECRET: bool = $is_secret;

            fn parse(text: &str) -> Result<Self, String> {
                $crate::value::Parsed::result($parse(text))
            }
        }
    };
}
pub(crate) use value;

/// Declares a text that must be fine by a function.
macro_rules! text {
    ($type:ident, $expected:expr, $is_fine:expr) => {
        pub(crate) struct $type(String);

        impl From<$type> for String {
            fn from(text: $type) -> Self {
                text.0
            }
        }

        $crate::value::value!($type, $expected, |text: &str| {
            $is_fine(text).then(|| $type(text.to_owned()))
        });
    };
}
pub(crate) use text;

value!(u16, "a whole number", whole);
value!(u32, "a whole number", whole);
value!(usize, "a whole number", whole);
value!(bool, "true or false", |text: &str| text.parse().ok());
value!(
    Duration,
    "a duration (milliseconds, or a number with ms, s, m, h or d)",
    duration
);
value!(
    Size,
    "a size (bytes, or a number with b, kb, mb or gb)",
    size
);
value!(
    Url,
    "an http or https address with a host, without credentials, query or fragment",
    |text| web_address(text).filter(|url| url.query().is_none() && url.fragment().is_none())
);
value!(String, "text of at most 16384 bytes", short);
value!(secret SecretString, String::EXPECTED, |secret| short(secret).map(SecretString::from));
value!(
    Algorithm,
    "HS256, HS384, HS512, RS256, RS384, RS512 or ES256",
    Algorithm::from_name
);
value!(
    Audiences,
    "audiences, with commas between them",
    Audiences::parse
);
value!(CaBundle, "a file of certificates as PEM", |path| {
    CaBundle::read(Path::new(path))
});
value!(secret FindUrl, "an http or https address with {id} in it", FindUrl::new);
value!(
    Units,
    r#"units of measures, as in memory = "MB""#,
    str::parse::<Units>
);
value!(Granularity, "minute, hour, day or month", |text: &str| text
    .parse()
    .ok());
value!(
    Vec<GranularityOverride>,
    r#"a list such as [{"resource_id":"postgres","plan_id":"large","granularity":"hour"}], where plan_id may be left out"#,
    |text| {
        let overrides: Self = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let checked = Granularities::new(Granularity::Day, overrides.clone());
        checked
            .map(|_| overrides)
            .map_err(|error| error.to_string())
    }
);
value!(LogFormat, "auto, json or text", |name| match name {
    "auto" => Some(LogFormat::Auto),
    "json" => Some(LogFormat::Json),
    "text" => Some(LogFormat::Text),
    _ => None,
});

impl<T: Value> Value for Option<T> {
    const EXPECTED: &'static str = T::EXPECTED;
    const IS_SECRET: bool = T::IS_SECRET;

    fn parse(text: &str) -> Result<Self, String> {
        T::parse(text).map(Some)
    }

    fn if_unset() -> Option<Self> {
        Some(None)
    }
}

/// A number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
pub(crate) struct Size(usize);

impl From<Size> for usize {
    fn from(size: Size) -> Self {
        size.0
    }
}

/// A whole number in plain digits: no sign, no exponent, no separators.
fn whole<T: std::str::FromStr>(text: &str) -> Option<T> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_plain)
}

/// A duration. Without a unit the number is milliseconds, as in the original Sampler.
pub(crate) fn duration(text: &str) -> Option<Duration> {
    let (number, millis) = parts(text, &DURATION_UNITS)?;
    let millis = whole::<u64>(number)?.checked_mul(millis)?;
    Some(Duration::from_millis(millis))
}

/// A number of bytes. With a unit it may have decimals; it is rounded down to whole bytes, as in the
/// original Sampler.
fn size(text: &str) -> Option<Size> {
    let text = text.to_ascii_lowercase();
    let (number, bytes) = parts(&text, &SIZE_UNITS)?;
    if number == text {
        return whole(number).map(Size);
    }
    let number = number.trim_end_matches(' ');
    let (integer, decimals) = number.split_once('.').unwrap_or((number, "0"));
    let part: f64 = format!("0.{}", whole::<u32>(decimals).map(|_| decimals)?)
        .parse()
        .ok()?;
    // A power of two times a double is exact.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "less than a unit"
    )]
    let part = (part * bytes as f64) as u64;
    let bytes = whole::<u64>(integer)?
        .checked_mul(bytes)?
        .checked_add(part)?;
    usize::try_from(bytes).ok().map(Size)
}

/// A number, and the factor of its unit.
fn parts<'t>(text: &'t str, units: &[(&str, u64)]) -> Option<(&'t str, u64)> {
    let is_of_unit = |char: char| char.is_ascii_alphabetic();
    let (number, unit) = text.split_at(text.find(is_of_unit).unwrap_or(text.len()));
    let (_, factor) = units.iter().find(|(name, _)| *name == unit)?;
    Some((number, *factor))
}

/// An http or https address with a host, without credentials.
pub(crate) fn web_address(text: &str) -> Option<Url> {
    let url = Url::parse(text).ok()?;
    let is_web = matches!(url.scheme(), "http" | "https") && url.has_host();
    let has_credentials = !url.username().is_empty() || url.password().is_some();
    (is_web && !has_credentials).then_some(url)
}

fn short(text: &str) -> Option<String> {
    (text.len() <= TEXT_MAX).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_milliseconds_or_have_a_unit() {
        for (text, millis) in [
            ("5270400000", 5_270_400_000),
            ("1500ms", 1_500),
            ("90s", 90_000),
            ("5m", 300_000),
            ("12h", 43_200_000),
            ("61d", 5_270_400_000),
        ] {
            assert_eq!(
                duration(text),
                Some(Duration::from_millis(millis)),
                "{text}"
            );
        }
        for text in [
            "",
            "s",
            "1.5s",
            "-1s",
            "+1s",
            "1 s",
            "1S",
            "1w",
            "1e3",
            "1٣s",
            "18446744073709551615d",
        ] {
            assert_eq!(duration(text), None, "{text:?}");
        }
    }

    #[test]
    fn sizes_are_bytes_or_have_a_unit() {
        for (text, bytes) in [
            ("512000", 512_000),
            ("512000b", 512_000),
            ("500kb", 512_000),
            ("500KB", 512_000),
            ("500 kb", 512_000),
            ("1.5mb", 1_572_864),
            ("0.0001kb", 0),
            ("2gb", 2_147_483_648),
        ] {
            assert_eq!(size(text), Some(Size(bytes)), "{text:?}");
        }
        for text in [
            "",
            "kb",
            "1.5",
            ".5kb",
            "5.kb",
            "-1kb",
            "1tb",
            "1.0.0kb",
            "1e3kb",
            "5 ",
            "99999999999gb",
        ] {
            assert_eq!(size(text), None, "{text:?}");
        }
    }

    #[test]
    fn numbers_are_plain_digits() {
        assert_eq!(whole::<u16>("65535"), Some(65_535));
        for text in ["", "-1", "+1", "1.0", "1e3", " 1", "1_000", "65536", "٣"] {
            assert_eq!(whole::<u16>(text), None, "{text:?}");
        }
    }

    #[test]
    fn addresses_are_of_http_servers_and_hold_no_credentials() {
        assert!(<Url as Value>::parse("https://host:1/path").is_ok());
        for text in [
            "",
            "host",
            "host:9080",
            "ftp://host",
            "http://",
            "mailto:a@b",
            "http://h/?a",
            "http://h/#a",
            "http://me@host",
            "http://me:secret@host",
        ] {
            assert!(<Url as Value>::parse(text).is_err(), "{text:?}");
        }
    }
}
