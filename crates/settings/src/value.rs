//! The values that settings take, out of their texts.

use std::path::Path;
use std::time::Duration;

use sampler_domain::granularity::GranularityOverride;
use sampler_domain::{Granularities, Granularity, Units};
use sampler_service::oauth::{ALGORITHMS, Algorithm, Audiences, CaBundle};
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

    /// The value of a setting that is not set and has no default; none if it must have one.
    const UNSET: Option<Self> = None;

    /// The value that the text says.
    fn parse(text: &str) -> Option<Self>;
}

/// Implements [`Value`] of types: each with what a text must be, and a function that reads one.
macro_rules! values {
    (@secret) => { false };
    (@secret secret) => { true };
    ($($type:ty $(, $secret:ident)?: $expected:expr, $parse:expr;)+) => {$(
        impl $crate::value::Value for $type {
            const EXPECTED: &'static str = $expected;
            const IS_SECRET: bool = $crate::value::values!(@secret $($secret)?);

            fn parse(text: &str) -> Option<Self> {
                $parse(text)
            }
        }
    )+};
}
pub(crate) use values;

/// Declares texts: each with what it must be, and a function that knows.
macro_rules! texts {
    ($($type:ident: $expected:expr, $is_fine:expr;)+) => {$(
        pub(crate) struct $type(String);

        impl From<$type> for String {
            fn from(text: $type) -> Self {
                text.0
            }
        }

        $crate::value::values! {
            $type: $expected, |text: &str| $is_fine(text).then(|| $type(text.to_owned()));
        }
    )+};
}
pub(crate) use texts;

values! {
    u16: "a whole number", whole;
    u32: "a whole number", whole;
    usize: "a whole number", whole;
    bool: "true or false", |text: &str| text.parse().ok();
    Duration: "a duration (milliseconds, or a number with ms, s, m, h or d)", duration;
    Size: "a size (bytes, or a number with b, kb, mb or gb)", size;
    Url: "an http or https address with a host, without credentials, query or fragment",
        |text| web_address(text).filter(|url| url.query().is_none() && url.fragment().is_none());
    String: "text of at most 16384 bytes", short;
    SecretString, secret: String::EXPECTED, |text| short(text).map(SecretString::from);
    Algorithm: "HS256, HS384, HS512, RS256, RS384, RS512 or ES256",
        |name: &str| name.parse().ok().filter(|one| ALGORITHMS.contains(one));
    Audiences: "audiences, with commas between them, each with something before a final *",
        |text| Audiences::parse(text).ok();
    CaBundle: "a file of certificates as PEM that can be read",
        |path| CaBundle::read(Path::new(path)).ok();
    FindUrl, secret: "an http or https address with {id} in it", |text| FindUrl::new(text).ok();
    Units: r#"units of measures, as in memory = "MB", each measure once"#, |text: &str| text.parse().ok();
    Granularity: "minute, hour, day or month", |text: &str| text.parse().ok();
    Vec<GranularityOverride>: r#"a list such as [{"resource_id":"postgres","plan_id":"large","granularity":"hour"}], where plan_id may be left out, and none is repeated"#,
        overrides;
    LogFormat: "auto, json or text", |name| match name {
        "auto" => Some(LogFormat::Auto),
        "json" => Some(LogFormat::Json),
        "text" => Some(LogFormat::Text),
        _ => None,
    };
}

impl<T: Value> Value for Option<T> {
    const EXPECTED: &'static str = T::EXPECTED;
    const IS_SECRET: bool = T::IS_SECRET;

    const UNSET: Option<Self> = Some(None);

    fn parse(text: &str) -> Option<Self> {
        T::parse(text).map(Some)
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

fn overrides(text: &str) -> Option<Vec<GranularityOverride>> {
    let overrides: Vec<_> = serde_json::from_str(text).ok()?;
    let checked = Granularities::new(Granularity::Day, overrides.clone());
    checked.is_ok().then_some(overrides)
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
        assert!(<Url as Value>::parse("https://host:1/path").is_some());
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
            assert!(<Url as Value>::parse(text).is_none(), "{text:?}");
        }
    }
}
