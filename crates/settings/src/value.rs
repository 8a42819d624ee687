//! The values that settings take, out of their texts.

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use percent_encoding::percent_decode_str;
use sampler_domain::granularity::GranularityOverride;
use sampler_domain::{Granularities, Granularity, Units};
use sampler_service::oauth::{ALGORITHMS, Algorithm, Audiences, CaBundle};
use sampler_service::telemetry::LogFormat;
use sampler_store_mongo::is_readable;
use sampler_upstream::FindUrl;
use secrecy::SecretString;
use url::Url;

/// The longest text that any setting takes, in bytes.
const TEXT_MAX: usize = 16_384;

/// The longest name of a MongoDB database, in bytes.
const DATABASE_NAME_MAX: usize = 63;

const TEN_YEARS: Duration = Duration::from_hours(3_660 * 24);

/// Milliseconds per unit. Without a unit a number is milliseconds, as in the original Sampler.
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

/// Options in the address of the database that do not count, in lower case, because something of ours replaces them.
/// The driver is not shown them: it refuses some, and values that it cannot use.
const REPLACED: [&str; 17] = [
    "appname",
    "connecttimeoutms",
    "journal",
    "localthresholdms",
    "maxpoolsize",
    "maxstalenessseconds",
    "readconcernlevel",
    "readpreference",
    "readpreferencetags",
    "retrywrites",
    "serverselectiontimeoutms",
    "serverselectiontryonce",
    "sockettimeoutms",
    "timeoutms",
    "w",
    "waitqueuetimeoutms",
    "wtimeoutms",
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
        impl Value for $type {
            const EXPECTED: &'static str = $expected;
            const IS_SECRET: bool = values!(@secret $($secret)?);

            fn parse(text: &str) -> Option<Self> {
                $parse(text)
            }
        }
    )+};
}

values! {
    u16: "a whole number", whole;
    u32: "a whole number", whole;
    usize: "a whole number", whole;
    bool: "true or false", |text: &str| text.parse().ok();
    Duration: "a duration (milliseconds, or a number with ms, s, m, h or d)", duration;
    Size: "a size (bytes, or a number with b, kb, mb or gb)", size;
    Url: "an http or https address with a host, without credentials, query or fragment",
        |text| web_address(text).filter(|url| url.query().is_none() && url.fragment().is_none());
    String: "text of at most 16384 bytes", |text| short(text).map(str::to_owned);
    SecretString, secret: String::EXPECTED, |text| short(text).map(SecretString::from);
    Algorithm: "HS256, HS384, HS512, RS256, RS384, RS512 or ES256",
        |name: &str| name.parse().ok().filter(|one| ALGORITHMS.contains(one));
    Audiences: "audiences, with commas between them, each with something before a final *",
        Audiences::parse;
    CaBundle: "a file of certificates as PEM that can be read",
        |path| CaBundle::read(Path::new(path));
    DatabaseUri, secret: "an address as in mongodb://user:password@host/name: with the name of the database (at most 63 \
        bytes, without spaces and any of / \\ . \" $ * < > : | ? @), : / ? # @ % in user and password percent-encoded, and \
        options that the driver knows", DatabaseUri::read;
    UpstreamUrl, secret: "an http or https address with a host, without credentials",
        |text| web_address(text).map(UpstreamUrl);
    FindUrl, secret: "an http or https address with {id} in it", |text| FindUrl::new(text).ok();
    Units: r#"units of measures, as in memory = "MB", each measure once"#, |text: &str| text.parse().ok();
    Granularity: "minute, hour, day or month", |text: &str| text.parse().ok();
    Vec<GranularityOverride>: r#"a list such as [{"resource_id":"postgres","plan_id":"large","granularity":"hour"}], where plan_id may be left out, and none is repeated"#,
        overrides;
    LedgerRetention: "granularities (minute, hour, day, month), each once with a duration from 1h to 3660d, as in \
        minute=32d,hour=93d", LedgerRetention::read;
    Horizon: "forever, or a duration up to ten years (milliseconds, or a number with ms, s, m, h or d)",
        |text| match text {
            "forever" => Some(Horizon::Forever),
            text => duration(text).filter(|it| *it <= TEN_YEARS).map(Horizon::For),
        };
    UpstreamKind: "abacus or cloudevents", |name| match name {
        "abacus" => Some(UpstreamKind::Abacus),
        "cloudevents" => Some(UpstreamKind::CloudEvents),
        _ => None,
    };
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpstreamKind {
    Abacus,
    CloudEvents,
}

/// An address whose path and query may hold a key.
#[derive(Clone, Debug)]
pub struct UpstreamUrl(pub Url);

/// How long an upstream recognises a repeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Horizon {
    Forever,
    For(Duration),
}

