//! The kinds of values that settings take: what a text must be, and how it is read.

use std::collections::HashMap;
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use percent_encoding::percent_decode_str;
use sampler_domain::granularity::GranularityOverride;
use sampler_domain::{Granularities, Granularity, Units};
use sampler_service::oauth::{ALGORITHMS, Algorithm, Audiences, CaBundle};
use sampler_service::telemetry::LogFormat;
use sampler_store_mongo::is_readable;
use sampler_upstream::FindUrl;
use secrecy::SecretString;
use tracing::level_filters::LevelFilter;
use url::Url;

/// The longest name of a MongoDB database, in bytes.
const DATABASE_NAME_MAX: usize = 63;

/// The longest name of a MongoDB collection that leaves room for the database's, in bytes.
const COLLECTION_NAME_MAX: usize = 128;

/// The least length of a key of the console's cookies, in bytes.
const COOKIE_KEY_MIN: usize = 32;

const DAY: Duration = Duration::from_hours(24);
const TEN_YEARS: Duration = Duration::from_hours(3_660 * 24);

/// Options in the address of the database that do not count, in lower case, because something of ours replaces them.
/// The driver is not shown them: it refuses some, and values that it cannot use.
const REPLACED: &str = "appname connecttimeoutms journal localthresholdms maxpoolsize maxstalenessseconds \
    readconcernlevel readpreference readpreferencetags retrywrites serverselectiontimeoutms serverselectiontryonce \
    sockettimeoutms timeoutms w waitqueuetimeoutms wtimeoutms";

/// A kind of value.
pub(crate) struct Kind<T> {
    /// What a text must be, in words.
    pub(crate) takes: &'static str,
    /// Whether no text of this kind may be shown.
    pub(crate) is_secret: bool,
    /// The value that a text says; none where it is not what it must be.
    pub(crate) parse: fn(&str) -> Option<T>,
}

impl<T: PartialOrd> Kind<T> {
    /// Reads a value that is at least one, and at most the other.
    pub(crate) fn within(&self, min: &str, max: &str) -> impl Fn(&str) -> Option<T> + use<T> {
        let parse = self.parse;
        let [min, max] = [min, max].map(|limit| parse(limit).expect("a valid limit"));
        move |text| parse(text).filter(|value| (&min..=&max).contains(&value))
    }
}

/// Declares kinds: each with what a text must be, and a function that reads one.
macro_rules! kinds {
    (@is_secret) => { false };
    (@is_secret secret) => { true };
    ($($name:ident: $($secret:ident)? <$type:ty> = $takes:expr, $parse:expr;)+) => {$(
        pub(crate) const $name: Kind<$type> = Kind {
            takes: $takes,
            is_secret: kinds!(@is_secret $($secret)?),
            parse: $parse,
        };
    )+};
}

