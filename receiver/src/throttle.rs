//! New starts beyond the rate of starts, while that is below 100 %.
//!
//! The id of a start, the minute and the rate decide whether it is admitted ([`Place`]). So a client
//! that repeats a start each minute gets in, and receivers remember nothing. Stops always pass, and
//! so do repeats of starts that were kept.

use sampler_domain::{Percent, Place, StartEvent, Timestamp};
use sampler_service::problem::Problem;

use crate::{Receiver, problems};

/// A minute, in ms.
const MINUTE: i64 = 60_000;

/// The longest `Retry-After`, s: rates change, and a client that comes early is refused again.
const RETRY_AFTER_MAX: u64 = 300;

/// Repeats are spread over this many seconds of their minute. The other seconds are for clocks that
/// differ.
const SPREAD: u64 = 45;

impl Receiver {
    /// The problem of a start that the rate does not admit now; `None` where it is admitted.
    pub(crate) fn throttled(&self, event: &StartEvent, now: Timestamp) -> Option<Problem> {
        let rate = self.steering.start_rate_of(&event.target.resource_id);
        if rate == Percent::ALL {
            return None;
        }
        let place = Place::of(event.id.as_ref(), &event.target);
        let admitted_at = place.admitted_at(now, rate);
        if admitted_at == Some(now) {
            return None;
        }
        let detail = "New starts are currently admitted at a lower rate. Nothing was kept: send the \
                      same event again, with the same timestamp.";
        let wait = admitted_at.map_or(MINUTE, |at| at.since(now));
        let seconds = wait.unsigned_abs().div_ceil(1_000);
        let seconds = (seconds + self.parts.random.u64() % SPREAD).clamp(1, RETRY_AFTER_MAX);
        Some(Problem::new(&problems::THROTTLED, detail).retry_after(seconds))
    }
}
