//! The settings of the two programs.
//!
//! A setting is declared once, in a group, by the macro [`settings!`](table): its name, its type, its
//! default, its range and its description stand in one place. The code that uses a setting gets its whole
//! group. [`ReceiverSettings`] and [`WorkerSettings`] are lists of groups.
//!
//! Settings come from the environment, over a TOML file ([`load()`]). All mistakes are named at once:
//! values that are wrong alone (`value.rs`), and those that contradict each other (`check` of a group or of
//! a program). The program then ends with exit code 64.

mod common;
mod database;
mod load;
mod program;
mod reader;
pub mod receiver;
mod sampling;
mod security;
mod table;
mod upstream;
mod value;
pub mod worker;

use std::time::Duration;

pub use common::{HttpSettings, LogSettings, TraceSettings};
pub use database::{DatabaseSettings, DatabaseUri};
pub use load::Variables;
pub use program::{EarlyExit, Program, help, load, start};
pub use receiver::ReceiverSettings;
pub use sampling::{MonthSettings, SamplingSettings, SlackSettings};
pub use security::SecuritySettings;
pub use table::{Common, Setting, Settings};
pub use upstream::{Horizon, UpstreamKind, UpstreamSettings};
pub use worker::{DistressSettings, LedgerRetention, WorkerSettings};

/// Whole milliseconds; no setting takes more than fit.
pub fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}
