//! The model, and what it must find.

mod controller;
mod planted_bugs;
mod protocol;
