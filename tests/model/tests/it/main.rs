//! The model, and what it must find.

mod mutants;
mod protocol;
