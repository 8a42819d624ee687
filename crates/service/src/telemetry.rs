//! The log of a program: one line per event, on standard output. Warnings and errors are counted, and spans of traces
//! are exported where an endpoint is set.

mod traces;

use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};
use std::panic::PanicHookInfo;
use std::time::Duration;

use anyhow::Context as _;
use metrics::counter;
use sampler_domain::text::escape_json;
use sampler_store::Limiter;
use serde_json::{Map, Value, json, to_value};
use tracing::callsite::Identifier;
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_serde::fields::AsMap;
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, Registry};

use crate::environment::{Clock, SystemClock};
use crate::http::request;

pub use sampler_domain::text::error_chain;
pub use traces::Traces;

/// The code of a warning of another library: those have none.
const NO_CODE: &str = "none";

/// The beginning of the targets of our own warnings. Their codes are literals.
const OURS: &str = "sampler";

/// Lines of one kind that requests may cause in one period; those beyond are left out.
const LINES: u32 = 20;

const PERIOD: Duration = Duration::from_mins(1);

/// The level and the format of the log.
#[derive(Clone, Debug)]
pub struct LogOptions {
    pub format: LogFormat,
    /// The level, also per module, as in `info,sampler_store=debug`.
    pub level: String,
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

/// Logs to standard output from now on, panics included; exports traces, if that is wanted. Once per process.
pub fn init(options: &LogOptions, traces: Option<&Traces>) -> anyhow::Result<()> {
    subscriber(options, traces, io::stdout)?
        .try_init()
        .context("the log is there already")?;
    std::panic::set_hook(Box::new(log_panic));
    Ok(())
}

/// What logs to a writer, and exports traces.
pub fn subscriber<W, F>(
    options: &LogOptions,
    traces: Option<&Traces>,
    writer: F,
) -> anyhow::Result<impl Subscriber + Send + Sync + use<W, F>>
where
    W: Write + 'static,
    F: Fn() -> W + Send + Sync + 'static,
{
    let filter = EnvFilter::try_new(&options.level).context("reading the level of the log")?;
    let log = Log {
        is_text: match options.format {
            LogFormat::Auto => io::stdout().is_terminal(),
            LogFormat::Json => false,
            LogFormat::Text => true,
        },
        writer,
        of_requests: Limiter::new(LINES, PERIOD),
    };
    let log = Registry::default().with(log.with_filter(filter));
    Ok(log.with(traces.map(Traces::layer)))
}

/// Counts events, and writes each as a line: a JSON object with `timestamp`, `level`, `target`, `message`, the fields
/// of the event, and the ids of the request; or text for people.
struct Log<F> {
    is_text: bool,
    writer: F,
    /// Whoever can send requests cannot flood the log: lines of each place in the program, for each client. What the
    /// program does by itself, it logs at a rate of its own.
    of_requests: Limiter<(Identifier, Option<String>)>,
}

impl<S, W, F> Layer<S> for Log<F>
where
    S: Subscriber,
    W: Write,
    F: Fn() -> W + 'static,
{
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let (metadata, fields) = (event.metadata(), to_value(event.field_map()));
        let fields = fields.unwrap_or_default();
        count(metadata, &fields);
        let ids = request::ids();
        if ids.is_some() && *metadata.level() <= Level::INFO {
            let client = fields["client"].as_str().map(str::to_owned);
            let admitted = self.of_requests.admit((metadata.callsite(), client));
            if admitted.is_none() {
                return;
            }
        }
        let mut line = json!({
            "timestamp": SystemClock.now().to_string(),
            "level": metadata.level().as_str(),
            "target": metadata.target(),
        });
        if let (Value::Object(line), Value::Object(fields)) = (&mut line, fields) {
            line.extend(fields);
            let ids = ids.into_iter().flatten();
            line.extend(ids.filter_map(|(name, id)| Some((name.to_owned(), id?.into()))));
        }
        let line = match line {
            Value::Object(members) if self.is_text => text(members),
            line => line.to_string(),
        };
        let _ = writeln!((self.writer)(), "{}", escape_json(&line));
    }
}

/// Counts warnings and errors by their `code`, so that an alarm needs no search of the log.
fn count(metadata: &Metadata<'_>, fields: &Value) {
    let level = match *metadata.level() {
        Level::ERROR => "error",
        Level::WARN => "warn",
        _ => return,
    };
    let is_ours = metadata.target().starts_with(OURS);
    let code = fields["code"].as_str().filter(|_| is_ours);
    let code = code.unwrap_or(NO_CODE).to_owned();
    counter!("sampler_log_events_total", "level" => level, "code" => code).increment(1);
}

