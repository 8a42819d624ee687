//! Watches over accepted usages (`SAMPLER_CONFIRM`, `docs/decisions.md#confirmation`): an acceptance may say only
//! that a usage is queued. So the worker asks the upstream for each accepted usage until that counts, or is
//! missing: set aside, or not there after `SAMPLER_CONFIRM_TIMEOUT`. No span changes by it.
//!
//! The store says what is due, so a worker that starts continues where another one stopped. Two workers that
//! ask for the same usage do no harm: each records an answer only if the watch is still as it was read. A
//! usage that an operator has sent again is claimed before it is posted.

use futures_util::stream::{self, StreamExt};
use sampler_domain::{Acceptance, Contract, Entry, READ_VALID_FOR, Timestamp, Usage};
use sampler_settings::millis;
use sampler_store::{DueWatches, Missing, StoreError, Watch, WatchOutcome};
use sampler_upstream::{Answer, LookupAnswer, LookupResult, Lookups, Sought};
use tracing::{error, info, warn};

use crate::deliver::{PostDeadline, PostOutcome, ReadAt, blames_usage};
use crate::lookup::LookupOutcome;
use crate::metrics::note_confirmation;
use crate::{IgnoreProgress, Worker, error_chain};

/// Questions in flight, at the most. Posts have a limit of their own and do not wait for them.
pub(crate) const CONCURRENCY: usize = 16;

/// How many watches one command reads, and how many outcomes one command records.
const PAGE: usize = 100;

/// Why a usage is missing that is not there.
const NOT_FOUND: &str = "not found";

impl Worker {
    /// When an accepted usage is asked for first; none where usages are not watched. Without a `Location` Abacus
    /// cannot be asked.
    pub(crate) fn watch_at(&self, entry: &Entry) -> Option<Timestamp> {
        if !self.settings.confirm.enabled {
            return None;
        }
        let Acceptance { at, location, .. } = &entry.acceptance;
        self.first_question(entry, *at, location.as_deref())
    }

    /// When a usage is asked for first that was accepted then, under this `Location`; none where it cannot be.
    fn first_question(
        &self,
        entry: &Entry,
        at: Timestamp,
        location: Option<&str>,
    ) -> Option<Timestamp> {
        if self.can_ask(location) {
            return Some(self.asked_after(at));
        }
        note_confirmation("given_up");
        warn!(code = "confirmation.given_up", span.id = %entry.span, usage = entry.usage_guid,
            "the upstream did not say where an accepted usage can be found");
        None
    }

    /// Whether a usage can be asked for that was given this `Location`, or none.
    fn can_ask(&self, location: Option<&str>) -> bool {
        match self.promises.lookups {
            Lookups::ByLocation => location.is_some(),
            Lookups::ById { .. } => true,
            Lookups::Never => false,
        }
    }

    fn asked_after(&self, time: Timestamp) -> Timestamp {
        time.plus(millis(self.periods.confirmation))
    }

    /// Until when an accepted usage may be missing. What is not there before it can be found says nothing.
    fn missing_after(&self, watch: &Watch) -> Timestamp {
        let timeout = self.settings.confirm.timeout;
        let timeout = match self.promises.lookups {
            Lookups::ById { settles } => timeout.max(settles + self.settings.delivery.timeout),
            Lookups::ByLocation | Lookups::Never => timeout,
        };
        watch.accepted_at.plus(millis(timeout))
    }

    /// Follows up the watches that are due, page by page.
    pub(crate) async fn keep_watching(&self) {
        while self.wait_until_ready().await {
            let limit = &self.watch_limit;
            if !self.distress.pauses() && limit.remaining_pause().is_none() {
                match self.follow_up_page().await {
                    Ok(true) => continue,
                    Ok(false) => {}
                    Err(error) => warn!(
                        code = "confirmation.store_failed",
                        error = error_chain(&error),
                        "accepted usages cannot be watched"
                    ),
                }
            }
            self.sleep(self.periods.confirmations).await;
        }
    }

