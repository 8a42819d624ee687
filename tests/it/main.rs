//! The real programs on a real MongoDB, against a stand-in Abacus.

mod landscape;
mod lifecycle;
mod main_job;
mod outages;
mod settings;
mod takeover;
mod trace;
