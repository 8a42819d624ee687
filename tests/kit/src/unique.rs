//! Names that no other test uses.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::now_millis;

/// A short text that is different at each call, in each process of this machine, over restarts.
pub fn unique() -> String {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    let count = COUNTER.fetch_add(1, Ordering::Relaxed);
    // Process ids are used again after a while; the seconds keep the runs of a day apart.
    let seconds = now_millis() / 1000 % 1_000_000;
    format!("{}_{seconds}_{count}", std::process::id())
}
