//! The log of a program: one line per event, on standard output. Warnings and errors are counted
//! ([`LogCounts`]), and spans of traces are exported where an endpoint is set.

mod counts;
mod traces;

use std::io::{self, IsTerminal, Write};
use std::panic::PanicHookInfo;

use anyhow::Context;
use sampler_domain::text::escape_json;
use tracing::Subscriber;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, Registry, fmt};

use counts::Flood;

pub use counts::LogCounts;
pub use sampler_domain::text::error_chain;
pub use traces::Traces;

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
    let is_text = is_text(options.format, io::stdout().is_terminal());
    let log = LogCounts.and_then(lines(is_text, io::stdout));
    Registry::default()
        .with(log.with_filter(filter(options)?))
        .with(traces.map(Traces::layer))
        .try_init()
        .context("the log is there already")?;
    std::panic::set_hook(Box::new(log_panic));
    Ok(())
}

/// The layer that turns events into lines. A line is one JSON object: `timestamp`, `level`, `target`, `message`,
/// the fields of the event, and in `span` the ids of the request. Or it is text for people.
pub fn subscriber<W, F>(
    options: &LogOptions,
    writer: F,
) -> anyhow::Result<impl Subscriber + Send + Sync + use<W, F>>
where
    W: Write + 'static,
    F: Fn() -> W + Send + Sync + 'static,
{
    let lines = lines(is_text(options.format, false), writer);
    Ok(Registry::default().with(lines.with_filter(filter(options)?)))
}

fn is_text(format: LogFormat, is_terminal: bool) -> bool {
    match format {
        LogFormat::Auto => is_terminal,
        LogFormat::Json => false,
        LogFormat::Text => true,
    }
}

fn filter(options: &LogOptions) -> anyhow::Result<EnvFilter> {
    EnvFilter::try_new(&options.level).context("reading the level of the log")
}

fn lines<S, W: Write + 'static>(
    is_text: bool,
    writer: impl Fn() -> W + Send + Sync + 'static,
) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'span> LookupSpan<'span>,
{
    let layer = fmt::layer().with_writer(move || Escaped(writer()));
    if is_text {
        return layer.with_ansi(false).with_filter(Flood::default()).boxed();
    }
    let layer = layer.json().flatten_event(true).with_span_list(false);
    layer.with_filter(Flood::default()).boxed()
}

/// Writes lines in which nothing commands a terminal, or turns the direction of what follows.
struct Escaped<W>(W);

impl<W: Write> Write for Escaped<W> {
    /// A line comes whole.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(line);
        let text = text.trim_end_matches('\n').replace('\n', " ");
        writeln!(self.0, "{}", escape_json(&text))?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
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
    use std::io::{self, Write};
    use std::sync::{Arc, Mutex};

    use serde_json::Value;

    use super::*;

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
        let subscriber = subscriber(&options, move || writer.clone());
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
        assert!(
            line["target"]
                .as_str()
                .unwrap()
                .starts_with("sampler_service")
        );
        assert!(line["timestamp"].as_str().unwrap().ends_with('Z'));
    }

    #[test]
    fn a_line_says_for_which_request_it_is() {
        let text = logged(LogFormat::Json, "warn", || {
            let request = tracing::error_span!("http", trace_id = "t-1", request_id = "r-1");
            request.in_scope(|| tracing::warn!(code = "area.event", status = 503, "refused"));
        });
        let line: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(
            (&line["code"], &line["status"]),
            (&"area.event".into(), &503.into())
        );
        let ids = (&line["span"]["trace_id"], &line["span"]["request_id"]);
        assert_eq!(ids, (&"t-1".into(), &"r-1".into()));
    }

    #[test]
    fn auto_is_text_on_a_terminal_only() {
        assert!(is_text(LogFormat::Auto, true) && is_text(LogFormat::Text, false));
        assert!(!is_text(LogFormat::Auto, false) && !is_text(LogFormat::Json, true));
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
}
