//! What the receiver is compared with, on the same server, with the same documents and indexes.

pub(crate) mod ceiling;
pub(crate) mod one_write;
pub(crate) mod server;
pub(crate) mod store;
pub(crate) mod worker;
