//! The problems of requests that are not served now, with their `Retry-After`.

use std::time::Duration;

use sampler_domain::Timestamp;
use sampler_service::problem::{Problem, StatusCode};
use sampler_service::telemetry::error_chain;
use sampler_store::StoreError;
use tracing::{error, warn};

use crate::admission::TurnedAway;
use crate::{Receiver, problems};

/// The shortest `Retry-After` when the database is unavailable. It is spread over 5 to 9:
/// an election takes some ten seconds, so the second repeat at the latest finds a primary.
const RETRY_AFTER_OUTAGE: u64 = 5;

/// The age of an event whose span no worker has removed, ms: they keep each for a day.
const RECENT: i64 = 12 * 3_600_000;

/// The shortest `Retry-After` when the receiver is overloaded.
const RETRY_AFTER_OVERLOAD: u64 = 1;

/// Over how many seconds the repeats of clients are spread, at least.
const SPREAD_MIN: u64 = 4;

impl Receiver {
    pub(super) fn store_problem(&self, failure: &StoreError) -> Problem {
        log(failure);
        match failure {
            StoreError::Unavailable(_) => {
                self.unavailable("The database cannot be reached. Nothing was kept.")
            }
            StoreError::Preparing => {
                self.unavailable("The database is being prepared. Nothing was kept.")
            }
            StoreError::Overloaded => {
                let detail = "Too many events wait for the database. Nothing was kept.";
                Problem::new(&problems::OVERLOADED, detail)
                    .retry_after(self.spread(RETRY_AFTER_OVERLOAD))
            }
            StoreError::Unknown(_) => {
                let detail = "The database gave no final answer. The event may or may not have \
                              been kept: repeat it with the same id.";
                self.unknown(detail)
            }
            StoreError::Refused(_) => Problem::internal(),
        }
    }

    /// The same for a request that only reads.
    pub(crate) fn not_read(&self, failure: &StoreError) -> Problem {
        log(failure);
        match failure {
            StoreError::Unavailable(_) => self.unavailable("The database cannot be reached."),
            StoreError::Preparing => self.unavailable("An index that this needs is being made."),
            StoreError::Unknown(_) | StoreError::Overloaded => {
                self.unavailable("The database gave no answer in time.")
            }
            StoreError::Refused(_) => Problem::internal(),
        }
    }

    /// The same for an action that could not be recorded in the audit trail: it is not carried out.
    pub(crate) fn failure_of_recording(&self, failure: &StoreError) -> Problem {
        log(failure);
        match failure {
            StoreError::Refused(_) => Problem::internal(),
            _ => self.unavailable(
                "The action could not be recorded in the audit trail. Nothing was done.",
            ),
        }
    }

    /// The same for an action that is in the audit trail.
    pub(crate) fn failure_of_action(&self, failure: &StoreError) -> Problem {
        log(failure);
        match failure {
            StoreError::Overloaded => {
                self.unavailable("Too many changes wait for the database. Nothing was done.")
            }
            StoreError::Unavailable(_) | StoreError::Preparing => {
                self.unavailable("The database cannot be reached. Nothing was done.")
            }
            StoreError::Unknown(_) => {
                let detail = "The database gave no final answer. The action may or may not be done: read \
                              its subject again before you repeat it.";
                self.unknown(detail)
            }
            StoreError::Refused(_) => Problem::internal(),
        }
    }

    /// The problem of an event of a batch that was not tried, because an earlier one of its target has no
    /// final answer.
    pub(super) fn held_back_by(&self, earlier: &Problem) -> Problem {
        let detail = "An earlier event of the same target in this batch has no final answer. This \
                      one was not tried: send both again.";
        let (kind, seconds) = match earlier.status() {
            StatusCode::SERVICE_UNAVAILABLE => (earlier.kind(), earlier.seconds_to_wait()),
            _ => (&problems::DATABASE_UNAVAILABLE, None),
        };
        Problem::new(kind, detail)
            .retry_after(seconds.unwrap_or_else(|| self.spread(RETRY_AFTER_OUTAGE)))
    }

