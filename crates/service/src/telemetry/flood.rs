//! Lines that requests cause, at a bounded rate: whoever can send requests cannot flood the log.

use std::time::Duration;

use sampler_store::Limiter;
use tracing::callsite::Identifier;
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Filter};
use tracing_subscriber::registry::LookupSpan;

use super::counts::text_of;
use crate::http::REQUEST_SPAN;

/// Lines of one kind in one period; those beyond are left out.
const LINES: u32 = 20;

const PERIOD: Duration = Duration::from_mins(1);

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
