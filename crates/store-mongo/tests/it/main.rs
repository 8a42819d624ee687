//! The MongoDB store on a real MongoDB.

mod contract;
mod explain;
mod migration;
mod original;
mod outage;
mod support;
