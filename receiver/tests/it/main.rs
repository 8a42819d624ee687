//! The receiver's API, from a request to its answer and to what is in the store afterwards: the
//! real routes over the store in memory.

#![expect(clippy::unwrap_used, reason = "a test may end with a panic")]
#![allow(clippy::float_cmp, reason = "the numbers are exact")]
#![allow(clippy::format_collect, reason = "a test may be slow")]

mod acts;
mod answer;
mod auth;
mod batches;
mod bodies;
mod body_table;
mod cloud_events;
mod control;
mod database;
mod event;
mod event_table;
mod mappings;
mod openapi;
mod overload;
mod reading;
mod reading_scopes;
mod reads;
mod resend;
mod store;
mod sums;
mod updates;
mod world;
