//! The settings of the two programs. Each setting is declared once, in a group; the code that uses
//! a setting gets its whole group. Each program is a list of groups ([`ReceiverSettings`],
//! [`WorkerSettings`]): a new group is declared, and named in these lists.
//!
//! Settings of any program, such as `PORT` and `LOG_LEVEL`, are declared in `sampler_service`.
//! Both tables are here because each program accepts the other's settings beside its own.
//! `sampler_service::settings` reads, checks and prints them, and describes the path of a setting.

mod common;
mod database;
mod distress;
mod ledger;
mod programs;
pub mod receiver;
mod sampling;
mod upstream;
mod uri_options;
pub mod worker;

use std::time::Duration;

pub use common::CommonSettings;
pub use database::{DatabaseSettings, DatabaseUri};
pub use distress::DistressSettings;
pub use ledger::LedgerRetention;
pub use receiver::ReceiverSettings;
pub use sampling::{MonthSettings, SamplingSettings, SlackSettings};
pub use upstream::{CloudEventsSettings, UpstreamSettings};
pub use uri_options::ReplacedOption;
pub use worker::WorkerSettings;

const TEN_MILLIS: Duration = Duration::from_millis(10);
const TENTH_OF_A_SECOND: Duration = Duration::from_millis(100);
const SECOND: Duration = Duration::from_secs(1);
const TEN_MINUTES: Duration = Duration::from_mins(10);
const HOUR: Duration = Duration::from_hours(1);
const DAY: Duration = Duration::from_hours(24);

/// The longest slack.
const YEAR: Duration = Duration::from_hours(366 * 24);

/// Whole milliseconds; no setting takes more than fit.
pub fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}
