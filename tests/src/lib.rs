//! End-to-end tests, the simulation and the model of Sampler.
