//! Confirmation: with 202 a usage is only queued, so Abacus is asked for each until it counts or was
//! set aside.
//!
//! What is to be asked for is in the ledger, so a worker that starts goes on where another one was. Two
//! workers that ask for the same usage do no harm: each notes what it learns only where the entry is
//! still as it was read.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use sampler_abacus::{Asked, Load};
use sampler_domain::{AskAgain, Cause, CauseId, Delivered, Entry, EntryState, Timestamp};
use sampler_metrics::Counters;
use sampler_metrics::catalogue::CONFIRMATIONS;
use sampler_settings::millis;
use sampler_store::{Confirmation, StoreError, Unconfirmed, UnconfirmedQuery};
use tracing::{error, info, warn};

use crate::post_limit::PostLimit;
use crate::{IgnoreProgress, Worker, error_chain};

/// Usages that are asked for at once, at the most. It is a limit of its own: posts come first.
const CONCURRENCY: usize = 16;

/// Entries that are read, and noted, with one command.
const PAGE: usize = 100;

/// The pause after a page without a result.
const PAUSE: Duration = Duration::from_secs(5);

/// How often a worker that does not confirm looks for what another one has left.
const LEFT_PAUSE: Duration = Duration::from_mins(10);

/// How a worker asks.
pub(crate) struct Asking {
    limit: PostLimit,
    outcomes: Counters,
}

impl Default for Asking {
    fn default() -> Self {
        Self {
            limit: PostLimit::new(CONCURRENCY),
            outcomes: Counters::new(&CONFIRMATIONS),
        }
    }
}

impl Asking {
    pub(crate) fn outcomes(&self) -> &Counters {
        &self.outcomes
    }
}

/// What came of asking for a usage.
type Answered = (Unconfirmed, Asked);

impl Worker {
    /// The entry of a usage that was accepted, to be confirmed where that is on. Without a `Location`
    /// nothing can be asked.
    pub(crate) fn to_confirm(&self, entry: Entry) -> Entry {
        let confirm = &self.options.confirm;
        let accepted_at = entry.accepted_at.filter(|_| confirm.enabled);
        let (EntryState::Accepted, Some(at)) = (entry.state, accepted_at) else {
            return entry;
        };
        if entry.location.is_none() {
            self.asking.outcomes.inc(&["given_up"]);
            warn!(code = "confirmation.given_up", span.id = %entry.span, usage = entry.usage_guid,
                usages = 1, "Abacus did not say where an accepted usage can be found");
            return entry;
        }
        Entry {
            ask_again: self.ask_from(at),
            ..entry
        }
    }

    /// The entry of a usage that was sent again and accepted then, to be confirmed where that is on.
    pub(crate) fn to_confirm_again(&self, entry: &Entry, delivered: &Delivered) -> Entry {
        let ask_again = delivered.location.as_ref();
        Entry {
            ask_again: ask_again.and_then(|_| self.ask_from(delivered.at)),
            ..entry.clone()
        }
    }

    /// When a usage is asked for that was accepted then; not at all where that is off.
    fn ask_from(&self, accepted_at: Timestamp) -> Option<AskAgain> {
        let confirm = &self.options.confirm;
        confirm.enabled.then(|| AskAgain {
            at: accepted_at.plus(millis(confirm.interval)),
            until: accepted_at.plus(millis(confirm.timeout)),
        })
    }

    /// Asks for usages, page by page.
    pub(crate) async fn confirm(&self) {
        let is_on = self.options.confirm.enabled;
        while self.wait_until_time_known(&IgnoreProgress).await {
            let done = match is_on {
                _ if self.distress.pauses() => Ok(false),
                true => self.confirm_page().await,
                false => self.release_page().await,
            };
            let pause = match done {
                Ok(true) => continue,
                Ok(false) if is_on => self.asking.limit.remaining_pause().unwrap_or(PAUSE),
                Ok(false) => LEFT_PAUSE,
                Err(error) => {
                    warn!(
                        code = "confirmation.store_failed",
                        error = error_chain(error),
                        "usages cannot be confirmed"
                    );
                    PAUSE
                }
            };
            // A month that begins to close is noticed in time, however long Abacus asks to wait.
            self.pause(if is_on { pause.min(PAUSE) } else { pause })
                .await;
        }
    }

