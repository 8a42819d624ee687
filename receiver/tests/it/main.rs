//! The real router of the receiver over a store in memory.

#![allow(clippy::unwrap_used, reason = "a test may end with a panic")]

mod attacks;
mod doors;
mod knock;
