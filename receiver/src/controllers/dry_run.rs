//! Dry runs: the decisions about events, and the usages that would be posted because of them. Nothing
//! is kept.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use sampler_api::{DryRun, PostedUsage};
use sampler_domain::{Forecast, Span, Timestamp};
use sampler_service::problem::Problem;
use sampler_service::security::Grant;

use super::events::View;
use crate::admission;
use crate::batch::{Item, Layout};
use crate::event_headers::{DryRunQuery, EventForm};
use crate::form::EventFormat;
use crate::{Receiver, body, problems};

/// The most usages that are shown for one event.
const USAGES_MAX: usize = 1_000;

/// The most bytes that all usages of one answer take.
const BYTES_MAX: usize = 4 << 20;

/// The answer to an event that was refused.
///
/// # Errors
/// The problem, where it says nothing about the event.
fn refused(problem: Problem) -> Result<DryRun, Problem> {
    if problem.status().is_server_error() {
        return Err(problem);
    }
    Ok(DryRun {
        would: problem.status().as_u16(),
        replayed: None,
        usages: None,
        more: false,
        problem: Some(problem.into()),
    })
}

fn too_large() -> Problem {
    let detail = "The spans that these events would change take too much memory. Nothing was kept: send fewer \
                  events at a time.";
    Problem::new(&problems::PAYLOAD_TOO_LARGE, detail)
}

struct DryRunInProgress<'r> {
    receiver: &'r Receiver,
    grant: &'r Grant,
    view: View<'r>,
    now: Timestamp,
    until: Timestamp,
    /// How many bytes of usages may still be shown.
    bytes: usize,
}

impl Receiver {
    pub(super) async fn dry_run_one(
        &self,
        query: DryRunQuery,
        grant: &Grant,
        body: &[u8],
        form: EventForm,
    ) -> Result<Response, Problem> {
        let _permit = self.admit_reading(grant).await?;
        let mut dry_run = self.begin_dry_run(query, grant)?;
        match dry_run.decide(body, form).await {
            // A body that is not JSON is refused as without a dry run.
            Err(problem) if *problem.kind() == problems::MALFORMED_JSON => Err(problem),
            decided => Ok(Json(decided.or_else(refused)?).into_response()),
        }
    }

    /// Answers a dry run of a batch. Each event is decided with the effects of the events before it.
    pub(super) async fn dry_run_all(
        &self,
        query: DryRunQuery,
        grant: &Grant,
        layout: Layout,
        items: &[Item<'_>],
    ) -> Result<Vec<DryRun>, Problem> {
        let _permit = self.admit_reading(grant).await?;
        let mut dry_run = self.begin_dry_run(query, grant)?;
        let mut all = Vec::with_capacity(items.len());
        for item in items {
            let decided = dry_run
                .decide(item.bytes, EventFormat::of(layout).into())
                .await;
            all.push(decided.or_else(refused)?);
            if dry_run.view.is_too_large() {
                return Err(too_large());
            }
        }
        Ok(all)
    }

    fn begin_dry_run<'r>(
        &'r self,
        query: DryRunQuery,
        grant: &'r Grant,
    ) -> Result<DryRunInProgress<'r>, Problem> {
        self.require_readable()?;
        if self.settings.sampling.dimension.is_none() {
            let detail = "The granularity (SAMPLER_DIMENSION) is not set at this receiver, so it \
                          cannot know what would be posted.";
            return Err(Problem::new(&problems::DRY_RUN_UNAVAILABLE, detail));
        }
        let now = self.parts.clock.now();
        Ok(DryRunInProgress {
            receiver: self,
            grant,
            view: View::to_read(self),
            now,
            until: query.until.unwrap_or(now),
            bytes: BYTES_MAX,
        })
    }
}

impl DryRunInProgress<'_> {
    async fn decide(&mut self, body: &[u8], form: EventForm) -> Result<DryRun, Problem> {
        let max = self.receiver.settings.limits.payload;
        if body.len() > max {
            return Err(body::too_large(max));
        }
        let sender = self.receiver.sender(self.grant);
        let weight = admission::weight(body);
        let large = self.receiver.admission.acquire_large(sender, weight).await;
        let _large = large.map_err(|reason| self.receiver.turned_away(reason))?;
        let (event, _) = self.receiver.read(self.grant, body, form)?;
        let foreseen = self.view.foresee(&event, self.grant, self.now).await?;
        let (mut usages, mut more) = (Vec::new(), false);
        for span in foreseen.spans {
            more |= self.forecast(span, &mut usages);
        }
        Ok(DryRun {
            would: StatusCode::CREATED.as_u16(),
            replayed: Some(foreseen.is_replayed),
            usages: Some(usages),
            more,
            problem: None,
        })
    }

    /// Adds the usages that would be posted for a span. Returns whether there are more than can be
    /// shown.
    fn forecast(&mut self, span: Span, usages: &mut Vec<PostedUsage>) -> bool {
        let policy = &self.receiver.policy;
        for usage in Forecast::new(span, self.until, policy) {
            let bytes = serde_json::to_vec(&usage).map_or(0, |written| written.len());
            if usages.len() == USAGES_MAX || bytes > self.bytes {
                return true;
            }
            self.bytes -= bytes;
            usages.push(usage.into());
        }
        false
    }
}
