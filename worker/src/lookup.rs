//! Usages that are looked up before they are posted, because the upstream may have forgotten an earlier post.
//!
//! Lookups have a limit of their own. A span that gets no permit at once waits in the store, not here: lookups
//! that fail or hang hold up no usage that needs none.

use sampler_domain::{Acceptance, Delivery, Driver, Failure, Span, Timestamp};
use sampler_settings::millis;
use sampler_upstream::{LookupAnswer, LookupResult, Sought};
use tracing::{info, warn};

use crate::Worker;

const CONCURRENCY: usize = 16;

/// One of so many spans in progress may wait for a lookup.
const SHARE: usize = 4;

/// A span that gets no permit waits as if it had failed so often.
const POSTPONED_ATTEMPTS: u32 = 7;

/// How many lookups may be in flight in a worker with `spans` spans in progress.
pub(crate) fn lookups_max(spans: usize) -> usize {
    (spans / SHARE).clamp(1, CONCURRENCY)
}

pub(crate) enum LookupOutcome {
    Found(Acceptance),
    NotFound {
        /// When it was looked up.
        sent_at: Timestamp,
        status: Option<u16>,
    },
    Unclear(Unclear),
    /// Too many lookups are under way.
    Postponed,
}

/// There was no clear answer.
pub(crate) struct Unclear {
    pub(crate) error: String,
    pub(crate) status: Option<u16>,
    /// The wait that the upstream asked for, ms; 0 if none.
    pub(crate) wait: i64,
}

impl Worker {
    /// Looks up the usage in hand, and gives the driver the outcome.
    pub(crate) async fn look_up(&self, driver: &mut Driver, delivery: &Delivery) {
        match self.look_up_once(&delivery.usage_guid).await {
            LookupOutcome::Found(acceptance) => {
                info!(span.id = %driver.span().id, usage = %delivery.usage_guid,
                    "the upstream has a usage from an earlier post");
                driver.on_found(acceptance);
            }
            LookupOutcome::NotFound { sent_at, status } => {
                let unclear = Unclear {
                    error: "find: not there, and an earlier post may still come in".to_owned(),
                    status,
                    wait: 0,
                };
                let failure = self.lookup_failure(driver.span(), unclear);
                driver.on_not_found(sent_at, failure, &self.terms);
            }
            LookupOutcome::Unclear(unclear) => {
                let failure = self.lookup_failure(driver.span(), unclear);
                warn!(code = "find.failed", span.id = %driver.span().id,
                    usage = %delivery.usage_guid, retry_at = %failure.retry_at,
                    status = failure.status, error = failure.error,
                    "the upstream does not say whether it has a usage, so it is not posted");
                driver.on_failed(failure);
            }
            LookupOutcome::Postponed => {
                driver.on_lookup_postponed(self.now().plus(self.postponed_wait()));
            }
        }
    }

    fn lookup_failure(&self, span: &Span, unclear: Unclear) -> Failure {
        Failure {
            at: self.now(),
            retry_at: self.retry_at(span, unclear.wait),
            error: unclear.error,
            status: unclear.status,
            blames_usage: false,
            is_post: false,
            unanswered: false,
        }
    }

    /// How long a span waits that got no permit, ms.
    fn postponed_wait(&self) -> i64 {
        let backoff = self.settings.delivery.backoff();
        let wait = backoff.wait(POSTPONED_ATTEMPTS, self.parts.random.fraction());
        let paused = self.lookup_limit.remaining_pause().map_or(0, millis);
        wait.max(paused)
    }

    pub(crate) async fn look_up_once(&self, usage_guid: &str) -> LookupOutcome {
        let Some(permit) = self.lookup_limit.try_acquire() else {
            return LookupOutcome::Postponed;
        };
        let sent_at = self.now();
        let sought = Sought {
            usage_guid,
            location: "",
        };
        let result = self.parts.upstream.look_up(sought, sent_at).await;
        let LookupResult { answer, status } = result;
        permit.release(answer.load());
        self.parts.processing_progress.report();
        let (error, wait) = match answer {
            LookupAnswer::Counts => {
                return LookupOutcome::Found(Acceptance {
                    at: self.now(),
                    status,
                    location: None,
                });
            }
            LookupAnswer::NotFound => return LookupOutcome::NotFound { sent_at, status },
            LookupAnswer::Wait { after } => {
                self.lookup_limit.pause_for(after);
                ("the upstream asks to wait".to_owned(), millis(after))
            }
            LookupAnswer::Failed { after, error } => (error, after.map_or(0, millis)),
            LookupAnswer::Mismatch { error } | LookupAnswer::SetAside { error } => (error, 0),
        };
        LookupOutcome::Unclear(Unclear {
            error: format!("find: {error}"),
            status,
            wait,
        })
    }
}
