//! How often each warning and error was logged, as a metric: an alarm needs no search of the log.

use std::fmt;
use std::sync::Arc;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use sampler_metrics::Registry;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

sampler_metrics::metrics! {
    pub METRICS;

    /// Warnings and errors in the log, as far as `LOG_LEVEL` lets them through
    LOG_EVENTS = "sampler_log_events_total", Counter,
        level: Words(&["warn", "error"]),
        code: Bounded(
            "the codes that [operations.md](operations.md#what-the-log-says) explains; `none` for \
             a line of a library"
        );
}

/// The code of a warning of another library: those have none.
const NO_CODE: &str = "none";

/// The beginning of the targets of our own warnings. Their codes are literals.
const OURS: &str = "sampler";

/// Counts warnings and errors by their `code`. Clones count into the same metric.
#[derive(Clone, Debug, Default)]
pub struct LogCounts(Family<OfCode, Counter>);

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfCode {
    level: &'static str,
    code: Arc<str>,
}

impl LogCounts {
    pub fn register(&self, registry: &mut Registry) {
        registry.register(&LOG_EVENTS, self.0.clone());
    }
}

impl<S: Subscriber> Layer<S> for LogCounts {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let level = match *event.metadata().level() {
            Level::ERROR => "error",
            Level::WARN => "warn",
            _ => return,
        };
        let code = code_of(event).unwrap_or_else(|| NO_CODE.into());
        let labels = OfCode { level, code };
        self.0.get_or_create(&labels).inc();
    }
}

/// The code of one of our own lines.
pub(super) fn code_of(event: &Event<'_>) -> Option<Arc<str>> {
    let mut found = FoundCode::default();
    if event.metadata().target().starts_with(OURS) {
        event.record(&mut found);
    }
    found.0
}

/// The value of the field `code`.
#[derive(Default)]
struct FoundCode(Option<Arc<str>>);

impl Visit for FoundCode {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "code" {
            self.0 = Some(value.into());
        }
    }

    fn record_debug(&mut self, _: &Field, _: &dyn fmt::Debug) {}
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::layer::SubscriberExt;

    use super::*;

    #[test]
    fn warnings_and_errors_are_counted_by_their_code() {
        let counts = LogCounts::default();
        let subscriber = tracing_subscriber::registry().with(counts.clone());
        tracing::subscriber::with_default(subscriber, || {
            for _ in 0..2 {
                tracing::warn!(code = "area.event", error = "text", "something happened");
            }
            tracing::error!(code = "area.worse", "something worse happened");
            tracing::warn!(target: "library", code = "of.library", "a library warns");
            tracing::info!(code = "area.event", "nothing happened");
        });
        let mut registry = Registry::new("sampler-worker", "1");
        counts.register(&mut registry);
        let text = registry.encode().unwrap();
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
