//! The auditor: goes through the spans of this worker, a few in a second, and compares how far each is
//! sampled with its totals and its entries in the ledger. It changes nothing.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use sampler_domain::{ConservationCheck, Difference, Key, SpanId};
use sampler_metrics::Limiter;
use sampler_store::{SpanKey, StoreError};
use tracing::{error, warn};

use crate::{IgnoreProgress, Worker, error_chain};

/// Spans that are read ahead: few, because one may take half a megabyte. The cursor behind them must not
/// be idle for ten minutes.
const PAGE: usize = 2;

/// Entries that are read at once. They count as one span.
const ENTRIES: usize = 1_000;

/// The pause between two rounds through all spans. Without it, a worker with few spans would search
/// without end.
const ROUND_PAUSE: Duration = Duration::from_secs(10);

/// The pause before a span that differs is read once more.
const SECOND_LOOK: Duration = Duration::from_secs(1);

/// How long a difference of a span is not logged again, and how many such spans are remembered.
const LOGGED_FOR: Duration = Duration::from_hours(1);
const LOGGED_MAX: usize = 10_000;

#[derive(Debug)]
pub(crate) struct Findings {
    count: Arc<AtomicU64>,
    /// The spans whose difference was logged.
    logged: Limiter<SpanId>,
}

impl Default for Findings {
    fn default() -> Self {
        Self {
            count: Arc::default(),
            logged: Limiter::new(1, LOGGED_FOR).for_keys(LOGGED_MAX),
        }
    }
}

impl Findings {
    pub(crate) fn count(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.count)
    }

    /// Whether a difference of the span must be logged now. If so, it counts as logged.
    fn is_news(&self, id: &SpanId) -> bool {
        let is_news = self.logged.admit(id.clone()).is_some();
        self.count.fetch_add(is_news.into(), Ordering::Relaxed);
        is_news
    }
}

impl Worker {
    /// Goes through all spans, again and again.
    pub(crate) async fn audit(&self) {
        if self.settings.audit.rate == 0 {
            return;
        }
        let mut failed = BTreeMap::new();
        while self.wait_until_time_known(&IgnoreProgress).await {
            for partition in self.ownership.partitions().iter() {
                let mut from = failed.remove(partition).flatten();
                if let Err(error) = self.audit_spans(*partition, &mut from).await {
                    warn!(
                        code = "audit.check_failed",
                        error = error_chain(&error),
                        "checking spans failed"
                    );
                    // Another partition may be readable. The next round continues here.
                    failed.insert(*partition, from);
                    self.sleep(ROUND_PAUSE).await;
                }
            }
            self.sleep(ROUND_PAUSE).await;
        }
    }

    /// Goes through the spans of a partition, from this key on, while this worker owns it; moves it
    /// along.
    async fn audit_spans(&self, partition: u32, from: &mut Option<Key>) -> Result<(), StoreError> {
        let mut pages = self.parts.work.spans_of(partition, *from, PAGE);
        while let Some(page) = pages.next().await {
            for key in page? {
                if self.stop.is_cancelled() || !self.ownership.partitions().contains(&partition) {
                    return Ok(());
                }
                *from = Some(Key::of(&key.target));
                self.audit_span(&key).await?;
            }
        }
        Ok(())
    }

    /// Checks a span, and checks it again if something differs: an operator's action changes the
    /// span and the ledger one after the other.
    async fn audit_span(&self, key: &SpanKey) -> Result<(), StoreError> {
        if self.difference_of(key).await?.is_none() {
            return Ok(());
        }
        self.sleep(SECOND_LOOK).await;
        let Some(difference) = self.difference_of(key).await? else {
            return Ok(());
        };
        if !self.stop.is_cancelled() && self.findings.is_news(&key.id) {
            let Difference {
                used,
                billed,
                skipped,
                unanswered,
                usages,
                entries_billed,
                entries_skipped,
                entries_unanswered,
                entries,
                missing,
            } = difference;
            let [missing_from, missing_to] =
                [missing.map(|it| it.start), missing.map(|it| it.end)].map(display);
            error!(code = "audit.difference", span.id = %key.id, used_ms = used,
                billed_ms = billed, skipped_ms = skipped, unanswered_ms = unanswered, usages,
                entries_billed_ms = entries_billed, entries_skipped_ms = entries_skipped,
                entries_unanswered_ms = entries_unanswered, entries, missing_from, missing_to,
                "a span, its totals and its entries in the ledger do not agree");
        }
        Ok(())
    }

    /// The differences between a span, its totals and its entries now, if there are any.
    async fn difference_of(&self, key: &SpanKey) -> Result<Option<Difference>, StoreError> {
        self.pace().await;
        // The span is read first: an entry is written before its execution is recorded on the span.
        let span = self.parts.work.read(&key.id, &key.target).await;
        let span = match span {
            // The search reports a span that cannot be read, once it is due.
            Err(StoreError::Refused(_)) => return Ok(None),
            span => span?,
        };
        let Some(span) = span else {
            return Ok(None);
        };
        let mut check = ConservationCheck::new(&span);
        let mut after = None;
        loop {
            let ledger = &self.parts.ledger;
            let page = ledger
                .entries(&span.id, &span.target, after, ENTRIES)
                .await?;
            if page.unreadable > 0 {
                return Ok(None);
            }
            page.entries.iter().for_each(|entry| check.add(entry));
            after = page.next;
            if after.is_none() {
                break;
            }
            self.pace().await;
        }
        Ok(check.difference(self.now(), self.entry_lifetime(&span.target)))
    }

    /// Waits for the next span's turn, and while the database cannot keep up.
    async fn pace(&self) {
        while self.distress.pauses() && !self.stop.is_cancelled() {
            self.sleep(ROUND_PAUSE).await;
        }
        let rate = u32::try_from(self.settings.audit.rate).unwrap_or(u32::MAX);
        self.sleep(Duration::from_secs(1) / rate.max(1)).await;
    }
}

/// A time for the log; empty where there is none.
fn display(time: Option<sampler_domain::Timestamp>) -> String {
    time.map(|time| time.to_string()).unwrap_or_default()
}
