//! What tests of stores and programs and the simulation share: the contract that every store must
//! pass, and a store in memory that passes it.

#![allow(
    missing_docs,
    clippy::missing_errors_doc,
    clippy::unwrap_used,
    reason = "only tests call it; the name of a case says what it shows"
)]

pub mod contract;
pub mod faulty;
pub mod memory;
pub mod random;
pub mod support;
