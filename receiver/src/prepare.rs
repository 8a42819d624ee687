//! What a receiver has to know before it takes an event.

use std::time::Duration;

use crate::Receiver;

/// The pause before what could not be read is read again.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

impl Receiver {
    /// Reads the control, and how old events may be; then the receiver takes events. The indexes must exist. Tries again until
    /// `given_up` ends. Returns whether the receiver takes events.
    pub async fn prepare(&self, given_up: impl Future<Output = ()>) -> bool {
        let prepared = async {
            self.steering.poll().await;
            while !(self.steering.is_known() && self.steering.knows_event_age()) {
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
}
