//! End-to-end tests, the simulation and the model of Sampler.

pub mod calendar;
pub mod sim;
