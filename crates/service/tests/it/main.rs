//! The shared parts as a program uses them: a server on a real socket, real signals.

#![allow(clippy::unwrap_used, reason = "a test may end with a panic")]

mod lifecycle;
mod log;
mod oauth;
mod serving;
