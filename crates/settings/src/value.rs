//! The values that settings take, out of their texts.

use std::cmp::Ordering;
use std::path::Path;
use std::time::Duration;

use sampler_domain::granularity::{GranularityError, GranularityOverride};
use sampler_domain::units::UnitsError;
use sampler_domain::{Granularities, Granularity, Units};
use sampler_service::oauth::{Algorithm, Audiences, CaBundle};
use sampler_upstream::FindUrl;
use secrecy::SecretString;
use url::Url;

/// The longest text that any setting takes, in bytes.
const TEXT_MAX: usize = 16_384;

/// Milliseconds per unit.
const DURATION_UNITS: [(&str, u64); 6] = [
    ("", 1),
    ("ms", 1),
    ("s", 1000),
    ("m", 60_000),
    ("h", 3_600_000),
    ("d", 86_400_000),
];

/// Bytes per unit.
const SIZE_UNITS: [(&str, u64); 4] = [("b", 1), ("kb", 1 << 10), ("mb", 1 << 20), ("gb", 1 << 30)];

/// The most decimals that a size may have, so that the calculation does not overflow.
const DECIMALS_MAX: usize = 9;

/// A type that the text of a setting converts to.
pub(crate) trait Value: Sized {
    /// What a text must be, in words.
    const EXPECTED: &'static str;

    /// Whether no text of this type may be shown.
    const IS_SECRET: bool = false;

    /// The value that the text says.
    ///
    /// # Errors
    /// What was expected instead. It repeats nothing of a secret.
    fn parse(text: &str) -> Result<Self, String>;

    /// The value of a setting that is not set and has no default; none if it must have one.
    fn if_unset() -> Option<Self> {
        None
    }

    /// Which of two values is less, for settings with a range.
    fn compare(&self, _: &Self) -> Option<Ordering> {
        None
    }
}

/// Implements [`Value`] by a function that returns an `Option`.
macro_rules! value {
    ($type:ty, $expected:expr, $parse:expr) => {
        impl Value for $type {
            const EXPECTED: &'static str = $expected;

            fn parse(text: &str) -> Result<Self, String> {
                $parse(text).ok_or_else(|| Self::EXPECTED.to_owned())
            }
        }
    };
    ($type:ty, $expected:expr, $parse:expr, ordered) => {
        impl Value for $type {
            const EXPECTED: &'static str = $expected;

            fn parse(text: &str) -> Result<Self, String> {
                $parse(text).ok_or_else(|| Self::EXPECTED.to_owned())
            }

            fn compare(&self, other: &Self) -> Option<Ordering> {
                self.partial_cmp(other)
            }
        }
    };
}
pub(crate) use value;

value!(u16, "a whole number", whole, ordered);
value!(u32, "a whole number", whole, ordered);
value!(usize, "a whole number", whole, ordered);
value!(bool, "true or false", |text: &str| text.parse().ok());
value!(
    Duration,
    "a duration (milliseconds, or a number with ms, s, m, h or d)",
    duration,
    ordered
);
value!(
    Size,
    "a size (bytes, or a number with b, kb, mb or gb)",
    size,
    ordered
);
value!(
    Url,
    "an http or https address with a host, without credentials, query or fragment",
    url
);
value!(String, "text of at most 16384 bytes", text);
value!(
    Algorithm,
    "HS256, HS384, HS512, RS256, RS384, RS512 or ES256",
    Algorithm::from_name
);

impl Value for SecretString {
    const EXPECTED: &'static str = String::EXPECTED;
    const IS_SECRET: bool = true;

    fn parse(secret: &str) -> Result<Self, String> {
        String::parse(secret).map(Into::into)
    }
}

impl Value for Audiences {
    const EXPECTED: &'static str = "audiences, with commas between them";

    fn parse(text: &str) -> Result<Self, String> {
        Self::parse(text).map_err(str::to_owned)
    }
}

impl Value for CaBundle {
    const EXPECTED: &'static str = "a file of certificates as PEM";

    fn parse(path: &str) -> Result<Self, String> {
        Self::read(Path::new(path)).map_err(|error| format!("certificates: {error}"))
    }
}

impl Value for FindUrl {
    const EXPECTED: &'static str = "an http or https address with {id} in it";
    const IS_SECRET: bool = true;

    fn parse(text: &str) -> Result<Self, String> {
        Self::new(text).map_err(|error| format!("{}: it {error}", Self::EXPECTED))
    }
}

impl Value for Units {
    const EXPECTED: &'static str = r#"units of measures, as in memory = "MB""#;

