//! The parts that the programs share: tokens and HTTP clients ([`oauth`]). And, for those that serve, time and
//! randomness ([`environment`]), error answers ([`problem`]), the check of requests ([`security`]), logs and traces
//! ([`telemetry`]), start and shutdown ([`lifecycle`]), HTTP ([`http`]), health ([`health`]) and metrics
//! ([`metrics`]).
//!
//! [`program`] puts them together. Nothing here knows what a span is.

pub mod oauth;

#[cfg(feature = "server")]
pub mod environment;
#[cfg(feature = "server")]
pub mod health;
#[cfg(feature = "server")]
pub mod http;
#[cfg(feature = "server")]
pub mod lifecycle;
#[cfg(feature = "server")]
pub mod metrics;
#[cfg(feature = "server")]
pub mod problem;
#[cfg(feature = "server")]
pub mod program;
#[cfg(feature = "server")]
pub mod security;
#[cfg(feature = "server")]
pub mod telemetry;
