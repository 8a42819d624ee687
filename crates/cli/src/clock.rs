//! The present time, from the one place that asks the system for it.

use std::time::{SystemTime, UNIX_EPOCH};

/// Milliseconds since 1970.
#[expect(
    clippy::disallowed_methods,
    reason = "this is the place that supplies the time"
)]
pub(crate) fn now() -> i64 {
    let since_epoch = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX)
}
