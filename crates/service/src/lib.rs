//! What both programs share: where time and randomness come from ([`environment`]), what an
//! operator can set ([`settings`]), how an error is told to a client ([`problem`]), what is
//! logged ([`telemetry`]), how a program starts and stops ([`lifecycle`]), how it serves HTTP
//! ([`http`]), how it says that it is well ([`health`]), what it measures ([`metrics`]) and who it is on its platform ([`platform`]).
//!
//! Nothing here knows what a span is.

pub mod environment;
pub mod health;
pub mod http;
pub mod lifecycle;
pub mod metrics;
pub mod platform;
pub mod problem;
pub mod security;
pub mod settings;
pub mod telemetry;