    /// Follows up a page of watches of this worker's partitions. Returns whether there may be more.
    async fn follow_up_page(&self) -> Result<bool, StoreError> {
        let partitions = self.ownership.partitions();
        if partitions.is_empty() {
            return Ok(false);
        }
        let query = DueWatches {
            partitions,
            now: self.now(),
            limit: PAGE,
        };
        let due = self.parts.ledger.due_watches(&query).await?;
        let is_full = due.len() == PAGE;
        let outcomes = stream::iter(due).map(|watch| self.follow_up(watch));
        let outcomes = outcomes.buffer_unordered(CONCURRENCY);
        let outcomes: Vec<Option<_>> = outcomes.collect().await;
        let outcomes: Vec<_> = outcomes.into_iter().flatten().collect();
        if outcomes.is_empty() {
            return Ok(false);
        }
        self.parts.ledger.settle_watches(&outcomes).await?;
        report(&outcomes);
        Ok(is_full)
    }

    /// What comes of a watch; none if it is to stay as it is.
    async fn follow_up(&self, watch: Watch) -> Option<(Watch, WatchOutcome)> {
        if watch.is_resent {
            return match self.send_again(watch.clone()).await {
                Ok(outcome) => outcome,
                Err(error) => {
                    warn!(
                        code = "confirmation.store_failed",
                        usage = watch.usage_guid,
                        error = error_chain(&error),
                        "a missing usage cannot be sent again"
                    );
                    None
                }
            };
        }
        // Another worker is set to watch.
        if !self.settings.confirm.enabled {
            return Some((watch, WatchOutcome::Counts));
        }
        let outcome = self.ask(&watch).await?;
        Some((watch, outcome))
    }

    /// Asks for a usage. `None` if the upstream asks to wait, or after a shutdown.
    async fn ask(&self, watch: &Watch) -> Option<WatchOutcome> {
        let limit = &self.watch_limit;
        if limit.remaining_pause().is_some() || self.stop.is_cancelled() {
            return None;
        }
        let permit = limit.acquire(&IgnoreProgress, &self.stop).await?;
        let sought = Sought {
            usage_guid: &watch.usage_guid,
            location: watch.location.as_deref().unwrap_or_default(),
        };
        let sent_at = self.now();
        let LookupResult { answer, .. } = self.parts.upstream.look_up(sought, sent_at).await;
        permit.release(answer.load());
        let is_over = self.missing_after(watch) <= sent_at;
        let by_id = self.promises.lookups.is_by_id();
        let (counted, missing) = match answer {
            LookupAnswer::Counts => {
                note_confirmation("counted");
                return Some(WatchOutcome::Counts);
            }
            LookupAnswer::Wait { after } => {
                limit.pause_for(after);
                note_confirmation("throttled");
                return None;
            }
            LookupAnswer::SetAside { error } => ("set_aside", Some(error)),
            LookupAnswer::NotFound if is_over => ("given_up", Some(NOT_FOUND.to_owned())),
            // Abacus knows no document of a repeat.
            LookupAnswer::Mismatch { error } if is_over && !by_id => ("given_up", Some(error)),
            LookupAnswer::NotFound => ("not_yet", None),
            LookupAnswer::Mismatch { error } => {
                warn_of_no_answer(watch, &error);
                ("failed", None)
            }
            // While the upstream is away nothing is known, so nothing is given up.
            LookupAnswer::Failed { after, error } => {
                if let Some(after) = after {
                    limit.pause_for(after);
                }
                warn_of_no_answer(watch, &error);
                ("failed", None)
            }
        };
        note_confirmation(counted);
        Some(match missing {
            Some(error) => self.missing(error),
            None => WatchOutcome::AskAgain {
                at: self.asked_after(self.now()),
            },
        })
    }

    fn missing(&self, error: String) -> WatchOutcome {
        WatchOutcome::Missing(Missing {
            since: self.now(),
            error,
        })
    }

