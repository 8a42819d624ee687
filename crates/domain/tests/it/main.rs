//! Properties of the state machine, of usages and of ids, over spans of any kind.

#![allow(clippy::unwrap_used, reason = "a test may end with a panic")]

mod calendar;
mod guid;
mod intake;
mod law;
mod machine;
mod oracle;
mod skip;
mod support;
mod world;
