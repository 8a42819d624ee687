//! Shadow mode: beside an original that does the work, says what we would have done otherwise.
//!
//! It has nothing but pages of spans, so there is nothing that it could change, and no client of
//! Abacus.

mod compare;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use sampler_domain::{Policy, Span, SpanId};
use sampler_service::environment::Clock;
use sampler_store::{Page, Reading, StoreError};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::Beat;
pub use compare::{Difference, Fault, Finding, compare};

/// So many differences are told one by one; the others are only counted.
const TOLD_MAX: usize = 1_000;

/// A worker that only looks; run it until it is told to stop.
pub struct Shadow {
    /// Where the spans are.
    pub pages: Arc<dyn Reading>,
    /// What time it is.
    pub clock: Arc<dyn Clock>,
    /// Told of each page.
    pub beat: Arc<dyn Beat>,
    /// How we would sample.
    pub policy: Policy,
    /// Spans looked at in one go, at the most.
    pub batch: usize,
    /// The pause between two rounds.
    pub interval: Duration,
}

/// What one round over all spans has found.
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
            Finding::Fault(Fault::EndsBeforeStart) => &mut self.ends_before_start,
            Finding::Fault(Fault::NoLength) => &mut self.no_length,
            Finding::Fault(Fault::AheadOfTime) => &mut self.ahead_of_time,
            Finding::Fault(Fault::LateFirstWindow) => &mut self.late_first_window,
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
            "compared with what an original decided"
        );
    }
}

/// The differences that were told already, by span and version: each is told once.
type Told = HashSet<(SpanId, i64)>;

impl Shadow {
    /// Goes over all spans again and again until `stop`.
    pub async fn run(&self, stop: &CancellationToken) {
        info!("in the shadow of an original: nothing is written and nothing is posted");
        let mut told = Told::new();
        while !stop.is_cancelled() {
            match self.round(&mut told, stop).await {
                Ok(Some(tally)) => tally.log(),
                Ok(None) => return,
                Err(error) => {
                    let error = anyhow::Error::from(error);
                    warn!(error = format!("{error:#}"), "looking at the spans failed");
                }
            }
            let pause = tokio::time::sleep(self.interval);
            stop.run_until_cancelled(pause).await;
        }
    }

    /// Goes over all spans once; nothing where it is told to stop before the last.
    async fn round(
        &self,
        told: &mut Told,
        stop: &CancellationToken,
    ) -> Result<Option<Tally>, StoreError> {
        let (mut tally, mut after) = (Tally::default(), None);
        while !stop.is_cancelled() {
            let page = self.pages.page(after.as_ref(), self.batch).await?;
            self.beat.beat();
            self.compare_page(&page, &mut tally, told);
            after = page.next;
            if after.is_none() {
                return Ok(Some(tally));
            }
        }
        Ok(None)
    }

    fn compare_page(&self, page: &Page, tally: &mut Tally, told: &mut Told) {
        let now = self.clock.now();
        tally.spans += page.spans.len() as u64;
        tally.unreadable += page.unreadable;
        for span in &page.spans {
            for finding in compare(span, now, &self.policy) {
                tally.count(finding);
                if let Finding::Difference(difference) = finding {
                    tell(span, difference, told);
                }
            }
        }
    }
}

fn tell(span: &Span, difference: Difference, told: &mut Told) {
    if told.len() < TOLD_MAX && told.insert((span.id.clone(), span.processing.version)) {
        warn!(span.id = %span.id, %difference, "an original decided otherwise");
    }
}
