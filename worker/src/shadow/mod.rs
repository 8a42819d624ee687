//! Shadow mode: the original does the work, and the worker says what it would have done differently.
//!
//! It can only read pages of spans. It cannot change a span, and it has no client of Abacus.

mod compare;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use sampler_domain::{Policy, Span, SpanId};
use sampler_service::environment::Clock;
use sampler_store::{Reading, ScanPage, StoreError};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::{ReportProgress, error_chain};
pub use compare::{Difference, Finding, KnownFault, compare};

/// How many differences are logged one by one; the others are only counted.
const REPORTED_MAX: usize = 1_000;

/// A worker that only compares.
pub struct Shadow {
    /// The store of the spans.
    pub reading: Arc<dyn Reading>,
    pub clock: Arc<dyn Clock>,
    /// Takes a report of each page.
    pub progress: Arc<dyn ReportProgress>,
    pub policy: Policy,
    /// Spans on a page, at the most.
    pub batch: usize,
    /// The pause between two rounds.
    pub interval: Duration,
}

/// The findings of one round over all spans.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Tally {
    spans: u64,
    unreadable: u64,
    same: u64,
    due: u64,
    ends_before_start: u64,
    no_length: u64,
    ahead_of_time: u64,
    late_first_window: u64,
    differences: u64,
}

impl Tally {
    fn count(&mut self, finding: Finding) {
        *match finding {
            Finding::Same => &mut self.same,
            Finding::Due => &mut self.due,
            Finding::KnownFault(KnownFault::EndsBeforeStart) => &mut self.ends_before_start,
            Finding::KnownFault(KnownFault::NoLength) => &mut self.no_length,
            Finding::KnownFault(KnownFault::AheadOfTime) => &mut self.ahead_of_time,
            Finding::KnownFault(KnownFault::LateFirstWindow) => &mut self.late_first_window,
            Finding::Difference(_) => &mut self.differences,
        } += 1;
    }

    fn log(self) {
        info!(
            spans = self.spans,
            same = self.same,
            due = self.due,
            late_first_window = self.late_first_window,
            ahead_of_time = self.ahead_of_time,
            no_length = self.no_length,
            ends_before_start = self.ends_before_start,
            differences = self.differences,
            unreadable = self.unreadable,
            "compared with what the original Sampler decided"
        );
    }
}

/// The differences that were logged, by span and version: each is logged once.
type Reported = HashSet<(SpanId, i64)>;

impl Shadow {
    /// Goes over all spans again and again until `stop`.
    pub async fn run(&self, stop: &CancellationToken) {
        info!("shadow mode: nothing is written and nothing is posted");
        let mut reported = Reported::new();
        while !stop.is_cancelled() {
            match self.round(&mut reported, stop).await {
                Ok(Some(tally)) => tally.log(),
                Ok(None) => return,
                Err(error) => warn!(
                    code = "shadow.read_failed",
                    error = error_chain(&error),
                    "reading the spans failed"
                ),
            }
            let pause = tokio::time::sleep(self.interval);
            stop.run_until_cancelled(pause).await;
        }
    }

    /// Goes over all spans once; `None` if it is stopped before the last.
    async fn round(
        &self,
        reported: &mut Reported,
        stop: &CancellationToken,
    ) -> Result<Option<Tally>, StoreError> {
        let (mut tally, mut after) = (Tally::default(), None);
        while !stop.is_cancelled() {
            let page = self
                .reading
                .page_of_spans(after.as_ref(), self.batch)
                .await?;
            self.progress.report();
            self.compare_page(&page, &mut tally, reported);
            after = page.next;
            if after.is_none() {
                return Ok(Some(tally));
            }
        }
        Ok(None)
    }

    fn compare_page(&self, page: &ScanPage, tally: &mut Tally, reported: &mut Reported) {
        let now = self.clock.now();
        tally.spans += page.spans.len() as u64;
        tally.unreadable += page.unreadable;
        for span in &page.spans {
            for finding in compare(span, now, &self.policy) {
                tally.count(finding);
                if let Finding::Difference(difference) = finding {
                    report(span, difference, reported);
                }
            }
        }
    }
}

fn report(span: &Span, difference: Difference, reported: &mut Reported) {
    if reported.len() < REPORTED_MAX && reported.insert((span.id.clone(), span.processing.version))
    {
        warn!(code = "shadow.difference", span.id = %span.id, %difference,
            "the original Sampler decided differently");
    }
}
