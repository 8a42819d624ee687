//! What the programs are compared with, on the same server, with the same documents and indexes.

pub(crate) mod server;
pub(crate) mod worker;
