//! Chaos: real receivers and workers on a real replica set of three, under load from many clients,
//! while everything fails that can fail on one machine.
//!
//! - [`schedule`]: which fault comes when, from a seed. [`proxy`]: links that fail.
//! - [`Record`]: what each client sent and was answered. [`Evidence`]: that, and what Abacus counted.
//! - Operators act by the API alone, at any time. Abacus's clock runs faster than that of the machine, so
//!   that what workers put off by minutes comes within a short run.
//! - [`check()`]: whether that is right, without knowledge of how it is done. `sampler-verify` checks the
//!   bill of each span.
//! - [`run()`]: all of it, from starting the servers to the verdict.

mod api;
mod check;
mod client;
mod cluster;
mod event;
mod evidence;
mod fleet;
mod history;
mod inject;
mod observer;
mod operator;
pub mod proxy;
mod report;
mod run;
pub mod schedule;
mod sender;
mod stats;
mod timeline;
mod view;

pub use check::{Rule, Undecidable, Verdict, Violation, check};
pub use event::{Kind, Target};
pub use evidence::{Aside, Entry, Evidence, Post, Trace, Usage};
pub use fleet::ProgramId;
pub use history::{Act, ActKind, Answer, Attempt, Event, FaultRecord, ProgramEnd, Record};
pub use report::Report;
pub use run::{Options, run};