    fn parse(text: &str) -> Result<Self, String> {
        text.parse().map_err(|error: UnitsError| error.to_string())
    }
}

impl Value for Granularity {
    const EXPECTED: &'static str = "minute, hour, day or month";

    fn parse(text: &str) -> Result<Self, String> {
        text.parse()
            .map_err(|error: GranularityError| error.to_string())
    }
}

impl Value for Vec<GranularityOverride> {
    const EXPECTED: &'static str = r#"a list such as [{"resource_id":"postgres","plan_id":"large","granularity":"hour"}], where plan_id may be left out"#;

    fn parse(text: &str) -> Result<Self, String> {
        let told = |error: &dyn std::fmt::Display| format!("{}: {error}", Self::EXPECTED);
        let overrides: Self = serde_json::from_str(text).map_err(|error| told(&error))?;
        match Granularities::new(Granularity::Day, overrides.clone()) {
            Ok(_) => Ok(overrides),
            Err(error) => Err(told(&error)),
        }
    }
}

impl<T: Value> Value for Option<T> {
    const EXPECTED: &'static str = T::EXPECTED;
    const IS_SECRET: bool = T::IS_SECRET;

    fn parse(text: &str) -> Result<Self, String> {
        T::parse(text).map(Some)
    }

    fn if_unset() -> Option<Self> {
        Some(None)
    }

    fn compare(&self, other: &Self) -> Option<Ordering> {
        self.as_ref()?.compare(other.as_ref()?)
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
    let is_plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_plain.then(|| text.parse().ok()).flatten()
}

/// A duration. Without a unit the number is milliseconds, as in the original Sampler.
pub(crate) fn duration(text: &str) -> Option<Duration> {
    let (number, unit) = parts(text, |c| !c.is_ascii_digit());
    let millis = length_of(unit, &DURATION_UNITS)?;
    whole::<u64>(number)?
        .checked_mul(millis)
        .map(Duration::from_millis)
}

/// A number of bytes. With a unit it may have decimals; it is rounded down to whole bytes, as in the
/// original Sampler.
fn size(text: &str) -> Option<Size> {
    let text = text.to_ascii_lowercase();
    let (number, unit) = parts(&text, |c| !c.is_ascii_digit() && c != '.');
    if unit.is_empty() {
        return whole(number).map(Size);
    }
    let bytes = length_of(unit.trim_start_matches(' '), &SIZE_UNITS)?;
    let (integer, decimals) = number.split_once('.').unwrap_or((number, "0"));
    if decimals.len() > DECIMALS_MAX {
        return None;
    }
    let scale = 10_u128.pow(u32::try_from(decimals.len()).ok()?);
    let scaled = u128::from(whole::<u64>(integer)?) * scale + whole::<u128>(decimals)?;
    let bytes = scaled * u128::from(bytes) / scale;
    usize::try_from(bytes).ok().map(Size)
}

/// A number and its unit.
fn parts(text: &str, is_of_unit: fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(is_of_unit).unwrap_or(text.len()))
}

fn length_of(unit: &str, units: &[(&str, u64)]) -> Option<u64> {
    let found = units.iter().find(|(name, _)| *name == unit);
    found.map(|(_, length)| *length)
}

/// The address of an HTTP server, to which paths can be added.
fn url(text: &str) -> Option<Url> {
    web_address(text).filter(|url| url.query().is_none() && url.fragment().is_none())
}

/// An http or https address with a host, without credentials.
pub(crate) fn web_address(text: &str) -> Option<Url> {
    let url = Url::parse(text).ok()?;
    let is_web = matches!(url.scheme(), "http" | "https") && url.has_host();
    let has_credentials = !url.username().is_empty() || url.password().is_some();
    (is_web && !has_credentials).then_some(url)
}

fn text(text: &str) -> Option<String> {
    (text.len() <= TEXT_MAX).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_milliseconds_or_have_a_unit() {
        for (text, millis) in [
            ("5270400000", 5_270_400_000),
            ("1500ms", 1500),
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
        for text in ["", "s", "1.5s", "-1s", "1 s", "1S", "1w", "1e3", "1٣s"] {
            assert_eq!(duration(text), None, "{text:?}");
        }
        assert_eq!(duration("18446744073709551615d"), None);
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
            "1.0000000001kb",
            "18446744073709551615gb",
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
        assert!(url("https://host:1/path").is_some());
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
            assert_eq!(url(text), None, "{text:?}");
        }
    }
}