/// A line for people: what every line has stands in front, without its name.
fn text(mut members: Map<String, Value>) -> String {
    let mut line = String::new();
    for name in ["timestamp", "level", "target", "message"] {
        let value = members.shift_remove(name).unwrap_or_default();
        let _ = write!(line, "{} ", value.as_str().unwrap_or_default());
    }
    for (name, value) in members {
        let _ = write!(line, "{name}={value} ");
    }
    line.trim_end().replace('\n', " ")
}

/// A panic is one line like any other error, not the several that would tear a log apart.
fn log_panic(info: &PanicHookInfo<'_>) {
    let location = info.location().map(ToString::to_string).unwrap_or_default();
    let thread = std::thread::current();
    tracing::error!(
        code = "program.panic",
        panic.message = info.payload_as_str().unwrap_or("no text"),
        panic.location = location,
        panic.thread = thread.name().unwrap_or("unnamed"),
        "panicked"
    );
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::metrics::Metrics;

    /// A log that can be read.
    #[derive(Clone, Default)]
    struct Page(Arc<Mutex<Vec<u8>>>);

    impl Write for Page {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// The lines that `act` logs.
    fn logged(format: LogFormat, level: &str, act: impl FnOnce()) -> String {
        let page = Page::default();
        let writer = page.clone();
        let options = LogOptions {
            format,
            level: level.to_owned(),
        };
        let subscriber = subscriber(&options, None, move || writer.clone());
        let subscriber = subscriber.unwrap();
        tracing::subscriber::with_default(subscriber, act);
        let bytes = page.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn a_line_is_one_flat_json_object() {
        let text = logged(LogFormat::Json, "info", || {
            tracing::info!(answer = 42, http.path = "/a", "it\nis");
        });
        assert_eq!(text.matches('\n').count(), 1, "{text}");
        let line: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(line["level"], "INFO");
        assert_eq!(line["message"], "it\nis");
        assert_eq!(line["answer"], 42);
        assert_eq!(line["http.path"], "/a");
        let text = |name: &str| line[name].as_str().unwrap();
        assert!(text("target").starts_with("sampler_service"));
        assert!(text("timestamp").ends_with('Z'));
    }

    #[test]
    fn what_clients_send_commands_no_terminal() {
        let sent = "x\u{9b}2J\u{1b}]0;y";
        for format in [LogFormat::Json, LogFormat::Text] {
            let text = logged(format, "info", || {
                tracing::warn!(debugged = ?sent, shown = %sent, "told: {sent}");
            });
            let text = text.trim_end();
            for command in ['\u{9b}', '\u{1b}', '\n'] {
                assert!(!text.contains(command), "{format:?} {text:?}");
            }
        }
    }

    #[test]
    fn the_level_decides_what_is_written() {
        let act = || {
            tracing::debug!("fine");
            tracing::warn!("coarse");
        };
        let text = logged(LogFormat::Text, "info", act);
        assert!(text.contains("coarse") && !text.contains("fine"), "{text}");
        let text = logged(LogFormat::Text, "error,sampler_service=debug", act);
        assert!(text.contains("fine"), "{text}");
    }

    #[test]
    fn a_panic_is_one_line() {
        let text = logged(LogFormat::Json, "info", || {
            std::panic::set_hook(Box::new(log_panic));
            let caught = std::panic::catch_unwind(|| panic!("not {}", "good"));
            let _ = std::panic::take_hook();
            assert!(caught.is_err());
        });
        assert_eq!(text.matches('\n').count(), 1, "{text}");
        let line: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(line["level"], "ERROR");
        assert_eq!(line["message"], "panicked");
        assert_eq!(line["panic.message"], "not good");
        assert!(
            line["panic.location"]
                .as_str()
                .unwrap()
                .contains("telemetry.rs")
        );
    }

    #[test]
    fn warnings_and_errors_are_counted_by_their_code() {
        let (recorder, metrics) = Metrics::new("sampler-worker", "1");
        let _counting = metrics::set_default_local_recorder(&recorder);
        logged(LogFormat::Json, "info", || {
            for _ in 0..2 {
                tracing::warn!(code = "area.event", error = "text", "something happened");
            }
            tracing::error!(code = "area.worse", "something worse happened");
            tracing::warn!(target: "library", code = "of.library", "a library warns");
            tracing::info!(code = "area.event", "nothing happened");
        });
        let text = metrics.render();
        let name = "sampler_log_events_total";
        let mut samples: Vec<_> = text
            .lines()
            .filter_map(|line| line.strip_prefix(name))
            .collect();
        samples.sort_unstable();
        let expected = [
            r#"{level="error",code="area.worse"} 1"#,
            r#"{level="warn",code="area.event"} 2"#,
            r#"{level="warn",code="none"} 1"#,
        ];
        assert_eq!(samples, expected);
    }
}