kinds! {
    PORT: <u16> = "a whole number", whole;
    COUNT: <usize> = "a whole number", whole;
    FLAG: <bool> = "true or false", parsed;
    DURATION: <Duration> = "a duration (milliseconds, or a number with ms, s, m, h or d)", duration;
    SIZE: <usize> = "a size (bytes, or a number with b, kb, mb or gb)", size;
    TEXT: <String> = "text", parsed;
    SECRET: secret <SecretString> = "text", |text| Some(text.into());
    ADDRESS: <Url> = "an http or https address with a host, without credentials, query or fragment",
        |text| web_address(text).filter(|url| url.query().is_none() && url.fragment().is_none());
    WHOLE_ADDRESS: secret <Url> = "an http or https address with a host, without credentials", web_address;
    FIND_ADDRESS: secret <FindUrl> = "an http or https address with {id} in it", |text| FindUrl::new(text).ok();
    DATABASE: secret <DatabaseUri> = "an address as in mongodb://user:password@host/name: with the name of the database \
        (at most 63 bytes, without spaces, dots and any of / \\ \" $), : / ? # @ % in user and password \
        percent-encoded, and options that the driver knows", database;
    COLLECTION: <String> = "a name of a collection: at most 128 bytes, without $, not beginning with system. and \
        neither beginning nor ending with a dot", |name| is_collection(name).then(|| name.to_owned());
    LEVEL: <String> = "off, error, warn, info, debug or trace, also as in info,sampler_store=debug",
        |text| is_level(text).then(|| text.to_owned());
    LOG_FORMAT: <LogFormat> = "auto, json or text", |name| match name {
        "auto" => Some(LogFormat::Auto),
        "json" => Some(LogFormat::Json),
        "text" => Some(LogFormat::Text),
        _ => None,
    };
    UPSTREAM: <UpstreamKind> = "abacus or cloudevents", |name| match name {
        "abacus" => Some(UpstreamKind::Abacus),
        "cloudevents" => Some(UpstreamKind::CloudEvents),
        _ => None,
    };
    SOURCE: <String> = "a URI reference", |text| is_reference(text).then(|| text.to_owned());
    TYPE: <String> = "text without control characters",
        |text| (!text.trim().is_empty() && !text.contains(char::is_control)).then(|| text.to_owned());
    TOKEN: secret <SecretString> = "visible ASCII without spaces", |text| is_visible(text).then(|| text.into());
    HORIZON: <Horizon> = "forever, or a duration up to ten years (milliseconds, or a number with ms, s, m, h or d)",
        |text| match text {
            "forever" => Some(Horizon::Forever),
            text => duration(text).filter(|it| *it <= TEN_YEARS).map(Horizon::For),
        };
    ALGORITHM: <Algorithm> = "HS256, HS384, HS512, RS256, RS384, RS512 or ES256",
        |name| parsed(name).filter(|one| ALGORITHMS.contains(one));
    AUDIENCES: <Audiences> = "audiences, with commas between them, each with something before a final *",
        Audiences::parse;
    CERTIFICATES: <CaBundle> = "a file of certificates as PEM that can be read",
        |path| CaBundle::read(Path::new(path));
    COOKIE_KEYS: secret <SecretString> = "one or more keys of at least 32 bytes, with commas between",
        |keys| keys.split(',').all(|key| key.trim().len() >= COOKIE_KEY_MIN).then(|| keys.into());
    UNITS: <Units> = r#"units of measures, as in memory = "MB", each measure once"#, parsed;
    GRANULARITY: <Granularity> = "minute, hour, day or month", parsed;
    OVERRIDES: <Vec<GranularityOverride>> = r#"a list such as [{"resource_id":"postgres","plan_id":"large","granularity":"hour"}], where plan_id may be left out, and none is repeated"#,
        overrides;
    LEDGER_RETENTION: <LedgerRetention> = "granularities (minute, hour, day, month), each once with a duration \
        from 1h to 3660d, as in minute=32d,hour=93d", ledger_retention;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpstreamKind {
    Abacus,
    CloudEvents,
}

/// How long an upstream recognises a repeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Horizon {
    Forever,
    For(Duration),
}

/// The address of the database, taken apart.
#[derive(Clone, Debug)]
pub struct DatabaseUri {
    /// With credentials, without options that do not count.
    pub(crate) address: SecretString,
    pub(crate) database: String,
}

