//! Lines that requests cause, at a bounded rate: whoever can send requests cannot flood the log.

use std::fmt;
use std::time::Duration;

use sampler_metrics::Limiter;
use tracing::callsite::Identifier;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use crate::http::REQUEST_SPAN;

/// Lines of one kind in one period. Those beyond are counted, and the first line of the next period
/// has their number.
const LINES: u32 = 20;

const PERIOD: Duration = Duration::from_mins(1);

/// Writes lines as `lines` does, but those of requests only a number of times a minute for each
/// kind. What the program does by itself, it logs at a rate of its own.
pub(super) struct Bounded<F> {
    lines: F,
    is_json: bool,
    limiter: Limiter<LineKind>,
}

impl<F> Bounded<F> {
    /// `is_json` says that a line is one JSON object; otherwise it is text.
    pub(super) fn new(lines: F, is_json: bool) -> Self {
        Self {
            lines,
            is_json,
            limiter: Limiter::new(LINES, PERIOD),
        }
    }
}

impl<S, N, F> FormatEvent<S, N> for Bounded<F>
where
    S: Subscriber + for<'span> LookupSpan<'span>,
    N: for<'writer> FormatFields<'writer> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut spans = context.event_scope().into_iter().flatten();
        let is_limited = *event.metadata().level() <= Level::INFO
            && spans.any(|span| span.name() == REQUEST_SPAN);
        let suppressed = if is_limited {
            self.limiter.admit(LineKind::of(event))
        } else {
            Some(0)
        };
        match suppressed {
            None => Ok(()),
            Some(0) => self.lines.format_event(context, writer, event),
            Some(suppressed) => {
                let mut line = String::new();
                self.lines
                    .format_event(context, Writer::new(&mut line), event)?;
                let line = line.trim_end();
                match line.strip_suffix('}').filter(|_| self.is_json) {
                    Some(members) => writeln!(writer, "{members},\"suppressed\":{suppressed}}}"),
                    None => writeln!(writer, "{line} suppressed={suppressed}"),
                }
            }
        }
    }
}

/// Lines of one place in the program, for one client and one problem.
#[derive(Debug, PartialEq, Eq, Hash)]
struct LineKind {
    place: Identifier,
    client: Option<String>,
    problem: Option<String>,
}

impl LineKind {
    fn of(event: &Event<'_>) -> Self {
        let mut kind = Self {
            place: event.metadata().callsite(),
            client: None,
            problem: None,
        };
        event.record(&mut kind);
        kind
    }
}

impl Visit for LineKind {
    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "client" => self.client = Some(value.to_owned()),
            "problem" => self.problem = Some(value.to_owned()),
            _ => {}
        }
    }

    fn record_debug(&mut self, _: &Field, _: &dyn fmt::Debug) {}
}
