//! What an operator can set, and how it is read.
//!
//! A setting is declared once, in a group ([`settings!`]). From the groups of a program come the
//! typed values, the checks, the commented defaults, the printed configuration and the documentation. Values come in
//! layers, each over the one before: the defaults of the table, a TOML file, the environment,
//! and, for the database alone, a service that the platform has bound.
//!
//! Every mistake is found and named at once, and the program then refuses to start with exit
//! code 64: an operator should need one attempt, not one per mistake. Text that is empty counts
//! as not set, wherever it comes from.

mod bindings;
mod declare;
mod file;
mod groups;
mod layers;
mod mistake;
mod parse;
mod print;
mod program;
mod reader;
mod setting;

pub use declare::{Given, Holds};
pub use groups::{HealthSettings, HttpSettings, LogFormat, LogSettings, TlsSettings};
pub use layers::Variables;
pub use mistake::Mistake;
pub use program::{EXIT_SETTINGS, ExitPlan, Groups, Printout, Program, load, load_from_process};
pub use reader::Reader;
pub use setting::{Kind, Setting, Value};

/// What is shown in the place of a secret.
pub(crate) const HIDDEN: &str = "<hidden>";
