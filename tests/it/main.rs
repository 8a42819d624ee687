//! The real programs on a real MongoDB, against a stand-in Abacus.

#![allow(clippy::unwrap_used, reason = "a test may end with a panic")]
#![allow(clippy::format_collect, reason = "a test may be slow")]
#![allow(clippy::too_many_lines, reason = "a test tells one story")]
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "metrics are counts that are sent as floats"
)]

mod cli;
mod cli_operators;
mod cloudevents;
mod console;
mod examples;
mod feed;
mod health;
mod landscape;
mod memory;
mod metrics;
mod oidc;
mod original;
mod otlp;
mod platform;
mod secured;
mod settings;
mod sign_in;
mod takeover;
mod tls;
