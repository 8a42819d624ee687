//! The log of a program: one line per event, on standard output. Warnings and errors are counted
//! ([`LogCounts`]), and spans of traces are exported where an endpoint is set ([`TraceOptions`]).

mod counts;
mod flood;
mod line;
mod traces;

use std::any::Any;
use std::io::IsTerminal;
use std::panic::PanicHookInfo;

use anyhow::Context;
use tracing::Subscriber;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::format::JsonFields;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, Registry, fmt};

use crate::platform::Identity;
use crate::settings::{LogFormat, LogSettings};
use flood::Bounded;
use line::{Line, TextLine};
use traces::Traces;

pub(crate) use traces::EXPORT_TIMEOUT;

pub use counts::{LogCounts, METRICS};
pub use sampler_domain::text::error_chain;
pub use traces::TraceOptions;

/// The installed telemetry. It is held until the end, so that the last spans are exported.
#[derive(Debug)]
#[must_use = "spans are exported as long as it is there"]
pub struct Telemetry {
    counts: LogCounts,
    _traces: Option<Traces>,
}

impl Telemetry {
    pub fn counts(&self) -> LogCounts {
        self.counts.clone()
    }
}

/// Logs to standard output from now on, panics included; exports traces, if that is wanted. Once per
/// process, before there is a runtime.
pub fn init(
    settings: &LogSettings,
    identity: &Identity,
    traces: Option<&TraceOptions>,
) -> anyhow::Result<Telemetry> {
    let counts = LogCounts::default();
    let traces = traces
        .map(|options| Traces::new(options, identity))
        .transpose()?;
    let filter = filter(settings)?;
    let installed = match &traces {
        None => Registry::default()
            .with(filter)
            .with(log(settings, identity, &counts))
            .try_init(),
        Some(traces) => Registry::default()
            .with(log(settings, identity, &counts).with_filter(filter))
            .with(traces.layer())
            .try_init(),
    };
    installed.context("the log is there already")?;
    std::panic::set_hook(Box::new(log_panic));
    Ok(Telemetry {
        counts,
        _traces: traces,
    })
}

/// The layer that turns events into lines. A line is one JSON object: `timestamp`, `level`,
/// `target`, `message` and the fields of the event, then the fields of the instance and the ids of
/// the request. Or it is text for people, who know which program they read.
pub fn subscriber<W>(
    settings: &LogSettings,
    identity: &Identity,
    terminal: bool,
    writer: W,
) -> anyhow::Result<Box<dyn Subscriber + Send + Sync>>
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let lines = lines(settings, identity, terminal, writer);
    let filter = filter(settings)?;
    Ok(Box::new(Registry::default().with(filter).with(lines)))
}

/// Writes and counts what is logged.
fn log<S>(
    settings: &LogSettings,
    identity: &Identity,
    counts: &LogCounts,
) -> impl Layer<S> + Send + Sync
where
    S: Subscriber + for<'span> LookupSpan<'span>,
{
    let terminal = std::io::stdout().is_terminal();
    let lines = lines(settings, identity, terminal, std::io::stdout);
    counts.clone().and_then(lines)
}

fn filter(settings: &LogSettings) -> anyhow::Result<EnvFilter> {
    EnvFilter::try_new(&settings.level).context("reading the level of the log")
}

fn lines<S, W>(
    settings: &LogSettings,
    identity: &Identity,
    terminal: bool,
    writer: W,
) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'span> LookupSpan<'span>,
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let text = match settings.format {
        LogFormat::Auto => terminal,
        LogFormat::Json => false,
        LogFormat::Text => true,
    };
    let layer = fmt::layer().with_writer(writer).with_ansi(terminal && text);
    if text {
        let lines = Bounded::new(TextLine::new(terminal), false);
        return layer.event_format(lines).boxed();
    }
    let lines = Bounded::new(Line::new(&identity.marks()), true);
    layer
        .fmt_fields(JsonFields::new())
        .event_format(lines)
        .boxed()
}

