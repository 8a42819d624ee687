//! The settings by which any program starts.

use sampler_service::program::{Options, Ports};
use sampler_service::telemetry::{LogFormat, LogOptions};
use url::Url;

use crate::Program;
use crate::load::Variables;
use crate::reader::Reader;
use crate::table::{Common, settings};
use crate::value::texts;

settings! {
    /// Where a program listens.
    pub struct HttpSettings {
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

impl Common<'_> {
    /// What a program starts with.
    pub(crate) fn options(&self, program: &Program) -> Options {
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

    /// Logs what a person should check, once the log is there.
    pub fn announce(&self, variables: &Variables) {
        self.database.announce();
        self.security.announce(self.called.as_ref(), variables);
    }

    /// Refuses settings of both programs that contradict each other, or that could not be honoured.
    pub(crate) fn check(&self, reader: &mut Reader) {
        if self.http.metrics_port == Some(self.http.port) {
            reader.reject("SAMPLER_METRICS_PORT", "a port other than PORT");
        }
        self.database.check(reader);
        self.security.check(reader);
        self.sampling.check(reader);
    }
}

texts! {
    // The log would take a mistyped level for the name of a module, and write nothing.
    LogLevel: "off, error, warn, info, debug or trace, also as in info,sampler_store=debug", is_level;
}

fn is_level(text: &str) -> bool {
    text.split(',').all(|directive| {
        let (module, level) = directive.split_once('=').unwrap_or(("all", directive));
        let levels = ["off", "error", "warn", "info", "debug", "trace"];
        !module.is_empty() && levels.iter().any(|known| known.eq_ignore_ascii_case(level))
    })
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
            assert!(is_level(text), "{text:?}");
        }
        for text in [
            "inof",
            "warning",
            "info,sampler_store",
            "info,a=loud",
            "info,,",
            "info,=info",
        ] {
            assert!(!is_level(text), "{text:?}");
        }
    }
}
