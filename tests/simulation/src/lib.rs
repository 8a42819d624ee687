//! The simulation: the real router and the real worker, several of each, over one store in memory,
//! where every call may fail, in virtual time.
//!
//! A run follows from its seed: the setup ([`setup`]) and the list of operations ([`op`],
//! [`generate`]) are made from it before anything runs, and all randomness within the run comes from
//! streams of the same seed. The same seed gives the same log, byte for byte.
//!
//! The law is checked at every change, behind all faults ([`truth`]), and once more at the end, from
//! what the stand-in for the upstream has counted and the providers were answered ([`check`]).
//! `docs/correctness.md` says what is covered, and what is not.

mod books;
mod check;
mod combine;
mod conditions;
mod generate;
mod lifecycle;
mod mutant;
mod op;
mod operator;
mod process;
mod provider;
mod run;
mod server;
mod setup;
mod shrink;
mod store;
mod truth;
mod upstream;
mod verify;
mod world;

pub use mutant::{Found, Mutant, PLANTED};
pub use run::{Outcome, run, run_with_log};
pub use setup::FORGETFUL;
pub use shrink::{Shrunk, shrink};
pub use world::Counts;
