//! The pages: a module for each.

pub(crate) mod acts;
pub(crate) mod audit;
pub(crate) mod overview;
pub(crate) mod span;
pub(crate) mod spans;
pub(crate) mod suspended;
pub(crate) mod usage;
