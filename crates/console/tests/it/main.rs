//! The console over an API whose answers a test decides.

#![allow(clippy::unwrap_used, reason = "a test may end with a panic")]

mod acts;
mod hostile;
mod pages;
mod safety;
mod stub;
mod timeline;
