//! What the log of the simulation shows of results.

use std::fmt;

use sampler_domain::{Entry, Span, SpanId, Timestamp};
use sampler_store::{Finished, KeptCause, Probe, Unconfirmed};

use super::{Brief, DuePage, Resolved};

impl<A: fmt::Debug> Brief for Resolved<A> {
    fn brief(&self) -> String {
        format!("{:?}", self.0)
    }
}

macro_rules! brief_as_debug {
    ($($result:ty),*) => {
        $(impl Brief for $result {
            fn brief(&self) -> String {
                format!("{self:?}")
            }
        })*
    };
}

brief_as_debug!(
    (),
    bool,
    u64,
    Probe,
    Timestamp,
    Vec<Entry>,
    Vec<KeptCause>,
    Vec<String>,
    Vec<Unconfirmed>
);

impl Brief for Option<Span> {
    fn brief(&self) -> String {
        self.as_ref()
            .map_or_else(|| "none".to_owned(), |span| span.id.to_string())
    }
}

impl Brief for Vec<Span> {
    fn brief(&self) -> String {
        let ids: Vec<&SpanId> = self.iter().map(|span| &span.id).collect();
        format!("{ids:?}")
    }
}

impl Brief for DuePage {
    fn brief(&self) -> String {
        let ids: Vec<&SpanId> = self.0.iter().flatten().map(|span| &span.id).collect();
        format!("{ids:?}")
    }
}

impl Brief for Vec<Finished> {
    fn brief(&self) -> String {
        let ids: Vec<&SpanId> = self.iter().map(|span| &span.id).collect();
        format!("{ids:?}")
    }
}
