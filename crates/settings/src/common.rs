//! The settings by which any program starts.

use sampler_service::program::{Options, Ports};
use sampler_service::telemetry::{LogFormat, LogOptions};
use url::Url;

use crate::declare::settings;
use crate::reader::Reader;
use crate::value::{Value, value};
use crate::{DatabaseSettings, Program, SecuritySettings};

/// Where a program listens, its database, its log and its credentials.
#[derive(Clone, Debug)]
pub struct CommonSettings {
    pub http: HttpSettings,
    pub database: DatabaseSettings,
    pub log: LogSettings,
    pub traces: TraceSettings,
    /// The credentials, and the checks of callers.
    pub security: SecuritySettings,
}

settings! {
    /// Where a program listens.
    pub struct HttpSettings(checked by HttpSettings::check) {
        /// The port to listen on. With 0 the system chooses one.
        port: u16 = "PORT", "7070";
        /// The name or address of the interface to listen on; 0.0.0.0 is all of them. Without it:
        /// 127.0.0.1 if SECURED is false, unless the platform runs the program (VCAP_APPLICATION is
        /// set); otherwise 0.0.0.0.
        host: Option<String> = "HOST";
        /// A second port, which serves GET /metrics alone, without a token. Only those who collect metrics
        /// should reach it.
        metrics_port: Option<u16> = "SAMPLER_METRICS_PORT", in "1" to "65535";
    }

    /// The level and the format of the log.
    pub struct LogSettings {
        /// The format of log lines; auto is text on a terminal and JSON elsewhere.
        format: LogFormat = "LOG_FORMAT", "auto";
        /// The log level, also per module, as in info,sampler_store=debug.
        level: String as LogLevel = "LOG_LEVEL", "info";
    }

    /// Where traces go.
    pub struct TraceSettings {
        /// The address of an OTLP collector (http/protobuf), without /v1/traces. Without it there are no traces.
        /// OTEL_EXPORTER_OTLP_HEADERS, OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES, OTEL_TRACES_SAMPLER and
        /// OTEL_TRACES_SAMPLER_ARG mean what OpenTelemetry says.
        endpoint: Option<Url> = "OTEL_EXPORTER_OTLP_ENDPOINT";
    }
}

impl CommonSettings {
    /// What a program starts with.
    pub fn options(&self, program: &Program) -> Options {
        Options {
            name: program.name,
            version: program.version,
            log: LogOptions {
                format: self.log.format,
                level: self.log.level.clone(),
            },
            traces: self.traces.endpoint.clone(),
            database: self.database.options(program.name),
            ports: Ports {
                port: self.http.port,
                metrics: self.http.metrics_port,
                host: self.http.host.clone(),
                is_open: !self.security.secured,
            },
        }
    }
}

impl HttpSettings {
    /// Refuses one port for two purposes.
    fn check(&self, reader: &mut Reader) {
        if self.metrics_port == Some(self.port) {
            reader.reject("SAMPLER_METRICS_PORT", "a port other than PORT");
        }
    }
}

value!(LogFormat, "auto, json or text", |name| match name {
    "auto" => Some(LogFormat::Auto),
    "json" => Some(LogFormat::Json),
    "text" => Some(LogFormat::Text),
    _ => None,
});

struct LogLevel(String);

impl From<LogLevel> for String {
    fn from(level: LogLevel) -> Self {
        level.0
    }
}

/// A single word must be a level: the log would take a mistyped one for the name of a module, and write
/// nothing.
impl Value for LogLevel {
    const EXPECTED: &'static str =
        "off, error, warn, info, debug or trace, also as in info,sampler_store=debug";

    fn parse(text: &str) -> Result<Self, String> {
        let is_level = |directive: &str| {
            let level = match directive.split_once('=') {
                Some((module, level)) if !module.is_empty() => level,
                Some(_) => return false,
                None => directive,
            };
            ["off", "error", "warn", "info", "debug", "trace"]
                .iter()
                .any(|known| known.eq_ignore_ascii_case(level))
        };
        if text.split(',').all(is_level) {
            return Ok(Self(text.to_owned()));
        }
        Err(Self::EXPECTED.to_owned())
    }
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
            assert!(LogLevel::parse(text).is_ok(), "{text:?}");
        }
        for text in [
            "inof",
            "warning",
            "info,sampler_store",
            "info,a=loud",
            "info,,",
            "info,=info",
        ] {
            assert!(LogLevel::parse(text).is_err(), "{text:?}");
        }
    }
}
