//! The worker over the store in memory, in virtual time, against a scripted Abacus.

#![allow(clippy::unwrap_used, reason = "a test may end with a panic")]

mod auditor;
mod clocks;
mod control;
mod delivery;
mod faults;
mod ledger;
mod memory;
mod ownership;
mod sampling;
mod suspension;
mod turns;
mod world;
