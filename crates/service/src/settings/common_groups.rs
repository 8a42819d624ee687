//! The groups of settings that belong to this crate: HTTP, traces, health and log.

use std::time::Duration;

use tracing_subscriber::EnvFilter;
use url::Url;

use super::reader::Reader;
use super::setting::{Kind, Setting};
use crate::security::SecuritySettings;
use crate::telemetry::{EXPORT_TIMEOUT, TraceOptions};

const BRIEF: Duration = Duration::from_millis(100);
const DAY: Duration = Duration::from_hours(24);

crate::settings! {
    /// Where a program listens.
    pub struct HttpSettings("http", checked by HttpSettings::check) {
        /// The port to listen on. With 0 the system chooses one.
        port: u16 = "PORT", Kind::Integer(0, 65_535), or("0");
        /// The name or address of the interface to listen on; 0.0.0.0 is all of them. Without it:
        /// 127.0.0.1 if SECURED is false, unless the platform runs the program (VCAP_APPLICATION is
        /// set); otherwise 0.0.0.0.
        host: Option<String> = "HOST", Kind::Text;
        /// A second port, which serves GET /metrics alone, without credentials. Only
        /// those who collect metrics should reach it.
        metrics_port: Option<u16> = "SAMPLER_METRICS_PORT", Kind::Integer(1, 65_535);
    }

    /// Where traces go.
    pub struct TraceSettings("traces") {
        /// The address of an OTLP collector (http/protobuf), without /v1/traces. Without it there are
        /// no traces. OTEL_EXPORTER_OTLP_HEADERS, OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES,
        /// OTEL_TRACES_SAMPLER and OTEL_TRACES_SAMPLER_ARG mean what OpenTelemetry says.
        endpoint: Option<Url> = "OTEL_EXPORTER_OTLP_ENDPOINT", Kind::Url;
    }

    /// When a receiver is unhealthy.
    pub struct HealthSettings("health") {
        /// How long the database may be out of reach before the receiver is unhealthy.
        threshold: Duration = "HEALTHCHECK_THRESHOLD", Kind::Duration(BRIEF, DAY), or("60s");
    }

    /// The level and the format of the log.
    pub struct LogSettings("log") {
        /// The format of log lines; auto is text on a terminal and JSON elsewhere.
        format: LogFormat = "LOG_FORMAT", Kind::Choice(&["auto", "json", "text"]), or("auto")
            => LogFormat::named;
        /// The log level: error, warn, info, debug or trace, also per module, as in
        /// info,sampler_store=debug.
        level: String = "LOG_LEVEL", Kind::Text, or("info") => log_level;
    }
}

impl HttpSettings {
    /// The table of a program with another default port.
    pub const fn table(port: &'static str) -> [Setting; 3] {
        let [own, host, metrics_port] = Self::TABLE;
        [own.or(port), host, metrics_port]
    }

    /// The interface to listen on, where `HOST` does not name one: without tokens nobody else should
    /// reach the program, unless a platform is in front of it.
    pub fn interface(&self, is_open: bool, is_on_platform: bool) -> &str {
        let usual = if is_open && !is_on_platform {
            "127.0.0.1"
        } else {
            "0.0.0.0"
        };
        self.host.as_deref().unwrap_or(usual)
    }

    /// Refuses one port for two purposes.
    fn check(&self, reader: &mut Reader) {
        if self.metrics_port == Some(self.port) {
            reader.reject("http.metrics_port", "a port other than PORT");
        }
    }
}

impl TraceSettings {
    /// How traces are exported, if they are: by a program with this name and version, with the
    /// certificates that `security` trusts.
    pub fn options(
        &self,
        service: &'static str,
        version: &'static str,
        security: &SecuritySettings,
    ) -> Option<TraceOptions> {
        Some(TraceOptions {
            endpoint: self.endpoint.clone()?,
            service,
            version,
            http: security.http_options(EXPORT_TIMEOUT),
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// Text on a terminal, JSON elsewhere.
    Auto,
    /// One JSON object per line.
    Json,
    /// Text, for people.
    Text,
}

impl LogFormat {
    fn named(name: &str) -> Result<Self, String> {
        match name {
            "auto" => Ok(Self::Auto),
            "json" => Ok(Self::Json),
            "text" => Ok(Self::Text),
            _ => Err("auto, json or text".to_owned()),
        }
    }
}

fn is_level(word: &str) -> bool {
    ["off", "error", "warn", "info", "debug", "trace"]
        .iter()
        .any(|level| level.eq_ignore_ascii_case(word))
}

/// Checks filter directives. A single word must be a level: the parser would take a mistyped level for
/// the name of a module, and nothing would be logged.
fn log_level(text: &str) -> Result<String, String> {
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
