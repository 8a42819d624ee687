//! Chaos: real receivers and workers on a real replica set of three, under load from many clients,
//! while everything fails that can fail on one machine.
//!
//! - [`schedule`]: which fault comes when, from a seed. [`proxy`]: links that fail.
//! - Clients send events until each has a definite answer, and know which must be taken. Operators skip,
//!   resume and send again by the API alone.
//! - In the end all spans are stopped, and all that was skipped is sent again. Then what counts at Abacus
//!   must be what was used, and `sampler verify` must find nothing.
//! - [`run()`]: all of it, from starting the servers to the verdict.

mod bill;
mod client;
mod cluster;
mod fleet;
mod inject;
mod journal;
mod observer;
mod operator;
pub mod proxy;
mod run;
pub mod schedule;
mod sender;
mod timeline;

pub use fleet::ProgramId;
pub use journal::Report;
pub use run::{Options, run};