    /// Usages that are to be asked for by now.
    async fn unconfirmed(&self, month: Option<Timestamp>) -> Result<Vec<Unconfirmed>, StoreError> {
        let partitions = self.ownership.partitions();
        if partitions.is_empty() {
            return Ok(Vec::new());
        }
        let query = UnconfirmedQuery {
            partitions,
            now: self.now(),
            month,
            limit: PAGE,
        };
        self.parts.confirming.store.unconfirmed(&query).await
    }

    /// Asks for some usages: those of a month that closes, and where there are none, of any month.
    /// Returns whether anything was learnt.
    async fn confirm_page(&self) -> Result<bool, StoreError> {
        if self.asking.limit.remaining_pause().is_some() {
            return Ok(false);
        }
        let mut page = Vec::new();
        if let Some(closing) = self.closing(self.now()) {
            page = self.unconfirmed(Some(closing.start)).await?;
        }
        if page.is_empty() {
            page = self.unconfirmed(None).await?;
        }
        let asked = stream::iter(page).map(|usage| self.ask(usage));
        let asked = asked.buffer_unordered(CONCURRENCY);
        let answered: Vec<Answered> = asked.filter_map(async |it| it).collect().await;
        self.note_answers(answered).await
    }

    /// Asks for a usage; nothing once Abacus asks to wait, or on shutdown.
    async fn ask(&self, usage: Unconfirmed) -> Option<Answered> {
        let limit = &self.asking.limit;
        if limit.remaining_pause().is_some() || self.stop.is_cancelled() {
            return None;
        }
        let permit = limit.acquire(&IgnoreProgress, &self.stop).await?;
        let confirmer = &self.parts.confirming.confirmer;
        let asked = confirmer
            .ask(&usage.location, &usage.usage_guid, self.now())
            .await;
        limit.release(permit, load(&asked));
        match &asked {
            Asked::Wait { after } => {
                limit.pause_for(*after);
                self.asking.outcomes.inc(&["throttled"]);
                return None;
            }
            Asked::Failed { after, .. } => after.iter().for_each(|it| limit.pause_for(*it)),
            _ => {}
        }
        Some((usage, asked))
    }

    /// Notes what was learnt. The causes are kept first, because the entries name them.
    async fn note_answers(&self, answered: Vec<Answered>) -> Result<bool, StoreError> {
        if answered.is_empty() {
            return Ok(false);
        }
        let now = self.now();
        let mut causes: BTreeMap<CauseId, Cause> = BTreeMap::new();
        for (usage, asked) in &answered {
            if let Some(cause) = cause(usage, asked) {
                causes.insert(cause.id(), cause);
            }
        }
        for cause in causes.values() {
            let (probe_at, store) = (self.next_probe(now), &self.parts.causes);
            store.register(cause, now, probe_at).await?;
        }
        let note = |(usage, asked): &Answered| (usage.clone(), self.confirmation(usage, asked));
        let confirmed: Vec<(Unconfirmed, Confirmation)> = answered.iter().map(note).collect();
        let noted = self.parts.confirming.store.confirm(&confirmed).await?;
        self.tell(&answered, &confirmed, &causes);
        Ok(noted > 0)
    }

    /// What is noted of an answer.
    fn confirmation(&self, usage: &Unconfirmed, asked: &Asked) -> Confirmation {
        let at = self.now();
        let again = Confirmation::AskAgain {
            at: at.plus(millis(self.options.confirm.interval)),
        };
        match asked {
            Asked::Counts => Confirmation::Counted { at },
            Asked::SetAside { error } => Confirmation::SetAside {
                at,
                error: error.clone(),
                cause: aside(usage, error).id(),
            },
            Asked::Unknown | Asked::Mismatch { .. } if usage.ask.until <= at => {
                Confirmation::GivenUp
            }
            // While Abacus is away nothing is known, so nothing is given up.
            _ => again,
        }
    }

