//! The worker over the store in memory, in virtual time, against a scripted Abacus.

mod delivery;
mod faults;
mod sampling;
mod sharing;
mod world;
