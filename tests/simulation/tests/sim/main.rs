//! The simulation: seeds that are always run and fresh ones, that it is deterministic, and that it finds planted
//! bugs.

#![allow(clippy::unwrap_used, reason = "a test may end with a panic")]

mod planted_bugs;
mod seeds;
