//! Tests of the test kit against real processes.

#![expect(clippy::unwrap_used, reason = "these are tests, helpers among them")]

mod abacus;
mod guard;
mod mongod;
mod program;
