//! The model of the protocol: all that can happen to one span, in every order. `README.md` says what is real,
//! possible and bounded.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_possible_wrap,
    reason = "places, usages and numbers of states are small"
)]

mod explore;
mod facts;
mod laws;
mod liveness;
mod operators;
mod planted;
mod scenario;
mod state;
mod steps;
mod stretch;
mod worker;
mod world;

pub use explore::{Explored, Violation, explore};
pub use laws::Law;
pub use planted::Planted;
pub use scenario::{LARGE, SMALL, Scenario};
