//! Confirmation (`docs/decisions.md#confirmation`): an acceptance may say only that a usage is queued. So the
//! worker looks each accepted usage up until the upstream counts it or has set it aside, or says after
//! `SAMPLER_CONFIRM_TIMEOUT` that it is not there.
//!
//! The entry says when, so a worker that starts continues where another one stopped. Two workers that look
//! the same usage up do no harm: each records an answer only if the entry is still as it was read.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use sampler_domain::{
    Acceptance, Cause, CauseId, Change, Changed, Entry, EntryState, Question, Timestamp,
};
use sampler_settings::millis;
use sampler_store::{Confirmation, StoreError, Unconfirmed, UnconfirmedQuery};
use sampler_upstream::{LookupAnswer, LookupResult, Lookups, Sought};
use tracing::{error, info, warn};

use crate::metrics::note_confirmation;
use crate::upstream_limit::UpstreamLimit;
use crate::{IgnoreProgress, Worker, error_chain};

/// Questions in flight, at the most. Posts have a limit of their own and do not wait for them.
const CONCURRENCY: usize = 16;

/// How many entries one command reads, and how many answers one command records.
const PAGE: usize = 100;

/// Attempts to record on a span that a usage was set aside, while others change the span. After that the
/// upstream is asked again.
const TRIES: usize = 5;

/// Why a usage is set aside that was accepted, and is not there.
const NOT_FOUND: &str = "not found";

/// With `SAMPLER_CONFIRM=false`: the pause between searches for usages that another worker wanted to ask
/// for.
const RELEASE_PAUSE: Duration = Duration::from_mins(10);

/// The limit of the questions to the upstream.
pub(crate) struct Asking {
    limit: UpstreamLimit,
}

impl Default for Asking {
    fn default() -> Self {
        Self {
            limit: UpstreamLimit::new(CONCURRENCY),
        }
    }
}

/// A usage, and the upstream's answer about it.
type Answered = (Unconfirmed, LookupAnswer);

impl Worker {
    /// The entry, with the first question if its usage was accepted and is to be confirmed. Without a
    /// `Location` Abacus cannot be asked.
    pub(crate) fn with_first_question(&self, entry: Entry) -> Entry {
        let confirm = &self.settings.confirm;
        let accepted_at = entry.accepted_at.filter(|_| confirm.enabled);
        let (EntryState::Accepted, Some(at)) = (entry.state, accepted_at) else {
            return entry;
        };
        if !self.can_ask(entry.location.as_deref()) {
            note_confirmation("given_up");
            warn!(code = "confirmation.given_up", span.id = %entry.span, usage = entry.usage_guid,
                usages = 1, "the upstream did not say where an accepted usage can be found");
            return entry;
        }
        Entry {
            question: self.ask_from(at),
            ..entry
        }
    }

    /// The same for a usage that was sent again and accepted then.
    pub(crate) fn with_next_question(&self, entry: &Entry, acceptance: &Acceptance) -> Entry {
        let can_ask = self.can_ask(acceptance.location.as_deref());
        Entry {
            question: self.ask_from(acceptance.at).filter(|_| can_ask),
            ..entry.clone()
        }
    }

    /// Whether a usage can be asked for that was given this `Location`, or none.
    fn can_ask(&self, location: Option<&str>) -> bool {
        match self.promises.lookups {
            Lookups::ByLocation => location.is_some(),
            Lookups::ById { .. } => true,
            Lookups::Never => false,
        }
    }

    /// When a usage is looked up that was accepted at `accepted_at`; `None` with
    /// `SAMPLER_CONFIRM=false`.
    fn ask_from(&self, accepted_at: Timestamp) -> Option<Question> {
        let confirm = &self.settings.confirm;
        // What is not there before it can be found says nothing. The clock of another worker may differ by
        // less than a post may take.
        let timeout = match self.promises.lookups {
            Lookups::ById { settles } => confirm
                .timeout
                .max(settles + self.settings.delivery.timeout),
            Lookups::ByLocation | Lookups::Never => confirm.timeout,
        };
        confirm.enabled.then(|| Question {
            at: accepted_at.plus(millis(self.periods.confirmation)),
            until: accepted_at.plus(millis(timeout)),
            is_missing: false,
        })
    }

