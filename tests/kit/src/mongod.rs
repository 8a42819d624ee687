//! A real MongoDB on any machine.

mod database;
mod find;
mod member;
mod replica_set;

pub use database::TestDatabase;
pub use find::{DB_URI_VARIABLE, find};
pub use replica_set::{Options, ReplicaSet};