/// A panic is one line like any other error, not the several that would tear a log apart.
fn log_panic(info: &PanicHookInfo<'_>) {
    let location = info.location().map(ToString::to_string).unwrap_or_default();
    let thread = std::thread::current();
    tracing::error!(
        code = "program.panic",
        panic.message = message_of(info.payload()),
        panic.location = location,
        panic.thread = thread.name().unwrap_or("unnamed"),
        "panicked"
    );
}

/// The message of a panic, if it is text.
fn message_of(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no text")
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
    fn logged(format: LogFormat, level: &str, terminal: bool, act: impl FnOnce()) -> String {
        let page = Page::default();
        let writer = page.clone();
        let settings = LogSettings {
            format,
            level: level.to_owned(),
        };
        let instance = [("CF_INSTANCE_INDEX", "3"), ("CF_INSTANCE_GUID", "\"a\\")];
        let identity = Identity::of(&instance.into_iter().collect());
        let subscriber = subscriber(&settings, &identity, terminal, move || writer.clone());
        let subscriber = subscriber.unwrap();
        tracing::subscriber::with_default(subscriber, act);
        let bytes = page.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn a_line_is_one_flat_json_object() {
        let text = logged(LogFormat::Json, "info", false, || {
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
    fn a_line_says_who_wrote_it_and_for_which_request() {
        let text = logged(LogFormat::Json, "warn", false, || {
            let request = tracing::error_span!("http", trace_id = "t-1", request_id = "r-1");
            request.in_scope(|| tracing::warn!(code = "area.event", status = 503, "refused"));
            let unknown = tracing::error_span!("http", trace_id = None::<&str>);
            unknown.in_scope(|| tracing::warn!("alone"));
        });
        let lines: Vec<Value> = text
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let [refused, alone] = lines.as_slice() else {
            panic!("{text}")
        };
        assert_eq!(refused["cloudfoundry.app.instance.id"], "3");
        assert_eq!(refused["service.instance.id"], "\"a\\");
        assert_eq!(refused["status"], 503);
        assert_eq!(refused["help"], "docs/operations.md#area.event");
        assert_eq!(
            (&refused["trace_id"], &refused["request_id"]),
            (&"t-1".into(), &"r-1".into())
        );
        assert_eq!(alone["cloudfoundry.app.instance.id"], "3");
        assert!(alone.get("trace_id").is_none(), "{alone}");
        assert!(alone.get("help").is_none(), "{alone}");
    }

    #[test]
    fn auto_is_text_on_a_terminal_only() {
        let act = || tracing::info!("hello");
        assert!(logged(LogFormat::Auto, "info", false, act).starts_with('{'));
        assert!(!logged(LogFormat::Auto, "info", true, act).starts_with('{'));
        assert!(logged(LogFormat::Json, "info", true, act).starts_with('{'));
        let plain = logged(LogFormat::Text, "info", false, act);
        assert!(
            plain.ends_with("hello\n") && !plain.contains('\x1b'),
            "{plain:?}"
        );
    }

    #[test]
    fn what_clients_send_commands_no_terminal() {
        let sent = "x\u{9b}2J\u{1b}]0;\u{202e}y";
        let act = || tracing::warn!(debugged = ?sent, shown = %sent, "told: {sent}");
        for (format, terminal) in [
            (LogFormat::Json, true),
            (LogFormat::Json, false),
            (LogFormat::Text, false),
            (LogFormat::Text, true),
        ] {
            let text = logged(format, "info", terminal, act);
            let text = text.trim_end();
            for command in ['\u{9b}', '\u{202e}', '\n'] {
                assert!(!text.contains(command), "{format:?} {text:?}");
            }
            assert!(!text.contains("\u{1b}]"), "{format:?} {text:?}");
        }
    }

    #[test]
    fn the_level_decides_what_is_written() {
        let act = || {
            tracing::debug!("fine");
            tracing::warn!("coarse");
        };
        let text = logged(LogFormat::Text, "info", false, act);
        assert!(text.contains("coarse") && !text.contains("fine"), "{text}");
        let text = logged(LogFormat::Text, "error,sampler_service=debug", false, act);
        assert!(text.contains("fine"), "{text}");
    }

    #[test]
    fn a_panic_is_one_line() {
        let text = logged(LogFormat::Json, "info", false, || {
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