    /// Asks for usages, page by page.
    pub(crate) async fn confirm(&self) {
        let is_on = self.settings.confirm.enabled;
        let interval = self.periods.confirmations;
        while self.wait_until_time_known(&IgnoreProgress).await {
            let done = if self.distress.pauses() {
                Ok(false)
            } else if is_on {
                self.confirm_page().await
            } else {
                self.release_page().await
            };
            let pause = match done {
                Ok(true) => continue,
                Ok(false) if is_on => self.asking.limit.remaining_pause().unwrap_or(interval),
                Ok(false) => RELEASE_PAUSE,
                Err(error) => {
                    warn!(
                        code = "confirmation.store_failed",
                        error = error_chain(&error),
                        "usages cannot be confirmed"
                    );
                    interval
                }
            };
            // A month that begins to close is noticed in time, however long the upstream asks to wait.
            self.sleep(if is_on { pause.min(interval) } else { pause })
                .await;
        }
    }

    /// Usages of this worker's partitions that are due to be asked for: of one month, or of any.
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
        self.parts.ledger.unconfirmed(&query).await
    }

    /// Asks for a page of usages: of the month that closes, or else of any month. Returns whether any
    /// entry was changed.
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
        self.record_answers(answered).await
    }

    /// Asks for a usage. `None` if the upstream asks to wait, or after a shutdown.
    async fn ask(&self, usage: Unconfirmed) -> Option<Answered> {
        if usage.ask.is_missing {
            return Some((usage, not_found()));
        }
        let limit = &self.asking.limit;
        if limit.remaining_pause().is_some() || self.stop.is_cancelled() {
            return None;
        }
        let permit = limit.acquire(&IgnoreProgress, &self.stop).await?;
        let sought = Sought {
            usage_guid: &usage.usage_guid,
            location: &usage.location,
        };
        let sent_at = self.now();
        let LookupResult { mut answer, .. } = self.parts.upstream.look_up(sought, sent_at).await;
        limit.release(permit, answer.load());
        let is_over = usage.ask.until <= sent_at;
        if answer == LookupAnswer::NotFound && is_over && self.promises.lookups.is_by_id() {
            answer = not_found();
        }
        match &answer {
            LookupAnswer::Wait { after } => {
                limit.pause_for(*after);
                note_confirmation("throttled");
                return None;
            }
            LookupAnswer::Failed { after, .. } => after.iter().for_each(|it| limit.pause_for(*it)),
            _ => {}
        }
        Some((usage, answer))
    }

    /// Records the answers in the ledger, but first on its span that a usage was set aside, so that a late
    /// stop does not take it back; a worker that dies in between leaves an entry that is asked for again.
    /// Causes are kept before the entries that name them.
    async fn record_answers(&self, answered: Vec<Answered>) -> Result<bool, StoreError> {
        if answered.is_empty() {
            return Ok(false);
        }
        let mut confirmed: Vec<(Unconfirmed, Confirmation)> = Vec::with_capacity(answered.len());
        for (usage, answer) in &answered {
            confirmed.push(self.recorded_on_span(usage.clone(), answer).await?);
        }
        let now = self.now();
        let mut causes: BTreeMap<CauseId, Cause> = BTreeMap::new();
        for (usage, confirmation) in &confirmed {
            if let Confirmation::SetAside { error, cause, .. } = confirmation {
                causes.insert(*cause, set_aside_cause(usage, error));
            }
        }
        for cause in causes.values() {
            let (probe_at, store) = (self.next_probe(now), &self.parts.causes);
            store.register(cause, now, probe_at).await?;
        }
        let recorded = self.parts.ledger.confirm(&confirmed).await?;
        report(&answered, &confirmed, &causes);
        Ok(recorded > 0)
    }

    /// The change of the entry that follows from an answer. That a usage was set aside is recorded on its
    /// span before; if that fails, it is asked for again.
    async fn recorded_on_span(
        &self,
        mut usage: Unconfirmed,
        answer: &LookupAnswer,
    ) -> Result<(Unconfirmed, Confirmation), StoreError> {
        let confirmation = self.confirmation(&usage, answer);
        if !matches!(confirmation, Confirmation::SetAside { .. }) {
            return Ok((usage, confirmation));
        }
        let is_recorded = match self.record_set_aside(&mut usage).await {
            Err(error @ StoreError::Refused(_)) => {
                // Others are recorded all the same.
                warn!(code = "confirmation.store_failed", span.id = %usage.span,
                    error = error_chain(&error), "a span cannot be told that a usage was set aside");
                false
            }
            recorded => recorded?,
        };
        let confirmation = if is_recorded {
            confirmation
        } else {
            self.ask_again()
        };
        Ok((usage, confirmation))
    }

    /// Records on the span that a usage was set aside, so that a late stop does not take it back. Returns
    /// whether the span says so, or need not: it is complete or removed, or nothing of this usage can be
    /// taken back.
    ///
    /// Where usages are looked up by their ids, "not found" proves less than a refusal. While the usage is
    /// planned, the driver posts it once more, and it may count then. A worker that has done so moves
    /// its question before it records the execution. So the entry must still be as it was read
    /// ([`Self::record_missing`]).
    async fn record_set_aside(&self, usage: &mut Unconfirmed) -> Result<bool, StoreError> {
        for _ in 0..TRIES {
            let is_proved = usage.ask.is_missing || !self.promises.lookups.is_by_id();
            let span = self.parts.work.read(&usage.span, &usage.target).await?;
            let is_planned = span.as_ref().is_some_and(|it| it.plans(&usage.usage_guid));
            if !is_proved && is_planned {
                return Ok(false);
            }
            let Some(span) = span.filter(|span| span.is_to_learn(usage.interval)) else {
                return Ok(true);
            };
            if !is_proved && !self.record_missing(usage).await? {
                return Ok(false);
            }
            let change = Change::SetAside {
                interval: usage.interval,
            };
            let changed = self.parts.work.change(&span, &change, self.now()).await?;
            if changed == Changed::Made {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Decides that the upstream does not have a usage, if its entry is as it was read. Returns whether it
    /// was. From then on no lookup decides otherwise, because that may be recorded on the span at any time.
    async fn record_missing(&self, usage: &mut Unconfirmed) -> Result<bool, StoreError> {
        let at = self.ask_again_at();
        let missing = [(usage.clone(), Confirmation::Missing { at })];
        usage.ask.at = at;
        usage.ask.is_missing = true;
        Ok(self.parts.ledger.confirm(&missing).await? > 0)
    }

    fn ask_again_at(&self) -> Timestamp {
        self.now().plus(millis(self.periods.confirmation))
    }

    /// The confirmation that leaves a usage as it is, until the upstream is asked again.
    fn ask_again(&self) -> Confirmation {
        Confirmation::AskAgain {
            at: self.ask_again_at(),
        }
    }

    fn confirmation(&self, usage: &Unconfirmed, answer: &LookupAnswer) -> Confirmation {
        let at = self.now();
        let is_clear = self.promises.lookups.is_by_id();
        match answer {
            LookupAnswer::Counts => Confirmation::Counted { at },
            LookupAnswer::SetAside { error } => Confirmation::SetAside {
                at,
                error: error.clone(),
                cause: set_aside_cause(usage, error).id(),
            },
            LookupAnswer::NotFound | LookupAnswer::Mismatch { .. }
                if usage.ask.until <= at && !is_clear =>
            {
                Confirmation::GivenUp
            }
            // While the upstream is away nothing is known, so nothing is given up. Where it knows each
            // usage, one that is not found is set aside by the next lookup.
            _ => self.ask_again(),
        }
    }

    /// With `SAMPLER_CONFIRM=false`: gives up the usages that another worker wanted to ask for, once their
    /// `SAMPLER_CONFIRM_TIMEOUT` is over. Otherwise their entries would never expire. A missing usage becomes
    /// set aside all the same. Returns whether there may be more.
    async fn release_page(&self) -> Result<bool, StoreError> {
        let page = self.unconfirmed(None).await?;
        let (missing, page): (Vec<_>, Vec<_>) = page.into_iter().partition(|it| it.ask.is_missing);
        let missing = missing.into_iter().map(|usage| (usage, not_found()));
        let has_missing = self.record_answers(missing.collect()).await?;
        let now = self.now();
        let released = page.into_iter().map(|usage| {
            let until = usage.ask.until;
            let confirmation = if until <= now {
                Confirmation::GivenUp
            } else {
                Confirmation::AskAgain { at: until }
            };
            (usage, confirmation)
        });
        let released: Vec<_> = released.collect();
        if released.is_empty() {
            return Ok(has_missing);
        }
        let usages = self.parts.ledger.confirm(&released).await?;
        info!(
            usages,
            "usages that were to be confirmed are not: SAMPLER_CONFIRM is false"
        );
        Ok(has_missing || usages > 0)
    }
}

/// Counts the outcomes, and logs what needs attention: one line for each cause, not for each usage.
fn report(
    answered: &[Answered],
    confirmed: &[(Unconfirmed, Confirmation)],
    causes: &BTreeMap<CauseId, Cause>,
) {
    for ((_, answer), (_, confirmation)) in answered.iter().zip(confirmed) {
        note_confirmation(outcome(answer, confirmation));
    }
    for (id, cause) in causes {
        let mut usages = confirmed
            .iter()
            .filter(|(_, it)| matches!(it, Confirmation::SetAside { cause, .. } if cause == id));
        let Some((first, _)) = usages.next() else {
            continue;
        };
        error!(code = "confirmation.set_aside", cause = %id, error = cause.error,
            resource = %cause.resource_id, plan = %cause.plan_id,
            usages = usages.count() + 1, span.id = %first.span, usage = first.usage_guid,
            "the upstream has set usages aside that it had accepted");
    }
    let mut usages = confirmed
        .iter()
        .filter(|(_, it)| *it == Confirmation::GivenUp);
    if let Some((first, _)) = usages.next() {
        warn!(code = "confirmation.given_up", usages = usages.count() + 1,
            span.id = %first.span, usage = first.usage_guid,
            "the upstream does not know usages that it had accepted; the worker no longer asks for them");
    }
    let mut failures = answered.iter().filter_map(|(_, answer)| match answer {
        LookupAnswer::Failed { error, .. } | LookupAnswer::Mismatch { error } => Some(error),
        _ => None,
    });
    if let Some(error) = failures.next() {
        warn!(
            code = "confirmation.failed",
            error,
            usages = failures.count() + 1,
            "the upstream does not say whether usages count"
        );
    }
}

/// The cause of a usage that was set aside. It has no status, so it differs from each cause of a
/// refusal.
fn set_aside_cause(usage: &Unconfirmed, error: &str) -> Cause {
    Cause {
        status: None,
        error: error.to_owned(),
        resource_id: usage.target.resource_id.clone(),
        plan_id: usage.target.plan_id.clone(),
    }
}

/// The answer for a usage that was not found, once that proves something.
fn not_found() -> LookupAnswer {
    LookupAnswer::SetAside {
        error: NOT_FOUND.to_owned(),
    }
}

fn outcome(answer: &LookupAnswer, confirmation: &Confirmation) -> &'static str {
    match (answer, confirmation) {
        (_, Confirmation::Counted { .. }) => "counted",
        (_, Confirmation::SetAside { .. }) => "set_aside",
        (_, Confirmation::GivenUp) => "given_up",
        (
            LookupAnswer::Failed { .. } | LookupAnswer::Mismatch { .. },
            Confirmation::AskAgain { .. },
        ) => "failed",
        (_, Confirmation::AskAgain { .. } | Confirmation::Missing { .. }) => "not_yet",
    }
}
