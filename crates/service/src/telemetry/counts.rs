//! What is done with warnings and lines besides writing them: they are counted, as a metric, so that an alarm needs no
//! search of the log; and lines that requests cause have a bounded rate: whoever can send requests cannot flood the log.

use std::fmt;
use std::time::Duration;

use metrics::counter;
use sampler_store::Limiter;
use tracing::callsite::Identifier;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::{Context, Filter};
use tracing_subscriber::registry::LookupSpan;

use crate::http::REQUEST_SPAN;

/// The code of a warning of another library: those have none.
const NO_CODE: &str = "none";

/// The beginning of the targets of our own warnings. Their codes are literals.
const OURS: &str = "sampler";

/// Lines of one kind in one period; those beyond are left out.
const LINES: u32 = 20;

const PERIOD: Duration = Duration::from_mins(1);

/// Counts warnings and errors by their `code`.
#[derive(Clone, Copy, Debug)]
pub struct LogCounts;

impl<S: Subscriber> Layer<S> for LogCounts {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let level = match *event.metadata().level() {
            Level::ERROR => "error",
            Level::WARN => "warn",
            _ => return,
        };
        let is_ours = event.metadata().target().starts_with(OURS);
        let code = text_of(event, "code").filter(|_| is_ours);
        let code = code.unwrap_or_else(|| NO_CODE.to_owned());
        counter!("sampler_log_events_total", "level" => level, "code" => code).increment(1);
    }
}

/// The text of a field of an event.
fn text_of(event: &Event<'_>, field: &'static str) -> Option<String> {
    let mut found = FoundText { field, text: None };
    event.record(&mut found);
    found.text
}

struct FoundText {
    field: &'static str,
    text: Option<String>,
}

impl Visit for FoundText {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == self.field {
            self.text = Some(value.to_owned());
        }
    }

    fn record_debug(&mut self, _: &Field, _: &dyn fmt::Debug) {}
}

/// Lets lines of requests through only a number of times a minute for each kind. What the program does by itself,
/// it logs at a rate of its own.
pub(super) struct Flood(Limiter<(Identifier, Option<String>)>);

impl Default for Flood {
    fn default() -> Self {
        Self(Limiter::new(LINES, PERIOD))
    }
}

impl<S> Filter<S> for Flood
where
    S: Subscriber + for<'span> LookupSpan<'span>,
{
    fn enabled(&self, _: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        true
    }

    fn event_enabled(&self, event: &Event<'_>, context: &Context<'_, S>) -> bool {
        let mut spans = context.event_scope(event).into_iter().flatten();
        let is_limited = *event.metadata().level() <= Level::INFO
            && spans.any(|span| span.name() == REQUEST_SPAN);
        // Of each place in the program, for each client.
        let kind = || (event.metadata().callsite(), text_of(event, "client"));
        !is_limited || self.0.admit(kind()).is_some()
    }
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::layer::SubscriberExt;

    use super::*;
    use crate::metrics::Metrics;

    #[test]
    fn warnings_and_errors_are_counted_by_their_code() {
        let (recorder, metrics) = Metrics::new("sampler-worker", "1");
        let _counting = metrics::set_default_local_recorder(&recorder);
        let subscriber = tracing_subscriber::registry().with(LogCounts);
        tracing::subscriber::with_default(subscriber, || {
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