fn database(uri: &str) -> Option<DatabaseUri> {
    let (place, query) = uri.split_once('?').unwrap_or((uri, ""));
    let counts = |option: &&str| {
        let name = option.split_once('=').map_or(*option, |(name, _)| name);
        let name = percent_decode_str(name).decode_utf8_lossy().to_lowercase();
        !REPLACED.split(' ').any(|replaced| replaced == name)
    };
    let options: Vec<&str> = query.split(['&', ';']).filter(counts).collect();
    let address = format!("{place}?{}", options.join("&"));
    let address = address.trim_end_matches('?').to_owned();
    // Not in the driver's words, which repeat what it cannot read.
    if !is_readable(&address) {
        return None;
    }
    // The driver has seen that no other part has a slash.
    let database = percent_decode_str(place.splitn(4, '/').nth(3)?);
    let database = database.decode_utf8().ok()?.into_owned();
    let is_fine = (1..=DATABASE_NAME_MAX).contains(&database.len())
        && !database.contains(|c: char| c == '.' || c.is_control());
    is_fine.then(|| DatabaseUri {
        address: address.into(),
        database,
    })
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

fn ledger_retention(text: &str) -> Option<LedgerRetention> {
    let mut given = HashMap::new();
    for part in text.split(',') {
        let (granularity, kept) = part.split_once('=')?;
        let is_fine = |kept: &Duration| (Duration::from_hours(1)..=TEN_YEARS).contains(kept);
        let kept = duration(kept.trim()).filter(is_fine)?;
        let granularity: Granularity = parsed(granularity.trim())?;
        given.insert(granularity, kept).is_none().then_some(())?;
    }
    let or_days = |granularity, days| given.get(&granularity).copied().unwrap_or(days * DAY);
    Some(LedgerRetention {
        minute: or_days(Granularity::Minute, 400),
        hour: or_days(Granularity::Hour, 400),
        day: or_days(Granularity::Day, 400),
        month: or_days(Granularity::Month, 800),
    })
}

fn parsed<T: FromStr>(text: &str) -> Option<T> {
    text.parse().ok()
}

/// A whole number in plain digits: no sign, no exponent, no separators.
fn whole<T: FromStr>(text: &str) -> Option<T> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
    parsed(text).filter(|_| is_plain)
}

/// Without a unit a number is milliseconds, as in the original Sampler.
fn duration(text: &str) -> Option<Duration> {
    let (number, unit) = number_and_unit(text);
    let millis = match unit {
        "" | "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return None,
    };
    let millis = whole::<u64>(number)?.checked_mul(millis)?;
    Some(Duration::from_millis(millis))
}

/// A number of bytes. With a unit it may have decimals; it is rounded down to whole bytes, as in the
/// original Sampler.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the number is positive, and rounded down on purpose"
)]
fn size(text: &str) -> Option<usize> {
    let text = text.to_ascii_lowercase();
    let (number, unit) = number_and_unit(&text);
    let power = match unit {
        "" => return whole(number),
        "b" => 0,
        "kb" => 10,
        "mb" => 20,
        "gb" => 30,
        _ => return None,
    };
    let number = number.trim_end();
    let is_digit = |c: char| c.is_ascii_digit();
    let is_plain = number.starts_with(is_digit) && number.ends_with(is_digit);
    let number: f64 = parsed(number).filter(|_| is_plain)?;
    Some((number * f64::from(1 << power)) as usize)
}