    /// Counts what was learnt, and tells of what somebody should look at, in a few lines for all.
    fn tell(
        &self,
        answered: &[Answered],
        confirmed: &[(Unconfirmed, Confirmation)],
        causes: &BTreeMap<CauseId, Cause>,
    ) {
        for ((_, asked), (_, confirmation)) in answered.iter().zip(confirmed) {
            self.asking.outcomes.inc(&[outcome(asked, confirmation)]);
        }
        for (id, cause) in causes {
            let of = |it: &&(Unconfirmed, Confirmation)| matches!(&it.1, Confirmation::SetAside { cause, .. } if cause == id);
            let mut usages = confirmed.iter().filter(of);
            let Some((first, _)) = usages.next() else {
                continue;
            };
            error!(code = "confirmation.set_aside", cause = %id, error = cause.error,
                resource = %cause.resource_id, plan = %cause.plan_id,
                usages = usages.count() + 1, span.id = %first.span, usage = first.usage_guid,
                "Abacus has set usages aside that it had accepted");
        }
        let given_up = |it: &&(Unconfirmed, Confirmation)| it.1 == Confirmation::GivenUp;
        let mut usages = confirmed.iter().filter(given_up);
        if let Some((first, _)) = usages.next() {
            warn!(code = "confirmation.given_up", usages = usages.count() + 1,
                span.id = %first.span, usage = first.usage_guid,
                "Abacus does not know usages that it had accepted; they are asked for no more");
        }
        let mut failures = answered.iter().filter_map(|(_, asked)| match asked {
            Asked::Failed { error, .. } | Asked::Mismatch { error } => Some(error),
            _ => None,
        });
        if let Some(error) = failures.next() {
            warn!(
                code = "confirmation.failed",
                error,
                usages = failures.count() + 1,
                "Abacus does not say whether usages count"
            );
        }
    }

    /// Where usages are not confirmed, no longer or on this worker: those of which another worker has
    /// noted that they are to be asked for are given up once their time is over. Otherwise their
    /// entries would never expire. Returns whether there may be more.
    async fn release_page(&self) -> Result<bool, StoreError> {
        let page = self.unconfirmed(None).await?;
        let now = self.now();
        let release = |usage: Unconfirmed| {
            let until = usage.ask.until;
            let confirmation = if until <= now {
                Confirmation::GivenUp
            } else {
                Confirmation::AskAgain { at: until }
            };
            (usage, confirmation)
        };
        let released: Vec<_> = page.into_iter().map(release).collect();
        if released.is_empty() {
            return Ok(false);
        }
        let usages = self.parts.confirming.store.confirm(&released).await?;
        info!(
            usages,
            "usages that were to be confirmed are not: SAMPLER_CONFIRM is false"
        );
        Ok(usages > 0)
    }
}

/// Why a usage was set aside. Without a status, so it is never the cause of a refusal.
fn aside(usage: &Unconfirmed, error: &str) -> Cause {
    Cause {
        status: None,
        error: error.to_owned(),
        resource_id: usage.target.resource_id.clone(),
        plan_id: usage.target.plan_id.clone(),
    }
}

fn cause(usage: &Unconfirmed, asked: &Asked) -> Option<Cause> {
    match asked {
        Asked::SetAside { error } => Some(aside(usage, error)),
        _ => None,
    }
}

/// What an answer shows about the load.
fn load(asked: &Asked) -> Load {
    match asked {
        Asked::Counts | Asked::SetAside { .. } | Asked::Unknown | Asked::Mismatch { .. } => {
            Load::Sustained
        }
        Asked::Wait { .. } | Asked::Failed { .. } => Load::Overload,
    }
}

fn outcome(asked: &Asked, confirmation: &Confirmation) -> &'static str {
    match (asked, confirmation) {
        (_, Confirmation::Counted { .. }) => "counted",
        (_, Confirmation::SetAside { .. }) => "set_aside",
        (_, Confirmation::GivenUp) => "given_up",
        (Asked::Failed { .. } | Asked::Mismatch { .. }, Confirmation::AskAgain { .. }) => "failed",
        (_, Confirmation::AskAgain { .. }) => "not_yet",
    }
}
