//! Telling the workers how far into the past events are taken.
//!
//! A worker removes complete spans, and the ids of their events with them, once no receiver would
//! take those events again. It knows its own settings alone, so each receiver says what it takes
//! before it takes anything, and says it again for as long as it runs.

use std::time::Duration;

use tracing::warn;

use crate::Receiver;

/// The pause before an announcement that failed is tried again.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// How often it is said again. It counts for a week.
const RENEWAL: Duration = Duration::from_mins(10);

impl Receiver {
    /// Announces the slack as soon as the store can be reached, and takes events from then on; the
    /// indexes must be in place. Asks again and again until `given_up` ends. Says whether events are
    /// taken.
    pub async fn prepare(&self, given_up: impl Future<Output = ()>) -> bool {
        let mut given_up = std::pin::pin!(given_up);
        while !self.announce().await {
            tokio::select! {
                () = &mut given_up => return false,
                () = tokio::time::sleep(RETRY_PAUSE) => {}
            }
        }
        // A receiver that starts while starts are held back holds them back from the first one on.
        while !self.steering.is_known() {
            self.steering.look().await;
            if !self.steering.is_known() {
                tokio::select! {
                    () = &mut given_up => return false,
                    () = tokio::time::sleep(RETRY_PAUSE) => {}
                }
            }
        }
        self.set_prepared();
        true
    }

    /// Announces the slack again and again.
    pub async fn stay_announced(&self) {
        loop {
            let pause = if self.announce().await {
                RENEWAL
            } else {
                RETRY_PAUSE
            };
            tokio::time::sleep(pause).await;
        }
    }

    async fn announce(&self) -> bool {
        let announced = self
            .parts
            .events
            .announce_slack(self.options.slack.past)
            .await;
        if let Err(error) = &announced {
            let cause = std::error::Error::source(error).map(ToString::to_string);
            warn!(code = "receiver.announce", error = %error, cause, "the workers cannot be told yet how old events may be");
        }
        announced.is_ok()
    }
}