fn number_and_unit(text: &str) -> (&str, &str) {
    let is_of_unit = |char: char| char.is_ascii_alphabetic();
    text.split_at(text.find(is_of_unit).unwrap_or(text.len()))
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

/// The log would take a mistyped level for the name of a module, and write nothing.
fn is_level(text: &str) -> bool {
    text.split(',').all(|directive| {
        let (module, level) = directive.split_once('=').unwrap_or(("all", directive));
        !module.is_empty() && !level.is_empty() && level.parse::<LevelFilter>().is_ok()
    })
}

fn is_collection(name: &str) -> bool {
    let is_forbidden = name.starts_with("system.")
        || name.starts_with('.')
        || name.ends_with('.')
        || name.contains(|c: char| c.is_control() || c == '$');
    !is_forbidden && name.len() <= COLLECTION_NAME_MAX
}

fn is_reference(text: &str) -> bool {
    let base = Url::parse("http://sampler.invalid/").expect("a plain address");
    let is_plain = |c: char| c.is_ascii_graphic() && !r#"<>"{}|\^`"#.contains(c);
    text.chars().all(is_plain) && base.join(text).is_ok()
}

fn is_visible(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_graphic())
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret;

    use super::*;

    /// These texts are of the kind, and the others are not.
    fn assert_taken<T>(kind: &Kind<T>, taken: &[&str], refused: &[&str]) {
        for (texts, is_taken) in [(taken, true), (refused, false)] {
            for text in texts {
                assert_eq!((kind.parse)(text).is_some(), is_taken, "{text:?}");
            }
        }
    }

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
        let refused = [
            "", "s", "1.5s", "-1s", "+1s", "1 s", "1S", "1w", "1e3", "1٣s",
        ];
        assert_taken(&DURATION, &[], &refused);
        assert_taken(&DURATION, &[], &["18446744073709551615d"]);
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
        let refused = [
            "", "kb", "1.5", ".5kb", "5.kb", "-1kb", "1tb", "1.0.0kb", "1e3kb", "5 ",
        ];
        assert_taken(&SIZE, &[], &refused);
    }

    #[test]
    fn a_text_is_of_its_kind_or_refused() {
        let refused = ["", "-1", "+1", "1.0", "1e3", " 1", "1_000", "65536", "٣"];
        assert_taken(&PORT, &["65535"], &refused);
        let refused = [
            "",
            "host",
            "host:9080",
            "ftp://host",
            "http://",
            "mailto:a@b",
        ];
        assert_taken(&ADDRESS, &["https://host:1/path"], &refused);
        let refused = [
            "http://h/?a",
            "http://h/#a",
            "http://me@host",
            "http://me:secret@host",
        ];
        assert_taken(&ADDRESS, &[], &refused);
        let taken = [
            "info",
            "WARN",
            "off",
            "info,sampler_store=debug",
            "error,a::b=trace,c=off",
        ];
        let refused = [
            "inof",
            "warning",
            "info,sampler_store",
            "info,a=loud",
            "info,,",
            "info,=info",
        ];
        assert_taken(&LEVEL, &taken, &refused);
        let long = "x".repeat(COLLECTION_NAME_MAX + 1);
        let refused = ["system.spans", "a$b", ".spans", "spans.", "a\0b", &long];
        assert_taken(
            &COLLECTION,
            &["spans", "abacus-spans", "billing.spans"],
            &refused,
        );
        let refused = [
            "30d",
            "hours=30d",
            "hour=",
            "hour=30d,",
            "hour=59m",
            "hour=3661d",
        ];
        assert_taken(&LEDGER_RETENTION, &["hour=1h,day=3660d"], &refused);
        assert_taken(
            &LEDGER_RETENTION,
            &[],
            &["hour=1d,hour=2d", "hour=30d day=1d"],
        );
    }

    #[test]
    fn finds_the_database_in_the_address() {
        for (uri, name) in [
            ("mongodb://localhost:27017/sampler", Some("sampler")),
            (
                "mongodb://me:p%2Fss@a:1,b:2/spans?replicaSet=rs0",
                Some("spans"),
            ),
            ("mongodb+srv://cluster.example/my%2Dspans", Some("my-spans")),
            ("mongodb://host", None),
            ("mongodb://host/", None),
            ("mongodb://host/?name=1", None),
            ("http://host/name", None),
            ("name", None),
            ("mongodb:///name", None),
            ("mongodb://host,/name", None),
            ("mongodb://host/name/more", None),
            ("mongodb://host/name.spans", None),
            ("mongodb://me:1/name@host", None),
            ("mongodb://me:1/name@host/other", None),
            ("mongodb://host/%ff", None),
            (
                &format!("mongodb://host/{}", "x".repeat(DATABASE_NAME_MAX + 1)),
                None,
            ),
        ] {
            let found = database(uri).map(|it| it.database);
            assert_eq!(found.as_deref(), name, "{uri}");
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
            assert_eq!(database(given).unwrap().address.expose_secret(), left);
        }
    }

    #[test]
    fn each_granularity_has_its_own_retention_and_keeps_its_default() {
        let retention = ledger_retention("hour=30d, day = 1h").unwrap();
        for (granularity, kept) in [
            (Granularity::Minute, 400 * DAY),
            (Granularity::Hour, 30 * DAY),
            (Granularity::Day, Duration::from_hours(1)),
            (Granularity::Month, 800 * DAY),
        ] {
            assert_eq!(retention.of(granularity), kept);
        }
    }
}
