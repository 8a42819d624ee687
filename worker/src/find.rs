//! Usages that are looked up before they are posted, because the upstream may have forgotten an earlier post.
//!
//! Finds have a limit of their own. A span that gets no permit at once waits in the store, not here:
//! however finds fail or hang, usages that need none are posted.

use sampler_domain::{Acceptance, Driver, Failure, Planned, Span, Timestamp};
use sampler_settings::millis;
use sampler_upstream::{Details, FindAnswer, Found, Sought};
use tracing::{info, warn};

use crate::Worker;
use crate::confirm::load;

/// Finds in flight, at the most.
const CONCURRENCY: usize = 16;

/// The part of all spans in progress that may wait for finds.
const SHARE: usize = 4;

/// A span that gets no permit waits as if it had failed so often.
const NOT_ASKED_ATTEMPTS: u32 = 7;

/// How many finds may be in flight in a worker with `spans` spans in progress.
pub(crate) fn finds_max(spans: usize) -> usize {
    (spans / SHARE).clamp(1, CONCURRENCY)
}

pub(crate) enum LookUp {
    There(Acceptance),
    /// It was not found, by a find that was sent then.
    NotThere {
        sent_at: Timestamp,
        status: Option<u16>,
    },
    /// There was no clear answer.
    Unclear(Unclear),
    /// Too many finds are under way.
    NotAsked,
}

/// No clear answer.
pub(crate) struct Unclear {
    /// The failure, in words; "find" is one of them.
    pub(crate) error: String,
    pub(crate) status: Option<u16>,
    /// How long nothing is to be asked, ms.
    pub(crate) wait: i64,
}

impl Worker {
    /// When this worker took the partition over; now, if it does not own the partition.
    pub(crate) fn owned_since(&self, partition: u32) -> Timestamp {
        let since = self.ownership.since(partition);
        let elapsed = since.map_or(0, |since| millis(since.elapsed()));
        self.now().plus(-elapsed)
    }

    /// Asks whether the upstream has the usage of a planned interval.
    pub(crate) async fn look_up(&self, driver: &mut Driver, planned: &Planned) {
        match self.find_once(&planned.usage_guid).await {
            LookUp::There(acceptance) => {
                info!(span.id = %driver.span().id, usage = %planned.usage_guid,
                    "the upstream has a usage from an earlier post");
                driver.on_found(acceptance);
            }
            LookUp::NotThere { sent_at, status } => {
                let unclear = Unclear {
                    error: "find: not there, and an earlier post may still come in".to_owned(),
                    status,
                    wait: 0,
                };
                let failure = self.find_failure(driver.span(), unclear);
                driver.on_not_there(sent_at, failure);
            }
            LookUp::Unclear(unclear) => {
                let failure = self.find_failure(driver.span(), unclear);
                warn!(code = "find.failed", span.id = %driver.span().id,
                    usage = %planned.usage_guid, retry_at = %failure.retry_at,
                    status = failure.status, error = failure.error,
                    "the upstream does not say whether it has a usage, so it is not posted");
                driver.on_failed(failure);
            }
            LookUp::NotAsked => driver.on_not_asked(self.now().plus(self.not_asked_wait())),
        }
    }

    fn find_failure(&self, span: &Span, unclear: Unclear) -> Failure {
        let retry_at = self.retry_at(span, unclear.wait);
        let details = Details {
            status: unclear.status,
            ..Details::default()
        };
        Failure {
            is_post: false,
            ..self.failure(retry_at, unclear.error, details)
        }
    }

    /// How long a span waits that got no permit, ms.
    fn not_asked_wait(&self) -> i64 {
        let backoff = self.settings.abacus.backoff();
        let wait = backoff.wait(NOT_ASKED_ATTEMPTS, self.parts.random.fraction());
        let paused = self.find_limit.remaining_pause().map_or(0, millis);
        wait.max(paused)
    }

    /// Asks for a usage, if there is a permit at once.
    pub(crate) async fn find_once(&self, usage_guid: &str) -> LookUp {
        let Some(permit) = self.find_limit.try_acquire() else {
            return LookUp::NotAsked;
        };
        let sent_at = self.now();
        let sought = Sought {
            usage_guid,
            location: "",
        };
        let Found { answer, status } = self.parts.upstream.find(sought, sent_at).await;
        self.find_limit.release(permit, load(&answer));
        self.parts.processing_progress.report();
        let (error, wait) = match answer {
            FindAnswer::Counts => {
                return LookUp::There(Acceptance {
                    at: self.now(),
                    status,
                    location: None,
                });
            }
            FindAnswer::Unknown => return LookUp::NotThere { sent_at, status },
            FindAnswer::Wait { after } => {
                self.find_limit.pause_for(after);
                ("the upstream asks to wait".to_owned(), millis(after))
            }
            FindAnswer::Failed { after, error } => (error, after.map_or(0, millis)),
            FindAnswer::Mismatch { error } | FindAnswer::SetAside { error } => (error, 0),
        };
        LookUp::Unclear(Unclear {
            error: format!("find: {error}"),
            status,
            wait,
        })
    }
}
