//! Parses numbers, durations, sizes and addresses, and formats them for messages.

use std::time::Duration;

use url::Url;

use super::HIDDEN;

/// Milliseconds per unit, the largest first.
const DURATION_UNITS: [(&str, u64); 5] = [
    ("d", 86_400_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1000),
    ("ms", 1),
];

/// Bytes per unit, the largest first.
const SIZE_UNITS: [(&str, u64); 4] = [("gb", 1 << 30), ("mb", 1 << 20), ("kb", 1 << 10), ("b", 1)];

/// The most decimals that a size may have, so that the calculation does not overflow.
const DECIMALS_MAX: usize = 9;

/// A whole number in plain digits: no sign, no exponent, no separators.
pub(super) fn integer(text: &str) -> Option<u64> {
    let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| text.parse().ok()).flatten()
}

/// A duration. Without a unit the number is milliseconds, as in the original Sampler.
pub fn duration(text: &str) -> Option<Duration> {
    let end = text.find(|c: char| !c.is_ascii_digit());
    let (number, unit) = text.split_at(end.unwrap_or(text.len()));
    let millis = match unit {
        "" => 1,
        unit => length_of(unit, &DURATION_UNITS)?,
    };
    integer(number)?
        .checked_mul(millis)
        .map(Duration::from_millis)
}

/// A number of bytes. Without a unit the number is bytes. With a unit it may have decimals; it is
/// rounded down to whole bytes, as in the original Sampler.
pub(super) fn size(text: &str) -> Option<u64> {
    let text = text.to_ascii_lowercase();
    let Some(end) = text.find(|c: char| !c.is_ascii_digit() && c != '.') else {
        return integer(&text);
    };
    let (number, unit) = text.split_at(end);
    let bytes = length_of(unit.trim_start_matches(' '), &SIZE_UNITS)?;
    let (whole, decimals) = number.split_once('.').unwrap_or((number, "0"));
    if decimals.len() > DECIMALS_MAX {
        return None;
    }
    let scale = 10_u128.pow(u32::try_from(decimals.len()).ok()?);
    let scaled = u128::from(integer(whole)?) * scale + u128::from(integer(decimals)?);
    u64::try_from(scaled * u128::from(bytes) / scale).ok()
}

fn length_of(unit: &str, units: &[(&str, u64)]) -> Option<u64> {
    units
        .iter()
        .find_map(|(name, length)| (*name == unit).then_some(*length))
}

/// The address of an HTTP server, to which paths can be added.
pub(super) fn url(text: &str) -> Option<Url> {
    let url = Url::parse(text).ok()?;
    let web = matches!(url.scheme(), "http" | "https") && url.has_host();
    let bare = url.username().is_empty()
        && url.password().is_none()
        && url.query().is_none()
        && url.fragment().is_none();
    (web && bare).then_some(url)
}

/// `text` without anything that could be credentials, even if it is not a valid address.
pub(super) fn without_credentials(text: &str) -> String {
    let (rest, query) = match text.split_once(['?', '#']) {
        Some((rest, _)) => (rest, format!("?{HIDDEN}")),
        None => (text, String::new()),
    };
    let shown = match rest.rsplit_once('@') {
        None => rest.to_owned(),
        Some((before, host)) => match before.split_once("://") {
            Some((scheme @ ("http" | "https"), _)) => format!("{scheme}://{HIDDEN}@{host}"),
            _ => format!("{HIDDEN}@{host}"),
        },
    };
    shown + &query
}

/// A duration in the largest unit that divides it.
pub(super) fn spell_duration(duration: Duration) -> String {
    spell(duration.as_millis(), &DURATION_UNITS)
}

/// A size in the largest unit that divides it.
pub(super) fn spell_size(bytes: u64) -> String {
    spell(bytes.into(), &SIZE_UNITS)
}

fn spell(amount: u128, units: &[(&str, u64)]) -> String {
    let counts = units.iter().map(|(unit, length)| {
        let length = u128::from(*length);
        (unit, amount / length, amount % length)
    });
    // The last unit is 1: it divides everything, and is the one of 0.
    let mut fitting = counts.filter(|(_, count, rest)| *count > 0 && *rest == 0);
    let (unit, count, _) = fitting.next().unwrap_or((&units[units.len() - 1].0, 0, 0));
    format!("{count}{unit}")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The texts between bars: also the empty one.
    fn assert_none<T>(texts: &str, parse: impl Fn(&str) -> Option<T>) {
        for text in texts.split('|') {
            assert!(parse(text).is_none(), "{text:?}");
        }
    }

    #[test]
    fn integers_are_plain_digits() {
        assert_eq!(integer("0"), Some(0));
        assert_eq!(integer("18446744073709551615"), Some(u64::MAX));
        assert_none("|-1|+1|1.0|1e3| 1|1_000|18446744073709551616|٣", integer);
    }

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
        assert_none(
            "|s|1.5s|-1s|1 s|1S|1w|1e3|18446744073709551615d|1٣s",
            duration,
        );
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
            assert_eq!(size(text), Some(bytes), "{text:?}");
        }
        assert_none(
            "|kb|1.5|.5kb|5.kb|-1kb|1tb|1.0.0kb|1.0000000001kb|1e3kb|5 ",
            size,
        );
        assert_none("18446744073709551615gb", size);
    }

    #[test]
    fn addresses_are_of_http_servers() {
        let fit = url("https://host:1/path").unwrap();
        assert_eq!(fit.as_str(), "https://host:1/path");
        assert_none("|host|host:9080|ftp://host|http://|mailto:a@b", url);
        assert_none(
            "http://h/?a|http://h/#a|http://me@host|http://me:secret@host",
            url,
        );
    }

    #[test]
    fn credentials_are_taken_out_of_anything() {
        for (text, shown) in [
            ("http://host/path", "http://host/path"),
            ("http://me:p@ss@host/path", "http://<hidden>@host/path"),
            ("me:pass@host", "<hidden>@host"),
            ("me:pa://ss@host", "<hidden>@host"),
            ("http://host/?key=secret", "http://host/?<hidden>"),
            ("http://host/#secret", "http://host/?<hidden>"),
        ] {
            assert_eq!(without_credentials(text), shown);
        }
    }

    proptest! {
        #[test]
        fn a_spelt_duration_reads_as_itself(millis in 0_u64..1 << 50) {
            let value = Duration::from_millis(millis);
            prop_assert_eq!(duration(&spell_duration(value)), Some(value));
        }

        #[test]
        fn a_spelt_size_reads_as_itself(bytes in any::<u64>()) {
            prop_assert_eq!(size(&spell_size(bytes)), Some(bytes));
        }

        #[test]
        fn no_text_is_too_odd(text in ".{0,40}") {
            let _ = (integer(&text), duration(&text), size(&text), url(&text));
            let shown = without_credentials(&(text + "s3cr3t@host"));
            prop_assert!(!shown.contains("s3cr3t"));
        }
    }
}
