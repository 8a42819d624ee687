//! The receiver's API, from a request to its answer and to what is in the store afterwards: the
//! real routes over the store in memory.

#![expect(clippy::unwrap_used, reason = "a test may end with a panic")]

mod answer;
mod attacks;
mod bodies;
mod database;
mod doors;
mod event;
mod events;
mod given;
mod knock;
mod malformed;
mod mappings;
mod near;
mod properties;
mod provisioning;
mod repeats;
mod room;
mod routes;
mod schema;
mod smuggling;
mod store;
mod wire;
mod world;