    /// Posts the same bytes again. One worker alone does it: the one that has claimed the watch. If nothing
    /// comes of it, the watch is due again when the claim ends.
    async fn send_again(
        &self,
        mut watch: Watch,
    ) -> Result<Option<(Watch, WatchOutcome)>, StoreError> {
        if self.is_sent_with_its_span(&watch).await? {
            let error = "it is sent with its span, which has not recorded it".to_owned();
            return Ok(Some((watch, self.missing(error))));
        }
        let (read_at, claimed_at) = (ReadAt::now(self), self.now());
        let post_timeout = millis(self.settings.delivery.timeout);
        let settles = match self.promises.contract {
            Contract::Forever => 0,
            Contract::Forgets(memory) => memory.settles,
        };
        // What is begun before then has ended, and would be found, when the claim ends.
        let begin_before = claimed_at.plus(2 * post_timeout);
        let claimed_until = begin_before.plus(post_timeout + settles);
        let claimed_until = claimed_until.plus(self.settings.delivery.backoff().limit);
        if !self.parts.ledger.claim_watch(&watch, claimed_until).await? {
            return Ok(None);
        }
        watch.due_at = claimed_until;
        let Some(entry) = self.parts.ledger.entry(&watch.usage_guid).await? else {
            let outcome = self.missing("its entry is not kept any more".to_owned());
            return Ok(Some((watch, outcome)));
        };
        let forgets = !self.promises.contract.is_forever();
        if forgets {
            let settled_at = watch
                .accepted_at
                .plus(READ_VALID_FOR + post_timeout + settles);
            match self.look_up_once(&watch.usage_guid).await {
                LookupOutcome::Found(_) => return Ok(Some((watch, WatchOutcome::Counts))),
                LookupOutcome::NotFound { sent_at, .. } if settled_at <= sent_at => {}
                LookupOutcome::NotFound { .. }
                | LookupOutcome::Unclear(_)
                | LookupOutcome::Postponed => return Ok(None),
            }
        }
        let deadline = PostDeadline {
            read_at,
            begin_before: forgets.then_some(begin_before),
        };
        let outcome = self.post_again(&entry, &deadline).await;
        Ok(outcome.map(|outcome| (watch, outcome)))
    }

    /// Whether the span may still post the usage. Where the upstream forgets, two that post it would both be told that
    /// it is not there. The span is read before the watch is claimed: a post of the span begins the watch anew before
    /// the span records it, so a claim of the watch as it was before fails.
    async fn is_sent_with_its_span(&self, watch: &Watch) -> Result<bool, StoreError> {
        if self.promises.contract.is_forever() {
            return Ok(false);
        }
        let span = self.parts.work.read(&watch.span, &watch.target).await?;
        Ok(span.is_some_and(|span| span.has_open(watch.interval, &watch.usage_guid)))
    }

    async fn post_again(&self, entry: &Entry, deadline: &PostDeadline) -> Option<WatchOutcome> {
        let (span, usage) = (&entry.span, &entry.usage_guid);
        match self.post_once(&Usage::of_entry(entry), deadline).await {
            PostOutcome::Outdated | PostOutcome::Held => None,
            PostOutcome::Found(_) => Some(WatchOutcome::Counts),
            PostOutcome::Posted(Answer::Accepted, details) => {
                info!(span.id = %span, usage, "the upstream accepted a usage that was sent again");
                let at = self.now();
                let due_at = self.first_question(entry, at, details.location.as_deref());
                Some(
                    due_at.map_or(WatchOutcome::Counts, |due_at| WatchOutcome::Accepted {
                        at,
                        location: details.location,
                        due_at,
                    }),
                )
            }
            PostOutcome::Posted(Answer::Wait { after }, _) => {
                self.wait_as_asked(after);
                None
            }
            PostOutcome::Posted(Answer::Refused { error }, details) if blames_usage(&details) => {
                error!(code = "resend.refused", span.id = %span, usage, status = details.status, error,
                    "the upstream refused a usage that was sent again; it stays missing");
                Some(self.missing(details.error_name.unwrap_or(error)))
            }
            PostOutcome::Posted(Answer::Refused { error } | Answer::TryAgain { error, .. }, _) => {
                warn!(code = "resend.delayed", span.id = %span, usage, error,
                    "a usage could not be sent again yet");
                None
            }
        }
    }
}

fn warn_of_no_answer(watch: &Watch, error: &str) {
    warn!(code = "confirmation.failed", span.id = %watch.span, usage = watch.usage_guid, error,
        "the upstream does not say whether a usage counts");
}

/// Logs what is missing.
fn report(outcomes: &[(Watch, WatchOutcome)]) {
    for (watch, outcome) in outcomes {
        if let WatchOutcome::Missing(missing) = outcome {
            let target = &watch.target;
            error!(code = "confirmation.missing", span.id = %watch.span, usage = watch.usage_guid,
                resource = %target.resource_id, plan = %target.plan_id, error = missing.error,
                "a usage does not count that the upstream had accepted");
        }
    }
}
