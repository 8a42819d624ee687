//! Chaos: real receivers and workers on a real replica set of three, under load from many clients,
//! while everything fails that can fail on one machine.
//!
//! - [`schedule`]: which fault comes when, from a seed. [`proxy`]: links that fail.
//! - [`Record`]: what each client sent and was answered. [`Evidence`]: that, and what Abacus counted.
//! - [`check()`]: whether that is right, without knowledge of how it is done.
//! - [`run()`]: all of it, from starting the servers to the verdict.

mod check;
mod client;
mod cluster;
mod event;
mod evidence;
mod fleet;
mod history;
mod inject;
mod observer;
pub mod proxy;
mod report;
mod run;
pub mod schedule;
mod sender;
mod stats;
mod timeline;
mod view;

pub use check::{Rule, Verdict, Violation, check};
pub use event::{Kind, Measure, Target};
pub use evidence::{Aside, Evidence, Span, Usage};
pub use fleet::ProgramId;
pub use history::{Answer, Attempt, Event, FaultRecord, ProgramEnd, Record};
pub use report::Report;
pub use run::{Options, run};
