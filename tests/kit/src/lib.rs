//! For tests and `xtask` only: the world around Sampler, real where it can be.
//!
//! - [`mongod`]: a real MongoDB replica set on any machine, and a fresh database per test.
//! - [`abacus`]: a stand-in for the Abacus collector that judges, forgets and lies on demand.
//! - [`tls`]: certificates, and TLS in front of what speaks without.
//! - [`uaa`]: a stand-in for UAA, and keys that sign whatever a test wants.
//! - [`cloud_foundry`]: a stand-in for a Cloud Controller and its UAA.
//! - [`oidc`]: a certified `OpenID` provider, which is not ours.
//! - [`browser`]: a real Chromium that visits the console.
//! - [`program`]: the real receiver and worker as child processes.
//! - [`build`]: events; [`rng`]: numbers from a seed; [`wait_until`]: waiting without sleeping.

pub mod abacus;
pub mod browser;
pub mod build;
pub mod cloud_foundry;
pub mod guard;
pub mod meter;
pub mod mongod;
mod npm;
pub mod oidc;
pub mod program;
pub mod rng;
mod serving;
pub mod tls;
pub mod uaa;
mod unique;
mod wait;
mod workspace;

/// Here, and not with the tests alone: they would be built with other features of its dependencies,
/// and so the driver of MongoDB twice.
pub use boon;
pub use mongod::TestDatabase;
pub use program::Program;
pub use unique::unique;
pub use wait::{now_millis, wait_until, within};
pub use workspace::{target_dir, workspace_dir};
