//! The worker over the store in memory, in virtual time, against a scripted Abacus.

#![allow(clippy::unwrap_used, reason = "a test may end with a panic")]
#![allow(clippy::float_cmp, reason = "the numbers are exact")]

mod abacus;
mod clocks;
mod control;
mod delivery;
mod faults;
mod ledger;
mod sampling;
mod skip;
mod suspension;
mod turns;
mod watch;
mod world;
