//! A short run.

#![allow(clippy::unwrap_used, reason = "a test may end with a panic")]

use std::time::Duration;

use sampler_chaos::{Options, run};

/// Long enough for each of the faults that every seed begins with.
const LENGTH: Duration = Duration::from_secs(45);

#[tokio::test(flavor = "multi_thread")]
async fn a_short_chaos_bills_what_was_acknowledged_once() {
    let options = Options {
        seed: 1,
        length: LENGTH,
        clients: 16,
    };
    let report = run(options).await.unwrap();
    eprintln!("{report}");
    assert!(report.is_right(), "see {}", report.folder.display());
    // A run in which nothing happens proves nothing.
    assert!(report.faults() >= 10, "{report}");
    assert_eq!(report.missing(), Vec::<&str>::new(), "{report}");
}
