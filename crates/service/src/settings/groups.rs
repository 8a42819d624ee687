//! The settings that both programs have, but for those of the database, and what is made of them.

use std::path::PathBuf;
use std::time::Duration;

use tracing_subscriber::EnvFilter;

use super::reader::Reader;
use super::setting::{Kind, Setting};
use crate::http::{Tls, TlsError, TlsFiles};

/// A year: nothing that is waited for or looked back on is longer.
const LONGEST: Duration = Duration::from_hours(366 * 24);

const DAY: Duration = Duration::from_hours(24);
const NO_TIME: Duration = Duration::ZERO;
pub(super) const BRIEF: Duration = Duration::from_millis(100);

/// Where a program listens. The two programs have different ports.
pub const fn http(default_port: &'static str) -> [Setting; 2] {
    [
        Setting::new(
            "http.port",
            "PORT",
            Kind::Integer {
                min: 0,
                max: 65_535,
            },
            "The port to listen on; 0 lets the system choose one.",
        )
        .or(default_port),
        Setting::new(
            "http.host",
            "HOST",
            Kind::Text,
            "The name or address of the interface to listen on; 0.0.0.0 is all of them.",
        )
        .or("0.0.0.0"),
    ]
}

/// TLS on the port of a program.
pub const TLS: [Setting; 3] = [
    Setting::new(
        "tls.cert_file",
        "SAMPLER_TLS_CERT_FILE",
        Kind::Text,
        "A file with the certificate of this program, and those between it and its authority, as \
         PEM. With it, the port speaks TLS and nothing else. It is read again when it changes.",
    ),
    Setting::new(
        "tls.key_file",
        "SAMPLER_TLS_KEY_FILE",
        Kind::Text,
        "A file with the key of that certificate, as PEM, without a password.",
    ),
    Setting::new(
        "tls.client_ca_file",
        "SAMPLER_TLS_CLIENT_CA_FILE",
        Kind::Text,
        "A file with the authorities of clients, as PEM. With it, only clients that show a \
         certificate of one of them are let in; they need a token all the same.",
    ),
];

/// How spans are cut into intervals.
pub const SAMPLING: [Setting; 3] = [
    Setting::new(
        "sampling.dimension",
        "SAMPLER_DIMENSION",
        Kind::Choice(&["minute", "hour", "day", "month"]),
        "How long an interval is: the finest window that reports get right. All in UTC.",
    )
    .or("day"),
    Setting::new(
        "sampling.dimension_overrides",
        "SAMPLER_DIMENSION_OVERRIDES",
        Kind::Text,
        "Other dimensions for some resources, or for some plans of them.",
    ),
    Setting::new(
        "sampling.stop_grace",
        "SAMPLER_STOP_GRACE",
        Kind::Duration {
            min: NO_TIME,
            max: DAY,
        },
        "How long after its end an interval of a span that has not stopped waits for a late stop.",
    )
    .or("0ms"),
];

/// How far the timestamp of an event may be from the present.
pub const SLACK: [Setting; 2] = [
    Setting::new(
        "slack.past",
        "SAMPLER_SLACK_PAST_INTERVAL",
        Kind::Duration {
            min: NO_TIME,
            max: LONGEST,
        },
        "How far in the past an event may be dated.",
    )
    .or("61d"),
    Setting::new(
        "slack.future",
        "SAMPLER_SLACK_FUTURE_INTERVAL",
        Kind::Duration {
            min: NO_TIME,
            max: LONGEST,
        },
        "How far in the future an event may be dated.",
    )
    .or("61d"),
];

/// When a program counts as well.
pub const HEALTH: [Setting; 1] = [Setting::new(
    "health.threshold",
    "HEALTHCHECK_THRESHOLD",
    Kind::Duration {
        min: BRIEF,
        max: DAY,
    },
    "How long a program may be without progress before it counts as unhealthy.",
)
.or("60s")];

/// What is logged, and how.
pub const LOG: [Setting; 2] = [
    Setting::new(
        "log.format",
        "LOG_FORMAT",
        Kind::Choice(&["auto", "json", "text"]),
        "How lines are written; auto is text on a terminal and JSON elsewhere.",
    )
    .or("auto"),
    Setting::new(
        "log.level",
        "LOG_LEVEL",
        Kind::Text,
        "What is logged: error, warn, info, debug or trace, also per module, as in \
         info,sampler_store=debug.",
    )
    .or("info"),
];

/// Where a program listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpSettings {
    /// The name or address of the interface.
    pub host: String,
    /// The port; 0 lets the system choose.
    pub port: u16,
}

impl HttpSettings {
    /// Reads the group [`http()`].
    pub fn read(reader: &mut Reader<'_>) -> Self {
        Self {
            host: reader.text("http.host"),
            port: reader.integer("http.port"),
        }
    }
}

