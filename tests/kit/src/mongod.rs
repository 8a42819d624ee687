//! A real MongoDB on any machine.

mod database;
mod find;
mod folder;
mod log;
mod member;
mod replica_set;
mod uri;

pub use database::TestDatabase;
pub use find::{DB_URI_VARIABLE, Found, find};
pub use replica_set::{Options, ReplicaSet};
