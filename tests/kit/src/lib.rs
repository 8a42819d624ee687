//! For tests and `xtask` only: the world around Sampler, real where it can be.
//!
//! - [`mongod`]: a real MongoDB replica set on any machine, and a fresh database per test.
//! - [`abacus`]: a stand-in for the Abacus collector that judges, forgets and lies on demand.
//! - [`meter`]: a stand-in for an upstream that takes CloudEvents.
//! - [`tls`]: certificates, and TLS in front of what speaks without.
//! - [`uaa`]: a stand-in for UAA, and keys that sign whatever a test wants.
//! - [`cloud_foundry`]: a stand-in for a Cloud Controller and its UAA.
//! - [`node`]: a certified `OpenID` provider, which is not ours, and a real Chromium that visits the console.
//! - [`program`]: the real receiver and worker as child processes.
//! - [`build`]: events; [`rng`]: numbers from a seed; [`wait_until`]: waiting without sleeping.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Result, bail};

pub mod abacus;
pub mod build;
pub mod cloud_foundry;
pub mod guard;
pub mod meter;
pub mod mongod;
pub mod node;
pub mod program;
pub mod rng;
mod serving;
pub mod tls;
pub mod uaa;

/// Here, and not with the tests alone: they would be built with other features of its dependencies,
/// and so the driver of MongoDB twice.
pub use boon;
pub use mongod::TestDatabase;
pub use program::Program;

/// How often a condition is checked.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// The machine's clock, in ms since epoch.
#[expect(
    clippy::disallowed_methods,
    reason = "tests of real processes need the real clock"
)]
pub fn now_millis() -> i64 {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH);
    i64::try_from(elapsed.unwrap_or_default().as_millis()).unwrap_or(i64::MAX)
}

/// Waits until `condition` comes true.
///
/// # Panics
///
/// With `what` when `limit` passes first.
pub async fn wait_until<C, F>(what: &str, limit: Duration, condition: C)
where
    C: FnMut() -> F,
    F: Future<Output = bool>,
{
    let waited = within(what, limit, condition).await;
    assert!(waited.is_ok(), "{what}: not within {limit:?}");
}

/// Waits until `condition` comes true.
pub async fn within<C, F>(what: &str, limit: Duration, mut condition: C) -> Result<()>
where
    C: FnMut() -> F,
    F: Future<Output = bool>,
{
    let begin = Instant::now();
    while !condition().await {
        if begin.elapsed() > limit {
            bail!("{what}: not within {limit:?}");
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    Ok(())
}

/// A short text that is different at each call, in each process of this machine, over restarts.
pub fn unique() -> String {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    let count = COUNTER.fetch_add(1, Ordering::Relaxed);
    // Process ids are used again after a while; the seconds keep the runs of a day apart.
    let seconds = now_millis() / 1000 % 1_000_000;
    format!("{}_{seconds}_{count}", std::process::id())
}

/// The folder of the workspace's `Cargo.toml`.
pub fn workspace_dir() -> PathBuf {
    // The crate lies two levels below.
    let crate_dir = Path::new(env!("CARGO_MANIFEST_DIR"));
    let workspace = crate_dir.ancestors().nth(2);
    workspace.unwrap_or(crate_dir).to_path_buf()
}

/// The folder that cargo builds into.
pub fn target_dir() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(folder) => workspace_dir().join(folder),
        None => workspace_dir().join("target"),
    }
}
