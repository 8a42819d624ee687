//! The MongoDB store on a real MongoDB.

#![allow(clippy::unwrap_used, reason = "a test may end with a panic")]

mod connection;
mod contract;
mod explain;
mod faults;
mod late;
mod lists;
mod measures;
mod migration;
mod original;
mod sums;
mod support;
mod unreadable;
