//! The problems of requests that are not served now, with their `Retry-After`.

use std::time::Duration;

use sampler_domain::Timestamp;
use sampler_service::problem::kinds::OVERLOADED;
use sampler_service::problem::{Problem, ProblemType, StatusCode};
use sampler_service::telemetry::error_chain;
use sampler_store::StoreError;
use tokio::sync::OwnedSemaphorePermit;
use tracing::{error, warn};

use crate::Receiver;
use crate::admission::{Client, Kind, Turn, TurnedAway};
use crate::problems::{BODIES_THROTTLED, DATABASE_UNAVAILABLE};

/// The shortest `Retry-After` when the database is unavailable. It is spread over 5 to 9:
/// an election takes some ten seconds, so the second repeat at the latest finds a primary.
const RETRY_AFTER_OUTAGE: u64 = 5;

/// The shortest `Retry-After` when the receiver is overloaded.
const RETRY_AFTER_OVERLOAD: u64 = 1;

/// Over how many seconds the repeats of clients are spread, at least.
const SPREAD_MIN: u64 = 4;

/// The age of an event whose span no worker has removed, ms: they keep each for a day.
const RECENT: i64 = 12 * 3_600_000;

/// What the store was asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Task {
    KeepEvent,
    Read,
    /// Record an action in the audit trail, before it is carried out.
    Record,
    Act,
}

impl Receiver {
    /// The problem of a request for which the store failed.
    pub(crate) fn failed(&self, task: Task, failure: &StoreError) -> Problem {
        log(failure);
        let detail = match (failure, task) {
            (StoreError::Refused(_), _) => return Problem::internal(),
            (StoreError::Overloaded, Task::KeepEvent) => {
                return self.overloaded("Too many events wait for the database. Nothing was kept.");
            }
            (StoreError::Unknown(_), Task::KeepEvent) => {
                return self.unknown(
                    "The database gave no final answer. The event may or may not have been kept: repeat it with the \
                     same id.",
                );
            }
            (StoreError::Unknown(_), Task::Act) => {
                return self.unknown(
                    "The database gave no final answer. The action may or may not be done: read its subject again \
                     before you repeat it.",
                );
            }
            (_, Task::Read) => "The database cannot answer now.",
            (_, Task::KeepEvent) => "The database cannot keep the event now. Nothing was kept.",
            (_, Task::Record | Task::Act) => {
                "The database cannot record the action now. Nothing was done."
            }
        };
        self.unavailable(detail)
    }

    /// The problem of an event of a batch that was not tried, because an earlier one has no final answer.
    pub(crate) fn held_back_by(&self, earlier: &Problem) -> Problem {
        let detail = "An earlier event of the same instance in this batch has no final answer. This \
                      one was not tried: send both again.";
        match (earlier.status(), earlier.seconds_to_wait()) {
            (StatusCode::SERVICE_UNAVAILABLE, Some(seconds)) => {
                Problem::new(earlier.kind(), detail).retry_after(seconds)
            }
            _ => self.unavailable(detail),
        }
    }

    fn unavailable(&self, detail: &str) -> Problem {
        self.later(&DATABASE_UNAVAILABLE, detail, RETRY_AFTER_OUTAGE)
    }

    fn unknown(&self, detail: &str) -> Problem {
        let seconds = whole_seconds(self.unknown_for).max(RETRY_AFTER_OUTAGE);
        self.later(&DATABASE_UNAVAILABLE, detail, seconds)
    }

    fn overloaded(&self, detail: &str) -> Problem {
        self.later(&OVERLOADED, detail, RETRY_AFTER_OVERLOAD)
    }

    /// A problem of a client that may come again after at least `seconds`, and less than twice as many or 4 more:
    /// clients that were refused together must not come back together.
    fn later(&self, kind: &'static ProblemType, detail: &str, seconds: u64) -> Problem {
        let spread = self.parts.random.u64() % seconds.max(SPREAD_MIN);
        Problem::new(kind, detail).retry_after(seconds + spread)
    }

    /// Waits for a turn: 503 if none comes in time.
    pub(crate) async fn turn(
        &self,
        kind: Kind,
        client: Client,
        weight: usize,
    ) -> Result<Turn, Problem> {
        let turn = self.admission.turn(kind, client, weight).await;
        turn.map_err(|reason| self.turned_away(reason))
    }

    /// Counts a request against `MAX_INFLIGHT`, where that is set.
    pub(crate) fn count(&self, is_stop: bool) -> Result<Vec<OwnedSemaphorePermit>, Problem> {
        let counted = self.admission.count(is_stop);
        counted.map_err(|reason| self.turned_away(reason))
    }

    pub(crate) fn turned_away(&self, reason: TurnedAway) -> Problem {
        match reason {
            TurnedAway::Limit => {
                self.overloaded("MAX_INFLIGHT requests are in flight already. Nothing was kept.")
            }
            TurnedAway::Queue => {
                self.overloaded("The request waited too long for its turn. Nothing was done.")
            }
            TurnedAway::Memory => {
                let detail =
                    "Bodies of this client take all the memory that it may have. Nothing was kept.";
                self.later(&BODIES_THROTTLED, detail, RETRY_AFTER_OVERLOAD)
            }
        }
    }

    /// Refuses requests before the indexes exist, and before the control is known. Without them a repeat would be
    /// kept twice, and a list would read all spans.
    pub(crate) fn require_prepared(&self) -> Result<(), Problem> {
        if self.is_prepared() {
            return Ok(());
        }
        Err(self.unavailable("The database is being prepared. Nothing was done."))
    }

    /// Refuses an old event while the receiver does not know since when events are taken: a repeat may not
    /// be recognised any more.
    pub(crate) fn require_age_known(
        &self,
        timestamp: Timestamp,
        now: Timestamp,
    ) -> Result<(), Problem> {
        let is_recent = now.since(timestamp) < RECENT;
        if is_recent || self.steering.events_taken_since().is_some() {
            return Ok(());
        }
        Err(self.unavailable("How old events may be could not be read. Nothing was kept."))
    }
}

fn log(failure: &StoreError) {
    let error = error_chain(failure);
    let (code, message) = match failure {
        // Who makes the index has logged that.
        StoreError::Preparing => return,
        StoreError::Refused(_) => {
            error!(code = "database.refused", error, "the database refused");
            return;
        }
        StoreError::Unavailable(_) => ("database.unavailable", "the database is unavailable"),
        StoreError::Overloaded => (
            "database.overloaded",
            "too many events wait for the database",
        ),
        StoreError::Unknown(_) => ("database.no_answer", "the database gave no final answer"),
    };
    warn!(code, error, "{message}");
}

/// Seconds, rounded up, so that no client comes back too early; at least one.
pub(crate) fn whole_seconds(wait: Duration) -> u64 {
    let begun = u64::from(wait.subsec_nanos() > 0);
    wait.as_secs().saturating_add(begun).max(1)
}
