//! The MongoDB store on a real MongoDB.

#![allow(clippy::unwrap_used, reason = "a test may end with a panic")]

mod audit;
mod contract;
mod explain;
mod faults;
mod lanes;
mod late;
mod lists;
mod measures;
mod migration;
mod original;
mod outage;
mod primary;
mod profile;
mod proxy;
mod queries;
mod retention;
mod scans;
mod sums;
mod support;
mod unreadable;
