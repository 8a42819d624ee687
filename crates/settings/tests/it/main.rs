//! The groups of both programs: what the original's manifest makes of them, and how their tables fit.

#[cfg(test)]
mod groups;
