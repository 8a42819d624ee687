//! The simulation: seeds that are always run and fresh ones, that it is deterministic, that it
//! finds planted bugs; and the old rules of the calendar against an oracle of its own.

#![allow(clippy::unwrap_used, reason = "a test may end with a panic")]

mod calendar;
mod planted_bugs;
mod seeds;