/// A number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
pub(crate) struct Size(usize);

impl From<Size> for usize {
    fn from(size: Size) -> Self {
        size.0
    }
}

/// The address of the database, taken apart.
#[derive(Clone, Debug)]
pub struct DatabaseUri {
    /// With credentials, without options that do not count.
    pub(crate) address: SecretString,
    pub(crate) database: String,
}

impl DatabaseUri {
    fn read(uri: &str) -> Option<Self> {
        let database = database_name(uri)?;
        let (place, query) = uri.split_once('?').unwrap_or((uri, ""));
        let counts = |option: &&str| {
            let name = option.split_once('=').map_or(*option, |(name, _)| name);
            let name = percent_decode_str(name).decode_utf8_lossy();
            !REPLACED.contains(&name.to_lowercase().as_str())
        };
        let options: Vec<&str> = query.split(['&', ';']).filter(counts).collect();
        let address = format!("{place}?{}", options.join("&"));
        let address = address.trim_end_matches('?').to_owned();
        // Not in the driver's words, which repeat what it cannot read.
        is_readable(&address).then(|| Self {
            address: address.into(),
            database,
        })
    }
}

/// The name of the database in the path of its address. Several hosts make it an address that no URL parser takes,
/// so it is taken apart by hand; the driver looks at the rest.
fn database_name(uri: &str) -> Option<String> {
    let mut schemes = ["mongodb://", "mongodb+srv://"].into_iter();
    let rest = schemes.find_map(|scheme| uri.strip_prefix(scheme))?;
    let (place, _options) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, path) = place.split_once('/')?;
    let hosts = authority.rsplit_once('@').map_or(authority, |it| it.1);
    let name = percent_decode_str(path).decode_utf8().ok()?;
    // An @ is a name like any other to MongoDB. But here it is the rest of a password with a slash.
    let is_forbidden = |c: char| c.is_control() || r#"/\. "$*<>:|?@"#.contains(c);
    let is_fine = (1..=DATABASE_NAME_MAX).contains(&name.len()) && !name.contains(is_forbidden);
    (is_fine && !hosts.split(',').any(str::is_empty)).then(|| name.into_owned())
}

/// How long an entry is kept whose target is sampled by the minute, the hour, the day or the month.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LedgerRetention {
    pub minute: Duration,
    pub hour: Duration,
    pub day: Duration,
    pub month: Duration,
}

impl LedgerRetention {
    fn read(text: &str) -> Option<Self> {
        let mut given = HashMap::new();
        for part in text.split(',') {
            let (granularity, kept) = part.split_once('=')?;
            let is_fine = |kept: &Duration| (Duration::from_hours(1)..=TEN_YEARS).contains(kept);
            let kept = duration(kept.trim()).filter(is_fine)?;
            let granularity: Granularity = granularity.trim().parse().ok()?;
            given.insert(granularity, kept).is_none().then_some(())?;
        }
        let or_days = |granularity, days: u64| {
            let given = given.get(&granularity).copied();
            given.unwrap_or(Duration::from_hours(24 * days))
        };
        Some(Self {
            minute: or_days(Granularity::Minute, 400),
            hour: or_days(Granularity::Hour, 400),
            day: or_days(Granularity::Day, 400),
            month: or_days(Granularity::Month, 800),
        })
    }

    /// How long the entry of a usage is kept whose target is sampled so.
    pub fn of(self, granularity: Granularity) -> Duration {
        match granularity {
            Granularity::Minute => self.minute,
            Granularity::Hour => self.hour,
            Granularity::Day => self.day,
            Granularity::Month => self.month,
        }
    }
}

