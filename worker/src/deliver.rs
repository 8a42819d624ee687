//! Posts a usage, and decides what its answer means for the span.

use std::time::Duration;

use sampler_domain::{
    Acceptance, Delivery, Driver, Failure, READ_VALID_FOR, Span, Timestamp, Usage,
};
use sampler_settings::millis;
use sampler_upstream::{Answer, Details, Posted};
use tokio::time::Instant;
use tracing::{Instrument, error, warn};

use crate::lookup::LookupOutcome;
use crate::{Worker, metrics, trace};

pub(crate) enum PostOutcome {
    /// It was posted; without an answer, this is [`Answer::TryAgain`].
    Posted(Answer, Details),
    /// It was posted, and refused with 409; but the upstream has it from an earlier post.
    Found(Acceptance),
    /// Nothing was posted, because the worker shuts down or sampling pauses.
    Held,
    /// Nothing was posted: what it is about was read too long ago, or the usage must be looked up first.
    Outdated,
}

/// When something was read, by two clocks: the monotonic one ignores corrections of the time, and the wall
/// clock continues while the machine sleeps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadAt {
    at: Instant,
    wall: Timestamp,
}

impl ReadAt {
    pub(crate) fn now(worker: &Worker) -> Self {
        Self {
            at: Instant::now(),
            wall: worker.parts.clock.now(),
        }
    }

    /// Whether it was too long ago to go by it.
    fn is_outdated(self, worker: &Worker) -> bool {
        millis(self.at.elapsed()) >= READ_VALID_FOR
            || worker.parts.clock.now().since(self.wall).abs() >= READ_VALID_FOR
    }
}

/// How long a post may still begin. Where the upstream recognises each repeat, for ever.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PostDeadline {
    /// When the state was read that the post follows from.
    pub(crate) read_at: ReadAt,
    /// From then on it must be looked up first.
    pub(crate) begin_before: Option<Timestamp>,
}

impl PostDeadline {
    fn is_over(&self, worker: &Worker) -> bool {
        self.begin_before.is_some_and(|begin_before| {
            self.read_at.is_outdated(worker) || worker.now() >= begin_before
        })
    }
}

impl Worker {
    /// Posts the usage in hand, and gives the driver the outcome. After a 429 nobody posts for as long as it says, and
    /// the span makes room for others: the upstream may mean this customer alone. Returns false if nothing may be
    /// posted now.
    pub(crate) async fn deliver(
        &self,
        driver: &mut Driver,
        delivery: &Delivery,
        deadline: PostDeadline,
    ) -> bool {
        let usage = Usage::new(driver.span(), delivery);
        let (answer, details) = match self.post_once(&usage, &deadline).await {
            PostOutcome::Posted(answer, details) => (answer, details),
            PostOutcome::Found(acceptance) => {
                driver.on_found(acceptance);
                return true;
            }
            PostOutcome::Held => return false,
            PostOutcome::Outdated => {
                driver.on_outdated();
                return true;
            }
        };
        let span = driver.span();
        match answer {
            Answer::Accepted => driver.on_accepted(self.acceptance(details)),
            Answer::Wait { after } => {
                self.wait_as_asked(after);
                let error = "the upstream asks to wait".to_owned();
                driver.on_failed(self.not_delivered(span, &usage, Some(after), error, details));
            }
            Answer::TryAgain { after, error } => {
                driver.on_failed(self.not_delivered(span, &usage, after, error, details));
            }
            Answer::Refused { error } => {
                driver.on_failed(self.refused(span, &usage, error, details));
            }
        }
        true
    }

    pub(crate) fn wait_as_asked(&self, after: Duration) {
        warn!(
            code = "delivery.throttled",
            wait_ms = millis(after),
            "the upstream asks to wait"
        );
        self.post_limit.pause_for(after);
    }

    fn not_delivered(
        &self,
        span: &Span,
        usage: &Usage,
        after: Option<Duration>,
        error: String,
        details: Details,
    ) -> Failure {
        let retry_at = self.retry_at(span, after.map_or(0, millis));
        warn!(code = "delivery.failed", span.id = %span.id, usage = usage.dedup_id, %retry_at,
            attempts = span.attempts() + 1, error,
            "a usage could not be delivered");
        self.failure(retry_at, error, details)
    }

    fn refused(&self, span: &Span, usage: &Usage, error: String, details: Details) -> Failure {
        let retry_at = self.retry_at(span, 0);
        error!(code = "delivery.refused", span.id = %span.id, usage = usage.dedup_id, %retry_at,
            attempts = span.attempts() + 1, error,
            "the upstream refused a usage");
        Failure {
            blames_usage: blames_usage(&details),
            ..self.failure(retry_at, error, details)
        }
    }

