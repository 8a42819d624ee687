//! The receiver's API, from a request to its answer and to what is in the store afterwards: the
//! real routes over the store in memory.

#![expect(clippy::unwrap_used, reason = "a test may end with a panic")]
#![allow(clippy::float_cmp, reason = "the numbers are exact")]
#![allow(clippy::format_collect, reason = "a test may be slow")]

mod acts;
mod answer;
mod audit;
mod auth;
mod auth_fixture;
mod backlog;
mod batches;
mod bodies;
mod body_properties;
mod body_table;
mod cause_list;
mod cloud_events;
mod control;
mod conventions;
mod database;
mod description;
mod event;
mod event_table;
mod events;
mod log;
mod mappings;
mod openapi;
mod overload;
mod provisioning;
mod reading;
mod reading_scopes;
mod reads;
mod repeats;
mod resend;
mod routes;
mod store;
mod sums;
mod tokens;
mod unconfirmed;
mod updates;
mod worker;
mod world;
