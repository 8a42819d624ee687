//! Waiting for what is to come true, instead of sleeping.

use std::future::Future;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Result, bail};

/// How often a condition is checked.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// The machine's clock, in ms since epoch.
#[expect(
    clippy::disallowed_methods,
    reason = "tests of real processes need the real clock"
)]
pub fn now_millis() -> i64 {
    let elapsed = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    i64::try_from(elapsed.as_millis()).unwrap_or(i64::MAX)
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
