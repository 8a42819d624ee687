//! The problems of requests that are not served now, with their `Retry-After`.

use std::time::Duration;

use sampler_domain::Timestamp;
use sampler_service::problem::{Problem, StatusCode};
use sampler_service::telemetry::error_chain;
use sampler_store::StoreError;
use tokio::sync::OwnedSemaphorePermit;
use tracing::{error, warn};

use crate::admission::{Client, Kind, Turn, TurnedAway};
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

/// What the store was asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Task {
    KeepEvent,
    Read,
    /// Record an action in the audit trail, before it is carried out.
    Record,
    Act,
}

impl Task {
    /// What is to be told once it is certain that nothing was done.
    fn nothing_done(self) -> &'static str {
        match self {
            Self::KeepEvent => " Nothing was kept.",
            Self::Read => "",
            Self::Record | Self::Act => " Nothing was done.",
        }
    }
}

impl Receiver {
    /// The problem of a request for which the store failed.
    pub(crate) fn failed(&self, task: Task, failure: &StoreError) -> Problem {
        log(failure);
        let detail = match (failure, task) {
            (StoreError::Refused(_), _) => return Problem::internal(),
            (_, Task::Record) => "The action could not be recorded in the audit trail.",
            (StoreError::Unavailable(_), _) => "The database cannot be reached.",
            (StoreError::Preparing, _) => "The database is being prepared.",
            (StoreError::Overloaded | StoreError::Unknown(_), Task::Read) => {
                "The database gave no answer in time."
            }
            (StoreError::Overloaded, Task::KeepEvent) => {
                return self.overloaded("Too many events wait for the database. Nothing was kept.");
            }
            (StoreError::Overloaded, Task::Act) => "Too many changes wait for the database.",
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
        };
        self.unavailable(&format!("{detail}{}", task.nothing_done()))
    }

    /// The problem of an event of a batch that was not tried, because an earlier one has no final answer.
    pub(crate) fn held_back_by(&self, earlier: &Problem) -> Problem {
        let detail = "An earlier event of the same instance in this batch has no final answer. This \
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

    fn overloaded(&self, detail: &str) -> Problem {
        Problem::new(&problems::OVERLOADED, detail).retry_after(self.spread(RETRY_AFTER_OVERLOAD))
    }

    /// Waits for a turn.
    ///
    /// # Errors
    /// 503 if no turn comes in time.
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
                Problem::new(&problems::BODIES_THROTTLED, detail)
                    .retry_after(self.spread(RETRY_AFTER_OVERLOAD))
            }
        }
    }

    /// At least `seconds`, and less than twice as many or 4 more: clients that were refused together must
    /// not come back together.
    fn spread(&self, seconds: u64) -> u64 {
        seconds + self.parts.random.u64() % seconds.max(SPREAD_MIN)
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
        let detail = "How old events may be could not be read. Nothing was kept.";
        Err(self.unavailable(detail))
    }
}

fn log(failure: &StoreError) {
    let error = error_chain(failure);
    match failure {
        StoreError::Unavailable(_) => {
            warn!(
                code = "database.unavailable",
                error, "the database is unavailable"
            );
        }
        // Who makes the index has logged that.
        StoreError::Preparing => {}
        StoreError::Overloaded => {
            warn!(
                code = "database.overloaded",
                error, "too many events wait for the database"
            );
        }
        StoreError::Unknown(_) => {
            warn!(
                code = "database.no_answer",
                error, "the database gave no final answer"
            );
        }
        StoreError::Refused(_) => {
            error!(code = "database.refused", error, "the database refused");
        }
    }
}

/// Seconds, rounded up, so that no client comes back too early; at least one.
pub(crate) fn whole_seconds(wait: Duration) -> u64 {
    let begun = u64::from(wait.subsec_nanos() > 0);
    wait.as_secs().saturating_add(begun).max(1)
}
