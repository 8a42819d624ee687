//! What an operator can set, and how it is read.
//!
//! A program declares a table of [`Setting`]s; from that one table come the reading, the checks,
//! the commented defaults, the printed configuration and the documentation. Values come in
//! layers, each over the one before: the defaults of the table, a TOML file, the environment,
//! and, for the database alone, a service that the platform has bound.
//!
//! Every mistake is found and named at once, and the program then refuses to start with exit
//! code 64: an operator should need one attempt, not one per mistake. Text that is empty counts
//! as not set, wherever it comes from.

mod bindings;
mod database;
mod file;
mod groups;
mod layers;
mod mistake;
mod parse;
mod print;
mod program;
mod reader;
mod sampling;
mod setting;
mod uri_options;

pub use database::{DATABASE, DatabaseSettings};
pub use groups::{
    HEALTH, HealthSettings, HttpSettings, LOG, LogFormat, LogSettings, SAMPLING, SLACK,
    SamplingSettings, SlackSettings, TLS, http, read_tls,
};
pub use layers::Variables;
pub use mistake::{Mistake, Source};
pub use program::{EXIT_SETTINGS, ExitPlan, Printout, Program, load, load_from_process};
pub use reader::Reader;
pub use sampling::read_policy;
pub use setting::{Kind, Setting};
pub use uri_options::ReplacedOption;

/// What is shown in the place of a secret.
pub(crate) const HIDDEN: &str = "<hidden>";