/// A whole number in plain digits: no sign, no exponent, no separators.
fn whole<T: std::str::FromStr>(text: &str) -> Option<T> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_plain)
}

fn duration(text: &str) -> Option<Duration> {
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
    let number = number.trim_end();
    let (integer, decimals) = number.split_once('.').unwrap_or((number, "0"));
    let millionths = format!("{:0<6}", whole::<u32>(decimals).map(|_| decimals)?);
    let part = bytes * whole::<u64>(millionths.get(..6)?)? / 1_000_000;
    let bytes = whole::<u64>(integer)?.checked_mul(bytes)?;
    usize::try_from(bytes.checked_add(part)?).ok().map(Size)
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
fn web_address(text: &str) -> Option<Url> {
    let url = Url::parse(text).ok()?;
    let is_web = matches!(url.scheme(), "http" | "https") && url.has_host();
    let has_credentials = !url.username().is_empty() || url.password().is_some();
    (is_web && !has_credentials).then_some(url)
}

fn short(text: &str) -> Option<&str> {
    (text.len() <= TEXT_MAX).then_some(text)
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret;

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
            let read = duration(text).unwrap();
            assert_eq!(read, Duration::from_millis(millis), "{text}");
        }
        let too_long = "18446744073709551615d";
        for text in [
            "", "s", "1.5s", "-1s", "+1s", "1 s", "1S", "1w", "1e3", "1٣s", too_long,
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
        let too_large = "99999999999gb";
        for text in [
            "", "kb", "1.5", ".5kb", "5.kb", "-1kb", "1tb", "1.0.0kb", "1e3kb", "5 ", too_large,
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

    #[test]
    fn finds_the_database_in_the_address() {
        for (uri, name) in [
            ("mongodb://localhost:27017/sampler", "sampler"),
            ("mongodb://me:p%2Fss@a:1,b:2/spans?replicaSet=rs0", "spans"),
            ("mongodb+srv://cluster.example/my%2Dspans", "my-spans"),
            ("mongodb://me:p@ss@host/spans", "spans"),
        ] {
            assert_eq!(database_name(uri).as_deref(), Some(name), "{uri}");
        }
        for uri in [
            "mongodb://host",
            "mongodb://host/",
            "mongodb://host/?name=1",
            "http://host/name",
            "name",
            "mongodb:///name",
            "mongodb://host,/name",
            "mongodb://host/name/more",
            "mongodb://host/name.spans",
            "mongodb://me:1/name@host",
            "mongodb://host/%ff",
            &format!("mongodb://host/{}", "x".repeat(DATABASE_NAME_MAX + 1)),
        ] {
            assert!(database_name(uri).is_none(), "{uri}");
        }
    }

    #[test]
    fn what_does_not_count_is_not_shown_to_the_driver() {
        for (given, left) in [
            ("mongodb://a/b", "mongodb://a/b"),
            ("mongodb://a/b?socketTimeoutMS=x&w=1", "mongodb://a/b"),
            (
                "mongodb://u:p%3F@a,c/b?authSource=x&TIMEOUTms=1;replicaSet=rs0&max%50oolSize=0",
                "mongodb://u:p%3F@a,c/b?authSource=x&replicaSet=rs0",
            ),
        ] {
            let uri = DatabaseUri::parse(given).unwrap();
            assert_eq!(uri.address.expose_secret(), left);
        }
    }

    #[test]
    fn each_granularity_has_its_own_retention_and_keeps_its_default() {
        let days = |days: u64| Duration::from_hours(24 * days);
        let retention = LedgerRetention::parse("hour=30d, day = 1h").unwrap();
        for (granularity, kept) in [
            (Granularity::Minute, days(400)),
            (Granularity::Hour, days(30)),
            (Granularity::Day, Duration::from_hours(1)),
            (Granularity::Month, days(800)),
        ] {
            assert_eq!(retention.of(granularity), kept);
        }
        for text in [
            "30d",
            "hours=30d",
            "hour=",
            "hour=30d,",
            "hour=59m",
            "hour=3661d",
            "hour=1d,hour=2d",
            "hour=30d day=1d",
        ] {
            assert!(LedgerRetention::parse(text).is_none(), "{text}");
        }
    }
}
