//! The metrics of the programs.
//!
//! A module that measures declares its metrics ([`metrics!`]): their names, their labels with all their
//! values, their buckets, and the text for operators. `docs/metrics-*.md` are made from that. It holds
//! [`Counters`] or a [`Histogram`] made from a declaration, and counts into them: that is a lock or an
//! atomic, and takes no memory. A program hands clones of them to its [`Registry`], which writes all as
//! `OpenMetrics` when somebody asks. Nothing here knows HTTP. [`Limiter`] says which lines are logged again.

mod counters;
mod document;
mod limiter;
mod metric;
mod registry;

pub use counters::Counters;
pub use document::document;
pub use limiter::Limiter;
pub use metric::{Label, Metric, MetricKind, Values};
pub use prometheus_client::metrics::histogram::Histogram;
pub use registry::{METRICS, Registry};

/// The target of `tracing` spans that are exported as spans of a trace. Their level is `trace`, so
/// that the log leaves them out: `trace_span!(target: TRACE, "…")`.
pub const TRACE: &str = "sampler_trace";
