//! The model, and what it must find.

mod planted_bugs;
mod protocol;