/// Reads the group [`TLS`]; nothing where it is not wanted, or cannot be used.
pub fn read_tls(reader: &mut Reader<'_>) -> Option<Tls> {
    let path = |key| reader.optional_text(key).map(PathBuf::from);
    let (certificate, key) = (path("tls.cert_file"), path("tls.key_file"));
    let client_authorities = path("tls.client_ca_file");
    let (Some(certificate), Some(key)) = (&certificate, &key) else {
        if certificate.is_some() || key.is_some() || client_authorities.is_some() {
            reader.complain(
                "TLS needs both SAMPLER_TLS_CERT_FILE (tls.cert_file) and SAMPLER_TLS_KEY_FILE \
                 (tls.key_file)",
            );
        }
        return None;
    };
    let files = TlsFiles {
        certificate: certificate.clone(),
        key: key.clone(),
        client_authorities,
    };
    let read = Tls::read(files);
    read.map_err(|error| reader.complain(complaint(&error)))
        .ok()
}

fn complaint(error: &TlsError) -> String {
    let name = match error {
        TlsError::Certificate(_) => "SAMPLER_TLS_CERT_FILE (tls.cert_file)",
        TlsError::Key(_) | TlsError::Mismatch => "SAMPLER_TLS_KEY_FILE (tls.key_file)",
        TlsError::ClientAuthorities(_) => "SAMPLER_TLS_CLIENT_CA_FILE (tls.client_ca_file)",
        TlsError::Unusable => "TLS",
    };
    format!("{name}: {error}")
}

/// How spans are cut into intervals, still as words: what they mean is the domain's to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SamplingSettings {
    /// minute, hour, day or month.
    pub dimension: String,
    /// Other dimensions for some resources.
    pub dimension_overrides: Option<String>,
    /// How long to wait for a late stop.
    pub stop_grace: Duration,
}

impl SamplingSettings {
    /// Reads the group [`SAMPLING`].
    pub fn read(reader: &mut Reader<'_>) -> Self {
        Self {
            dimension: reader.text("sampling.dimension"),
            dimension_overrides: reader.optional_text("sampling.dimension_overrides"),
            stop_grace: reader.duration("sampling.stop_grace"),
        }
    }
}

/// How far the timestamp of an event may be from the present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlackSettings {
    /// Into the past.
    pub past: Duration,
    /// Into the future.
    pub future: Duration,
}

impl SlackSettings {
    /// Reads the group [`SLACK`].
    pub fn read(reader: &mut Reader<'_>) -> Self {
        Self {
            past: reader.duration("slack.past"),
            future: reader.duration("slack.future"),
        }
    }
}

/// When a program counts as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HealthSettings {
    /// How long a program may be without progress.
    pub threshold: Duration,
}

impl HealthSettings {
    /// Reads the group [`HEALTH`].
    pub fn read(reader: &mut Reader<'_>) -> Self {
        Self {
            threshold: reader.duration("health.threshold"),
        }
    }
}

/// How lines of the log are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// Text on a terminal, JSON elsewhere.
    Auto,
    /// One JSON object per line.
    Json,
    /// For people.
    Text,
}

/// What is logged, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogSettings {
    /// How lines are written.
    pub format: LogFormat,
    /// Which lines are written, as filter directives that are known to be valid.
    pub level: String,
}

impl LogSettings {
    /// Reads the group [`LOG`].
    pub fn read(reader: &mut Reader<'_>) -> Self {
        let formats = [
            ("auto", LogFormat::Auto),
            ("json", LogFormat::Json),
            ("text", LogFormat::Text),
        ];
        let level = reader.parse_with("log.level", log_level);
        Self {
            format: reader.choice("log.format", &formats),
            level: level.unwrap_or_default(),
        }
    }
}

/// Filter directives. A single word must be a level: the parser would take a mistyped one for the
/// name of a module, and the log would be silent.
fn log_level(text: &str) -> Result<String, String> {
    let levels = ["off", "error", "warn", "info", "debug", "trace"];
    let is_level = |word: &str| levels.iter().any(|level| level.eq_ignore_ascii_case(word));
    let plain = text
        .split(',')
        .all(|directive| directive.contains('=') || is_level(directive));
    if plain && EnvFilter::try_new(text).is_ok() {
        return Ok(text.to_owned());
    }
    Err("off, error, warn, info, debug or trace, also as in info,sampler_store=debug".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_of_the_log_are_known_words() {
        for text in [
            "info",
            "WARN",
            "off",
            "info,sampler_store=debug",
            "error,a::b=trace,c=off",
        ] {
            assert_eq!(log_level(text).as_deref(), Ok(text));
        }
        for text in [
            "inof",
            "warning",
            "info,sampler_store",
            "info,a=loud",
            "info,,",
            "info,==",
        ] {
            assert!(log_level(text).is_err(), "{text:?}");
        }
    }
}
