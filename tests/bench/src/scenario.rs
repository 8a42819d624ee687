//! What is measured.

pub(crate) mod against;
pub(crate) mod beside;
pub(crate) mod events;
pub(crate) mod midnight;
pub(crate) mod worker;
pub(crate) mod workers;