    /// Posts a usage once, when there is a permit for that, unless its deadline is over by then.
    pub(crate) async fn post_once(&self, usage: &Usage, deadline: &PostDeadline) -> PostOutcome {
        let permit = self
            .post_limit
            .acquire(&*self.parts.processing_progress, &self.stop);
        let Some(permit) = permit.await else {
            return PostOutcome::Held;
        };
        if self.is_paused() {
            return PostOutcome::Held;
        }
        if deadline.is_over(self) {
            return PostOutcome::Outdated;
        }
        let began = Instant::now();
        let post = trace::of_post(usage);
        let posting = self.parts.upstream.post(usage, self.now());
        let posted = posting.instrument(post.clone()).await;
        let Posted {
            answer,
            date,
            details,
        } = posted;
        self.offset.note(date, self.now());
        metrics::note_post(began, &answer);
        post.record("http.response.status_code", details.status.map(i64::from));
        self.parts.processing_progress.report();
        permit.release(answer.load());
        self.found_despite(usage, answer, details).await
    }

    /// What the answer to a post comes to: a 409 may say that the upstream has the usage already, and where
    /// usages are found by their ids, only finding the usage proves that.
    async fn found_despite(&self, usage: &Usage, answer: Answer, details: Details) -> PostOutcome {
        let may_be_there = details.status == Some(409) && self.promises.lookups.is_by_id();
        if may_be_there
            && let LookupOutcome::Found(acceptance) = self.look_up_once(&usage.dedup_id).await
        {
            return PostOutcome::Found(acceptance);
        }
        PostOutcome::Posted(answer, details)
    }

    pub(crate) fn acceptance(&self, details: Details) -> Acceptance {
        Acceptance {
            at: self.now(),
            status: details.status,
            location: details.location,
        }
    }

    /// When to try again: later each time, and after `at_least` ms. The limit of retries is never
    /// exceeded, because it is what fits into the slack of a closing month.
    pub(crate) fn retry_at(&self, span: &Span, at_least: i64) -> Timestamp {
        let fraction = self.parts.random.fraction();
        let backoff = self.settings.delivery.backoff();
        let wait = backoff.wait(span.attempts() + 1, fraction);
        self.now().plus(wait.max(at_least.min(backoff.limit)))
    }

    /// The failure of a post as it is kept: with the upstream's name of the error, if there is one.
    fn failure(&self, retry_at: Timestamp, error: String, details: Details) -> Failure {
        Failure {
            at: self.now(),
            retry_at,
            unanswered: is_unanswered(&details),
            error: details.error_name.unwrap_or(error),
            status: details.status,
            blames_usage: false,
            is_post: true,
        }
    }
}

/// Whether a refusal is about the usage. Gateways give some of these answers while the upstream is away;
/// they name no error of the upstream's.
pub(crate) fn blames_usage(details: &Details) -> bool {
    !matches!(details.status, Some(404 | 408 | 421 | 425)) || details.error_name.is_some()
}

/// Whether the upstream may have taken a usage although the post was not accepted: the request was sent, and
/// what came back, if anything, says neither yes nor no. A gateway that loses the upstream's answer sends a
/// 5xx of its own, with whatever body, or repeats the post, and passes on that the usage is there already (409);
/// another 2xx or 3xx may come from anywhere.
fn is_unanswered(details: &Details) -> bool {
    let is_clear = details
        .status
        .is_some_and(|status| (400..500).contains(&status) && status != 409);
    !is_clear && !details.unsent
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_gateway_answers_while_abacus_is_away_blames_no_usage() {
        let blames = |status: u16, name: Option<&str>| {
            blames_usage(&Details {
                status: Some(status),
                error_name: name.map(str::to_owned),
                ..Details::default()
            })
        };
        assert!(!blames(404, None) && !blames(408, None) && !blames(425, None));
        assert!(blames(404, Some("plannotfound")) && blames(400, None) && blames(422, None));
    }

    #[test]
    fn what_gateways_answer_where_they_lose_an_answer_leaves_open_whether_the_usage_counts() {
        let unanswered = |status: Option<u16>, name: Option<&str>, unsent: bool| {
            is_unanswered(&Details {
                status,
                error_name: name.map(str::to_owned),
                unsent,
                ..Details::default()
            })
        };
        for status in [None, Some(500), Some(502), Some(503), Some(504), Some(520)] {
            for name in [None, Some("Internal Server Error")] {
                assert!(unanswered(status, name, false), "{status:?} {name:?}");
            }
            assert!(
                !unanswered(status, None, true),
                "{status:?} of a token server"
            );
        }
        for status in [200, 203, 207, 302, 409] {
            assert!(unanswered(Some(status), None, false), "{status}");
        }
        for status in [400, 401, 429, 451] {
            assert!(!unanswered(Some(status), None, false), "{status}");
        }
    }
}