    fn unavailable(&self, detail: &str) -> Problem {
        Problem::new(&problems::DATABASE_UNAVAILABLE, detail)
            .retry_after(self.spread(RETRY_AFTER_OUTAGE))
    }

    fn unknown(&self, detail: &str) -> Problem {
        let seconds = whole_seconds(self.unknown_for).max(RETRY_AFTER_OUTAGE);
        Problem::new(&problems::DATABASE_UNAVAILABLE, detail).retry_after(self.spread(seconds))
    }

    pub(crate) fn turned_away(&self, reason: TurnedAway) -> Problem {
        let (kind, detail) = match reason {
            TurnedAway::Limit => (
                &problems::OVERLOADED,
                "MAX_INFLIGHT requests are in flight already.",
            ),
            TurnedAway::Queue => (
                &problems::OVERLOADED,
                "The request waited too long for its turn, or this client has the most requests \
                 waiting.",
            ),
            TurnedAway::Memory => (
                &problems::BODIES_THROTTLED,
                "Bodies of this client take all the memory that it may have.",
            ),
        };
        let detail = format!("{detail} Nothing was kept.");
        Problem::new(kind, detail).retry_after(self.spread(RETRY_AFTER_OVERLOAD))
    }

    /// The problem of a request that would be one too many at the same time.
    pub(crate) fn overloaded(&self, detail: &str) -> Problem {
        Problem::new(&problems::OVERLOADED, detail).retry_after(self.spread(RETRY_AFTER_OVERLOAD))
    }

    /// At least `seconds`, and less than twice as many or 4 more: clients that were refused together must
    /// not come back together.
    pub(super) fn spread(&self, seconds: u64) -> u64 {
        seconds + self.parts.random.u64() % seconds.max(SPREAD_MIN)
    }

    /// Refuses events before the unique indexes exist, without which a repeat would be kept twice, and before
    /// the control is known.
    pub(crate) fn require_prepared(&self) -> Result<(), Problem> {
        self.require_preparation("The database is being prepared. Nothing was kept.")
    }

    /// Refuses an old event while the receiver does not know since when events are taken: a repeat may not
    /// be recognised any more.
    pub(super) fn require_age_known(
        &self,
        timestamp: Timestamp,
        now: Timestamp,
    ) -> Result<(), Problem> {
        let is_recent = now.since(timestamp) < RECENT;
        if is_recent || self.steering.events_taken_since().is_some() {
            return Ok(());
        }
        let detail = "How old events may be could not be read. Nothing was kept.";
        Err(self.unavailable(detail))
    }

    /// Refuses to read before the indexes exist: without them a list would read all spans.
    pub(crate) fn require_readable(&self) -> Result<(), Problem> {
        self.require_preparation("The database is being prepared.")
    }

    fn require_preparation(&self, detail: &str) -> Result<(), Problem> {
        let is_prepared = self.is_prepared();
        is_prepared
            .then_some(())
            .ok_or_else(|| self.unavailable(detail))
    }
}

fn log(failure: &StoreError) {
    let causes = error_chain(failure);
    match failure {
        StoreError::Unavailable(_) => warn!(
            code = "database.unavailable",
            error = causes,
            "the database is unavailable"
        ),
        // Who makes the index has logged that.
        StoreError::Preparing => {}
        StoreError::Overloaded => warn!(
            code = "database.overloaded",
            error = causes,
            "too many events wait for the database"
        ),
        StoreError::Unknown(_) => warn!(
            code = "database.no_answer",
            error = causes,
            "the database gave no final answer"
        ),
        StoreError::Refused(_) => error!(
            code = "database.refused",
            error = causes,
            "the database refused"
        ),
    }
}

/// Seconds, rounded up, so that no client comes back too early; at least one.
pub(super) fn whole_seconds(wait: Duration) -> u64 {
    let begun = u64::from(wait.subsec_nanos() > 0);
    wait.as_secs().saturating_add(begun).max(1)
}
