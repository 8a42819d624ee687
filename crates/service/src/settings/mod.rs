//! The settings of a program.
//!
//! A setting is declared once, in a group ([`settings!`]). The declaration gives the typed value, the
//! checks, the commented defaults, the printed configuration and the documentation.
//!
//! The path of a setting:
//!
//! 1. *Declared* in `crates/settings`. The groups that belong to this crate are in `common_groups.rs` (HTTP,
//!    traces, health, log) and `security/settings.rs`.
//! 2. *Merged* from its layers (`layers.rs`, `bindings.rs`). Each layer overrides the previous one:
//!    the defaults, a TOML file, the environment, and for the database a service that the platform
//!    has bound. An empty text counts as not set, in every layer.
//! 3. *Parsed and checked* alone (`setting.rs`, `parse.rs`), and returned by its key (`reader.rs`).
//! 4. *Checked against others*: of its group by the function behind `checked by`, of other groups in
//!    `receiver/src/settings.rs` and `worker/src/settings.rs`, which hand it to the program.
//! 5. *Printed* for `--print-config` and the other flags that print (`print.rs`); `tests/xtask/src/docs.rs` writes the
//!    same texts to `docs/`.
//!
//! All mistakes are named at once, so that one attempt is enough to find them; the program then ends
//! with exit code 64.

mod bindings;
mod common_groups;
mod declare;
mod layers;
mod parse;
mod print;
mod program;
mod reader;
mod setting;
mod similar;

pub use common_groups::{HealthSettings, HttpSettings, LogFormat, LogSettings, TraceSettings};
pub use declare::{FromParsed, FromText};
pub use layers::Variables;
pub use parse::duration;
pub use program::{EXIT_SETTINGS, EarlyExit, Printout, Program, Table, load};
pub use reader::Reader;
pub use setting::{Kind, Setting};

/// The text that is shown instead of a secret.
pub(crate) const HIDDEN: &str = "<hidden>";
