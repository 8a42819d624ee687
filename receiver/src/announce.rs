//! Announces to the workers how far into the past this receiver takes events
//! (`SAMPLER_SLACK_PAST_INTERVAL`).
//!
//! A worker removes complete spans, and the ids of their events with them, once no receiver takes
//! those events. It knows its own settings alone. So each receiver announces its slack
//! before it takes an event, and again and again while it runs.

use std::time::Duration;

use tracing::warn;

use crate::Receiver;

/// The pause before an announcement that failed is tried again.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// How often the slack is announced again. An announcement counts for a week.
const RENEWAL: Duration = Duration::from_mins(10);

impl Receiver {
    /// Announces the slack as soon as the store can be reached, and reads the control; then the receiver takes
    /// events. The indexes must exist. Tries again until `given_up` ends. Returns whether the receiver takes
    /// events.
    pub async fn prepare(&self, given_up: impl Future<Output = ()>) -> bool {
        let prepared = async {
            while !self.announce().await {
                tokio::time::sleep(RETRY_PAUSE).await;
            }
            // The rate of starts must be known before the first one comes.
            self.steering.poll().await;
            while !self.steering.is_known() {
                tokio::time::sleep(RETRY_PAUSE).await;
                self.steering.poll().await;
            }
        };
        tokio::select! {
            () = given_up => return false,
            () = prepared => {}
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
        let announced = self.parts.events.announce_slack(self.slack.past).await;
        if let Err(error) = &announced {
            let cause = std::error::Error::source(error).map(ToString::to_string);
            warn!(code = "receiver.announce", error = %error, cause, "how old events may be cannot be announced to the workers yet");
        }
        announced.is_ok()
    }
}
