//! The verifier against ledgers that a second, small implementation writes, with and without faults.

#![expect(clippy::unwrap_used, reason = "a test may end with a panic")]

mod events;
mod examples;
mod faults;
mod fits;
mod matching;
mod truth;

/// The verifier names no crate of this repository: what it shares with the programs, it cannot check.
#[test]
fn it_depends_on_nothing_of_ours() {
    let manifest = include_str!("../../Cargo.toml");
    let dependencies = manifest.split("[dependencies]").nth(1).unwrap();
    assert!(!dependencies.contains("sampler"), "{dependencies}");
}
