//! The parts that both programs share: time and randomness ([`environment`]), error answers ([`problem`]), tokens and credentials ([`security`]), logs and
//! traces ([`telemetry`]), start and shutdown ([`lifecycle`]), HTTP ([`http`]), health
//! ([`health`]), metrics ([`metrics`]), and the identity of an instance on its platform
//! ([`platform`]).
//!
//! [`program`] puts them together. Nothing here knows what a span is.

pub mod environment;
pub mod health;
pub mod http;
pub mod lifecycle;
pub mod metrics;
pub mod platform;
pub mod problem;
pub mod program;
pub mod security;
pub mod telemetry;
