//! The MongoDB store on a real MongoDB.

#![allow(clippy::unwrap_used, reason = "a test may end with a panic")]

mod audit;
mod contract;
mod lanes;
mod measures;
mod migration;
mod outage;
mod primary;
mod profile;
mod proxy;
mod support;
